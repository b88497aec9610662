"""Sources of draft tokens."""

from pathlib import Path

import pytest

import relaxd
from relaxd.llm import Sampling
from relaxd.llm.drafts import Lookup, SmallModel
from relaxd.llm.generation import Generation
from relaxd.llm.slots import slots_of
from tests.relaxd.llm.models import KINDS, greedy


def answer(prompt: list[int], *tokens: int) -> Generation:
    created = Generation(prompt, Sampling(), None, frozenset())
    created.tokens += tokens
    return created


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
    lookup, created = Lookup(), answer([1, 2, 3, 4], 2)
    assert lookup.draft(created, 2) == []
    created.tokens += [3]
    assert lookup.draft(created, 2) == [4, 2]
    created.tokens += [4, 2, 3]
    assert lookup.draft(created, 2) == [4, 2]
    lookup.forget(created)
    assert lookup.draft(created, 1) == [4]


@pytest.mark.parametrize("kind", KINDS)
def test_a_model_drafts_its_own_answer(language_models: dict[str, Path], kind: str) -> None:
    model = relaxd.load(language_models[kind], threads=1)
    drafter = SmallModel(slots_of(model, 1, 40), piece=4)
    prompt = [3, 1, 4, 1, 5, 9]
    generation = answer(prompt, 7)
    # The prompt comes in pieces of 4.
    assert drafter.draft(generation, 3) == []
    after = greedy(kind, [*prompt, 7], 12)
    assert drafter.draft(generation, 3) == after[:3]
    generation.tokens += [*after[:2], 11]
    assert drafter.draft(generation, 3) == greedy(kind, generation.sequence, 3)
    # Of one that is over, the place is free again.
    drafter.forget(generation)
    other = answer([2, 4], 6)
    assert drafter.draft(other, 4) == greedy(kind, [2, 4, 6], 4)
    assert drafter.draft(answer_of_length(other, 38), 4) == []


def answer_of_length(created: Generation, length: int) -> Generation:
    created.tokens += [1] * (length - len(created.sequence))
    return created
