"""Guesses of what comes next."""

from pathlib import Path

import pytest

import relaxd
from relaxd.llm import Sampling
from relaxd.llm.drafts import Lookup, SmallModel
from relaxd.llm.generation import Generation
from relaxd.llm.slots import slots_of
from tests.relaxd.llm.models import KINDS, greedy


def answer(prompt: list[int], *tokens: int) -> Generation:
    made = Generation(prompt, Sampling(), None, frozenset())
    made.tokens += tokens
    return made


@pytest.mark.parametrize(
    ("prompt", "tokens", "draft"),
    [
        ([1, 2, 3, 4, 5, 9, 2], [3], [4, 5, 9]),
        ([1, 2, 3, 7, 2, 3, 8, 1, 2], [3], [7, 2, 3]),  # three alike before two
        ([2, 3, 7, 2, 3, 8, 6, 2], [3], [8, 6, 2]),  # the last such place
        ([1, 2, 3], [4], []),
        ([5], [5], []),
        ([5, 5], [5], [5, 5, 5]),
        ([8, 1, 2], [1, 2], [1, 2, 1]),
    ],
)
def test_what_stood_behind_the_same_tokens(
    prompt: list[int], tokens: list[int], draft: list[int]
) -> None:
    assert Lookup().draft(answer(prompt, *tokens), 3) == draft


def test_an_answer_that_goes_on() -> None:
    lookup, made = Lookup(), answer([1, 2, 3, 4], 2)
    assert lookup.draft(made, 2) == []
    made.tokens += [3]
    assert lookup.draft(made, 2) == [4, 2]
    made.tokens += [4, 2, 3]
    assert lookup.draft(made, 2) == [4, 2]
    lookup.forget(made)
    assert lookup.draft(made, 1) == [4]


@pytest.mark.parametrize("kind", KINDS)
def test_a_model_guesses_its_own_answer(language_models: dict[str, Path], kind: str) -> None:
    model = relaxd.load(language_models[kind], threads=1)
    drafter = SmallModel(slots_of(model, 1, 40), piece=4)
    prompt = [3, 1, 4, 1, 5, 9]
    made = answer(prompt, 7)
    # The prompt comes in pieces of 4.
    assert drafter.draft(made, 3) == []
    after = greedy(kind, [*prompt, 7], 12)
    assert drafter.draft(made, 3) == after[:3]
    made.tokens += [*after[:2], 11]
    assert drafter.draft(made, 3) == greedy(kind, made.sequence, 3)
    # Of one that is over, the place is free again.
    drafter.forget(made)
    other = answer([2, 4], 6)
    assert drafter.draft(other, 4) == greedy(kind, [2, 4, 6], 4)
    assert drafter.draft(answer_of_length(other, 38), 4) == []


def answer_of_length(made: Generation, length: int) -> Generation:
    made.tokens += [1] * (length - len(made.sequence))
    return made
