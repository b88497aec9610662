"""Greedy answers of a bundle beside those of the same weights in torch, in float32."""

import argparse
from typing import Any

import numpy as np
import torch

import relaxd
from benchmarks.answers.decoder import Decoder
from compiler.ir.gguf.file import read_gguf
from relaxd.llm import Engine, Sampling

Array = np.ndarray[Any, Any]
PROMPTS = (
    "What is the capital of France?",
    "Name three primary colours.",
    "Write a haiku about the sea.",
    "Why is the sky blue?",
    "Translate 'good morning' into Spanish.",
    "What is 17 plus 25?",
    "Explain what a compiler does in one sentence.",
    "List two uses of copper.",
    "Who wrote Romeo and Juliet?",
    "Give me a short recipe for pancakes.",
    "def fibonacci(n):",
    "How many legs does a spider have?",
    "What does HTTP stand for?",
    "Describe a cat to someone who has never seen one.",
    "Was ist die Hauptstadt von Deutschland?",
    "Write the numbers from 1 to 10.",
    "Suggest a name for a small bakery. \U0001f950",
    "What is the opposite of cold?",
    "Finish the sentence: Once upon a time,",
    "Sort these words: pear, apple, fig.",
)


def run(options: argparse.Namespace) -> int:
    """Print each answer; exit status 0 where all are torch's."""
    decoder = Decoder(read_gguf(options.model))
    beside = _Beside(relaxd.load(options.beside, threads=1)) if options.beside else None
    right = tokens = 0
    with Engine.open(options.bundle, threads=1) as engine:
        for prompt in PROMPTS[: options.prompts]:
            talk: list[dict[str, object]] = [{"role": "user", "content": prompt}]
            created = engine.chat(talk, Sampling(max_tokens=options.tokens))
            text = created.text()
            prompt_tokens = list(created.prompt)
            scores = _scores(decoder, prompt_tokens, created.tokens)
            departs = _departs(scores, created.tokens)
            if beside is not None:
                beside.add(prompt_tokens, created.tokens, scores)
            tokens += len(created.tokens)
            right += departs is None
            print(f"{'equal' if departs is None else departs}: {prompt!r}: {text!r}", flush=True)
    print(f"{right} of {options.prompts} answers are torch's, {tokens} tokens")
    if beside is not None:
        print(
            f"{beside.same} of {tokens} tokens are the most probable of {options.beside.name}, "
            f"mean divergence {beside.divergence / tokens:.5f}"
        )
    return int(right < options.prompts)


def _scores(decoder: Decoder, prompt: list[int], answer: list[int]) -> Array:
    """Those behind each token before one of the answer."""
    with torch.inference_mode():
        return np.asarray(decoder(prompt + answer[:-1])[len(prompt) - 1 :].numpy())


class _Beside:
    """How often another library has the same most probable token, and the sum of the
    Kullback-Leibler divergences of its probabilities from torch's.
    """

    def __init__(self, model: relaxd.Model) -> None:
        self.model = model
        self.same, self.divergence = 0, 0.0

    def add(self, prompt: list[int], answer: list[int], scores: Array) -> None:
        """One answer."""
        tokens = prompt + answer[:-1]
        state = self.model.state(entries=1, capacity=len(tokens))
        got = state.step([tokens])["logits"][0, len(prompt) - 1 :]
        self.same += int(np.count_nonzero(got.argmax(1) == scores.argmax(1)))
        p, q = logarithms(scores), logarithms(got)
        self.divergence += float((np.exp(p) * (p - q)).sum())


def logarithms(scores: Array) -> Array:
    """The logarithms of the probabilities of each row."""
    moved = scores.astype(np.float64) - scores.max(1, keepdims=True)
    return np.asarray(moved - np.log(np.exp(moved).sum(1, keepdims=True)))


def _departs(scores: Array, answer: list[int]) -> str | None:
    """Where torch's most probable token is another; None for the same answer.

    One call saw the whole answer: if each of its tokens is the most probable one behind those
    before it, torch alone gives that answer.
    """
    best = scores.argmax(1)
    others = np.flatnonzero(best != np.array(answer))
    if not len(others):
        return None
    position = int(others[0])
    ahead = scores[position, best[position]] - scores[position, answer[position]]
    return f"departs at token {position}, where torch's is {ahead:.2e} ahead"
