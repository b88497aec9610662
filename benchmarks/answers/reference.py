"""Greedy answers of a bundle beside those of the same weights in torch, in float32."""

import argparse

import numpy as np
import torch

from benchmarks.answers.decoder import Decoder
from compiler.ir.gguf.file import read_gguf
from relaxd.llm import Engine, Sampling

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
    right = tokens = 0
    with Engine.open(options.bundle, threads=1) as engine:
        for prompt in PROMPTS[: options.prompts]:
            talk = [{"role": "user", "content": prompt}]
            made = engine.chat(talk, Sampling(max_tokens=options.tokens))
            text = made.text()
            departs = _departs(decoder, list(made.prompt), made.tokens)
            tokens += len(made.tokens)
            right += departs is None
            print(f"{'equal' if departs is None else departs}: {prompt!r}: {text!r}", flush=True)
    print(f"{right} of {options.prompts} answers are torch's, {tokens} tokens")
    return int(right < options.prompts)


def _departs(decoder: Decoder, prompt: list[int], answer: list[int]) -> str | None:
    """Where torch's most probable token is another; None for the same answer.

    One call sees the whole answer: if each of its tokens is the most probable one behind those
    before it, torch alone gives that answer.
    """
    with torch.inference_mode():
        scores = decoder(prompt + answer[:-1])[len(prompt) - 1 :].numpy()
    best = scores.argmax(1)
    others = np.flatnonzero(best != np.array(answer))
    if not len(others):
        return None
    place = int(others[0])
    ahead = scores[place, best[place]] - scores[place, answer[place]]
    return f"departs at token {place}, where torch's is {ahead:.2e} ahead"
