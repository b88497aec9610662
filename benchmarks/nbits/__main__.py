"""`python -m benchmarks.nbits`: matmuls with block-wise quantized weights at several numbers of
rows, relaxd and ONNX Runtime in turns on one thread, by the time of their thread.

The matrices of a case together are larger than the caches, as a model's layers are, so that a
single row reads from memory: GB/s are those of the numbers with a float32 scale for each block, to
be compared with what this thread reads at most, measured between the turns.
"""

import argparse
import sys
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import onnx

from benchmarks.engines import Subject, relaxd
from benchmarks.nbits.cases import Case, cases, model_of
from benchmarks.turns import pin_to_one_core, thread_seconds
from relaxd.timing.engines import load_onnxruntime

_READ_BYTES = 256 << 20


def main() -> int:
    """Print a row for each case and number of rows."""
    options = _parser().parse_args()
    pin_to_one_core()
    memory = np.ones(_READ_BYTES // 8, np.int64)
    print("| matmul | rows | relaxd ms | GB/s | onnxruntime ms | times as fast | reading GB/s |")
    print("|---|---:|---:|---:|---:|---:|---:|")
    for case in cases(options.megabytes):
        if options.only in case.name:
            _measure(case, options.rows, options.turns, memory)
    return 0


def _measure(case: Case, rows: list[int], turns: int, memory: Any) -> None:
    with TemporaryDirectory(prefix="relaxd-nbits-") as folder:
        path = Path(folder) / "model.onnx"
        onnx.save(model_of(case), path, save_as_external_data=True)
        subject = Subject(path, ("x",), threads=1, dims={"m": "1:256"})
        ours, theirs = relaxd(subject), load_onnxruntime(subject)
        for m in rows:
            x = np.random.default_rng(m).standard_normal((m, case.depth), np.float32)
            _agree(ours({"x": x})[0], theirs({"x": x})[0])
            times = [
                (thread_seconds(ours, {"x": x}), thread_seconds(theirs, {"x": x}), _read(memory))
                for _ in range(turns)
            ]
            print(_row(case, m, times), flush=True)


def _agree(ours: Any, theirs: Any) -> None:
    apart = np.abs(ours - theirs).max() / np.abs(theirs).max()
    assert apart < 1e-2, f"the engines differ by {apart:.1e} of the range"


def _row(case: Case, rows: int, times: list[tuple[float, float, float]]) -> str:
    own, other = (median(column) / case.copies for column in list(zip(*times, strict=True))[:2])
    ratio = median(theirs / ours for ours, theirs, _ in times)
    read = median(rate for *_, rate in times)
    return (
        f"| {case.name} | {rows} | {own * 1e3:.3f} | {case.bytes / own / 1e9:.1f} | "
        f"{other * 1e3:.3f} | {ratio:.2f} | {read:.1f} |"
    )


def _read(memory: Any) -> float:
    return float(memory.nbytes / thread_seconds(memory.max) / 1e9)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.nbits", description=__doc__)
    parser.add_argument("--only", default="", help="cases with this in their name")
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 4, 8, 128])
    parser.add_argument("--turns", type=int, default=15)
    parser.add_argument("--megabytes", type=int, default=96, help="of a case's matrices together")
    return parser


if __name__ == "__main__":
    sys.exit(main())
