"""Equal builds against each other, and against one that is made 10 % slower, beside neighbours that
take the processor in bursts: `python -m benchmarks.gate`.
"""

import argparse
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from relaxd.contract.bundle.diff import LatencyChange
from relaxd.loader.contest import Call, contest
from relaxd.loader.model import Model
from relaxd.loader.opening import load
from relaxd.loader.samples import draw

_WIDTH, _LAYERS = 512, 4
_POINT = {"n": 64}
_LIMIT = 0.05
_SLOWDOWN = 0.10
_NEIGHBOUR = """
import random, sys, time
random.seed(int(sys.argv[1]))
end = time.time() + float(sys.argv[2])
while time.time() < end:
    burst = time.time() + random.expovariate(5)
    while time.time() < burst:
        sum(range(1000))
    time.sleep(random.expovariate(5))
"""


def main() -> int:
    """Exit status 0 if no equal build failed the gate and every slower one did."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--equal", type=int, default=50)
    parser.add_argument("--slower", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--neighbours", type=int, default=2)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="relaxd-gate-") as scratch:
        bundles = _bundles(Path(scratch))
        longest = 60 + 3 * (arguments.equal + arguments.slower) * arguments.seconds
        neighbours = [_neighbour(seed, longest) for seed in range(arguments.neighbours)]
        try:
            alarms = _failures(bundles, arguments.equal, arguments.seconds, lambda call: call)
            result = _failures(bundles, arguments.slower, arguments.seconds, _slowed)
        finally:
            for neighbour in neighbours:
                neighbour.kill()
                neighbour.wait()
    print(
        f"false alarms: {alarms} of {arguments.equal}; detections: {result} of {arguments.slower}"
    )
    return 0 if alarms == 0 and result == arguments.slower else 1


def _bundles(folder: Path) -> tuple[Path, Path]:
    """Two copies of one build, each with files of its own in the page cache."""
    from compiler import compile_model

    base, head = folder / "base", folder / "head"
    compile_model(
        _network(), output=base, dims={"n": (1, 256)}, options={"verify": False, "profile": False}
    )
    shutil.copytree(base, head)
    return base, head


def _network() -> onnx.ModelProto:
    random = np.random.default_rng(0)
    names = ["x", *(f"h{index}" for index in range(2 * _LAYERS - 1)), "y"]
    weights = [
        numpy_helper.from_array(
            (random.standard_normal((_WIDTH, _WIDTH)) / 16).astype("float32"), f"w{index}"
        )
        for index in range(_LAYERS)
    ]
    nodes = []
    for index, weight in enumerate(weights):
        source, between, result = names[2 * index : 2 * index + 3]
        nodes.append(helper.make_node("MatMul", [source, weight.name], [between]))
        nodes.append(helper.make_node("Relu", [between], [result]))
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", _WIDTH]) for name in "xy"]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def _neighbour(seed: int, seconds: float) -> "subprocess.Popen[bytes]":
    return subprocess.Popen([sys.executable, "-c", _NEIGHBOUR, str(seed), str(seconds)])


def _failures(
    bundles: tuple[Path, Path], runs: int, seconds: float, change: Callable[[Call], Call]
) -> int:
    failed = 0
    for run in range(runs):
        result = _run(load(bundles[0], threads=1), load(bundles[1], threads=1), seconds, change)
        over = result.low - 1 > _LIMIT
        failed += over
        print(
            f"{run:3} {result.base_ms:.3f} ms {result.ratio - 1:+.2%} "
            f"({result.low - 1:+.2%} to {result.high - 1:+.2%}) of {result.pairs} pairs"
            f"{'  over the limit' if over else ''}",
            flush=True,
        )
    return failed


def _run(base: Model, head: Model, seconds: float, change: Callable[[Call], Call]) -> LatencyChange:
    inputs = draw(base.inputs, _POINT, 0)
    return contest(
        lambda: base.run(inputs),
        change(lambda: head.run(inputs)),
        _POINT,
        seconds,
        time.thread_time,
    )


def _slowed(call: Call) -> Call:
    """The call, and a tenth of its time in addition."""

    def run() -> None:
        started = time.thread_time()
        call()
        end = time.thread_time()
        while time.thread_time() < end + _SLOWDOWN * (end - started):
            pass

    return run


if __name__ == "__main__":
    sys.exit(main())
