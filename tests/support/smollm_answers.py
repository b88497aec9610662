"""SmolLM2's answers: by a bundle beside those of the same weights in torch, and in WebAssembly
beside those of a library for this machine.
"""

import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer

import relaxd
from benchmarks.llm.files import smollm
from relaxd.llm.text import Text

DIMS = {
    "batch_size": (1, 1),
    "sequence_length": (1, 128),
    "past_sequence_length": (0, 256),
    "total_sequence_length": (1, 256),
}
TEXTS = ("The capital of France is", "def add(a, b):", "Water boils at a temperature of")
QUESTION = "What is a compiler?"
TOKENS, CAPACITY = 20, 128
_CLOSE = 0.02
"""Of logits some 20 in size: sums of two libraries have other orders."""


def prompts_for(bundle: Path) -> dict[str, list[int]]:
    """Tokens by text, of the question as the bundle's template of conversations puts it and of
    texts to continue.
    """
    tokenizer = Tokenizer.from_file(str(bundle / "tokenizer.json"))
    asked = Text(bundle).chat([{"role": "user", "content": QUESTION}])
    talk = {tokenizer.decode(asked, skip_special_tokens=False): asked}
    return talk | {text: tokenizer.encode(text).ids for text in TEXTS}


Chosen = Sequence[tuple[int, float]]
"""The likeliest token of each step, and its logit."""


def require_same_tokens(own: relaxd.Model, prompts: Sequence[list[int]], result: Sequence[Chosen]):
    """A library for this machine has chosen the same, given the prompts and the tokens in turn."""
    state = own.state(entries=1, capacity=CAPACITY)
    for prompt, chosen in zip(prompts, result, strict=True):
        state.reset()
        arguments = prompt
        for token, logit in chosen:
            logits = state.step(np.array([arguments], np.int64))["logits"][0, -1]
            assert logits.argmax() == token
            assert logits[token] == pytest.approx(logit, abs=_CLOSE)
            arguments = [token]


def require_torchs_answers(bundle: str, *options: str) -> str:
    """The report of `benchmarks.answers reference`, whose answers all have to be torch's."""
    command = ["-m", "benchmarks.answers", "reference", str(smollm()), bundle, *options]
    ran = subprocess.run([sys.executable, *command], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert re.search(r"^20 of 20 answers are torch's", ran.stdout, re.MULTILINE), ran.stdout
    return ran.stdout
