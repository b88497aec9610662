"""Engines as processes that answer requests, one line each.

`prefill TOKENS` and `decode PAST SEQUENCES STEPS` give seconds by the clock and of the processor,
for a prompt and for a step of all sequences; `logits TOKENS` the first 256 of the last token;
`peak` the most memory that the process had, in KiB. `best TOKENS`, of OpenVINO GenAI alone, which
gives no logits: the most probable token behind a prompt and the logarithm of its probability;
`probability TOKENS TOKEN`, of relaxd alone: that logarithm for any token; `scores FILE FIRST
TOKEN...`, of llama.cpp alone, the logits behind each token from FIRST on. Every engine reads the
same texts.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import NamedTemporaryFile
from types import TracebackType
from typing import Any

import numpy as np

from compiler import compile_model

CAPACITY = 2048
"""Tokens of a sequence at most."""
_MOST_TOKENS = 512
_DIMS = {
    "batch_size": "1:8",
    "sequence_length": f"1:{_MOST_TOKENS}",
    "past_sequence_length": f"0:{CAPACITY}",
    "total_sequence_length": f"1:{CAPACITY}",
}


@dataclass(frozen=True)
class Times:
    """Seconds by the clock, and of the processor."""

    wall: float
    processor: float


class Engine:
    """A process that holds a model. While it waits for its turn it is stopped: threads of a pool
    that look for work would take the cores of the other engine.
    """

    def __init__(self, name: str, command: Sequence[str], threads: int) -> None:
        self.name = name
        cores = sorted(os.sched_getaffinity(0))[:threads]
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": str(threads)},
            preexec_fn=lambda: os.sched_setaffinity(0, cores),
        )
        self._read()

    def __enter__(self) -> "Engine":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.kill()
        self._process.wait()

    def times(self, request: str) -> Times:
        """The answer to `prefill` or `decode`."""
        wall, processor = map(float, self._ask(request).split())
        return Times(wall, processor)

    def logits(self, tokens: int) -> "np.ndarray[tuple[int], np.dtype[np.float64]]":
        """The first 256 logits behind a prompt."""
        return np.array(self._ask(f"logits {tokens}").split(), np.float64)

    def best(self, tokens: int) -> tuple[int, float]:
        """The most probable token behind a prompt, and the logarithm of its probability."""
        token, probability = self._ask(f"best {tokens}").split()
        return int(token), float(probability)

    def probability(self, tokens: int, token: int) -> float:
        """The logarithm of the token's probability behind a prompt."""
        return float(self._ask(f"probability {tokens} {token}"))

    def peak(self) -> int:
        """The most memory, in KiB."""
        return int(self._ask("peak"))

    def scores(self, tokens: Sequence[int], first: int) -> "np.ndarray[Any, Any]":
        """The logits [tokens, words] behind each token from `first` on."""
        with NamedTemporaryFile() as file:
            self._ask(f"scores {file.name} {first} {' '.join(map(str, tokens))}")
            return np.fromfile(file.name, np.float32).reshape(len(tokens) - first, -1)

    def _ask(self, request: str) -> str:
        assert self._process.stdin is not None
        self._process.send_signal(signal.SIGCONT)
        self._process.stdin.write(request + "\n")
        self._process.stdin.flush()
        return self._read()

    def _read(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self.name} ended with status {self._process.wait()}")
        self._process.send_signal(signal.SIGSTOP)
        return line


def bundle_of(
    model: Path, built: Path, options: Mapping[str, object], samples: Path | None = None
) -> Path:
    """The model compiled for this machine with its caches kept, made once."""
    bundle = built / "-".join([model.stem, *(f"{key}={value}" for key, value in options.items())])
    if not bundle.exists():
        chosen = {"verify": False, "profile": False, "state": "lifted", **options}
        compile_model(model, output=bundle, dims=_DIMS, samples=samples, options=chosen)
    return bundle


def relaxd(bundle: Path, threads: int) -> Engine:
    """Ours, by `Model.state`."""
    command = [sys.executable, "-m", "benchmarks.llm.ours", str(bundle)]
    return Engine("relaxd", [*command, str(threads), str(CAPACITY)], threads)


def llama(program: Path, model: Path, threads: int) -> Engine:
    """llama.cpp, by its C API."""
    command = [str(program), str(model), str(threads), str(CAPACITY)]
    return Engine("llama.cpp", command, threads)


def genai(model: Path, built: Path, threads: int) -> Engine:
    """onnxruntime-genai, on the ONNX model that relaxd's import makes of the file."""
    folder = built / f"{model.stem}-genai"
    command = [sys.executable, "-m", "benchmarks.llm.genai", "write", str(model), str(folder)]
    subprocess.run([*command, str(threads), str(CAPACITY)], check=True)
    return Engine("onnxruntime-genai", [*command[:3], str(folder), str(CAPACITY)], threads)


def open_paged(model: Path, tokenizer: Path, threads: int) -> Engine:
    """OpenVINO GenAI, on the file itself, with another file's tokenizer."""
    command = [sys.executable, "-m", "benchmarks.llm.paged", str(model), str(tokenizer)]
    return Engine("OpenVINO GenAI", [*command, str(threads), str(CAPACITY)], threads)


def llama_program(build: Path | None, built: Path, name: str = "llama") -> Path | None:
    """llama.c, or another of these files, compiled against a build folder of llama.cpp, None where
    that has no library.
    """
    if build is None or not (build / "bin" / "libllama.so").exists():
        return None
    cached = (build / "CMakeCache.txt").read_text().splitlines()
    home = next(line for line in cached if line.startswith("CMAKE_HOME_DIRECTORY"))
    source, libraries = Path(home.split("=", 1)[1]), (build / "bin").resolve()
    program = built / name
    built.mkdir(parents=True, exist_ok=True)
    subprocess.run(
        [
            "cc", "-O2", Path(__file__).with_name(f"{name}.c"), "-o", program,
            f"-I{source}/include", f"-I{source}/ggml/include", f"-L{libraries}",
            "-lllama", "-lggml", "-lggml-base", f"-Wl,-rpath,{libraries}",
        ],
        check=True,
    )  # fmt: skip
    return program
