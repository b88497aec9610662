"""Tokens a second with and without speculative decoding, the two engines in turns, of texts that
repeat what stood before and of texts that do not, by the time of the processor.
"""

import argparse
import time
from dataclasses import dataclass
from statistics import median

from relaxd.llm import Engine, Sampling, Source, Speculation

_CODE = """def add(a, b):
    return a + b


def subtract(a, b):
    return a - b


def multiply(a, b):
    return a * b
"""
_LETTER = (
    "Dear Ms. Fairweather, the parcel that you sent on the ninth of March arrived with a broken"
    " seal. Please tell us whether you want the parcel returned or repaired. Yours, Tom Bell"
)
REPEATING = (
    f"Write this code again, with x and y in place of a and b:\n{_CODE}",
    f"Add a function divide to this code, and give all of it:\n{_CODE}",
    f"Copy this letter word by word: {_LETTER}",
    f"Correct the mistakes in this letter, and give all of it: {_LETTER}",
    "Write each of these words three times: apple, orange, banana, cherry, lemon, plum.",
)
OTHERS = (
    "Why is the sky blue?",
    "Describe a cat to someone who has never seen one.",
    "Write a short story about a lighthouse.",
    "What does a compiler do?",
    "Give me a short recipe for pancakes.",
)
_SLOWEST = 0.97
"""Of the pace without draft tokens, in texts in which they are wrong."""


@dataclass(frozen=True)
class _Answer:
    tokens: list[int]
    seconds: float
    drafted: int
    accepted: int

    @property
    def pace(self) -> float:
        return len(self.tokens) / self.seconds


def run(options: argparse.Namespace) -> int:
    """Print both paces for each prompt; exit status 0 where answers are the same and no kind of
    text is slower with speculation.
    """
    settings = {"threads": options.threads, "sequences": 1, "capacity": options.capacity}
    speculate = Speculation.parse(options.speculate)
    draft = options.draft if speculate.source is Source.DRAFT else None
    others, slow = 0, False
    with (
        Engine.open(options.bundle, **settings) as plain,
        Engine.open(options.bundle, **settings, speculate=speculate, draft=draft) as drafting,
    ):
        for engine in (plain, drafting):
            _answered(engine, OTHERS[0], 8)
        print("| text | tokens | without | with | ratio | guessed | kept | same |")
        print("|---|---:|---:|---:|---:|---:|---:|---|")
        for kind, prompts in (("repeats", REPEATING), ("others", OTHERS)):
            ratios = []
            for prompt in prompts:
                one, two, ratio = _turns(plain, drafting, prompt, options)
                ratios.append(ratio)
                same = one.tokens == two.tokens
                others += not same
                print(
                    f"| {kind} | {len(one.tokens)} | {one.pace:.1f} | {two.pace:.1f} | {ratio:.2f}"
                    f" | {two.drafted} | {two.accepted} | {'yes' if same else 'no'} |",
                    flush=True,
                )
            slow = slow or median(ratios) < _SLOWEST
            print(f"| {kind}, median | | | | {median(ratios):.2f} | | | |", flush=True)
    print(f"{others} answers differ")
    return int(bool(others) or slow)


def _turns(
    plain: Engine, drafting: Engine, prompt: str, options: argparse.Namespace
) -> tuple[_Answer, _Answer, float]:
    """The fastest answers of both engines, and the median of the ratios of the turns."""
    pairs = [
        (_answered(plain, prompt, options.tokens), _answered(drafting, prompt, options.tokens))
        for _ in range(options.turns)
    ]
    one, two = (
        min(answers, key=lambda answer: answer.seconds) for answers in zip(*pairs, strict=True)
    )
    return one, two, median(with_.pace / without.pace for without, with_ in pairs)


def _answered(engine: Engine, prompt: str, tokens: int) -> _Answer:
    """An answer, timed behind its first token."""
    created = engine.chat([{"role": "user", "content": prompt}], Sampling(max_tokens=tokens))
    began = None
    for _ in created:
        began = time.process_time() if began is None else began
    return _Answer(
        created.tokens, time.process_time() - (began or 0.0), created.drafted, created.accepted
    )
