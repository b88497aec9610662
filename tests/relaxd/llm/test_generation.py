"""The pieces of an answer, and where it ends."""

import numpy as np
import pytest

from relaxd.llm.generation import Finish, Generation, first_of, pending
from relaxd.llm.sampling import Sampling
from relaxd.llm.text import Text
from tests.relaxd.llm.models import END, LETTERS, WORDS, tokenizer


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Text:
    return Text(tokenizer(tmp_path_factory.mktemp("text")))


def spoken(text: Text, words: str, room: int = 99, **settings: object) -> Generation:
    """An answer whose model says these characters; `~` ends it."""
    created = Generation([1], Sampling(**settings), text, text.ends)  # type: ignore[arg-type]
    for index, letter in enumerate(words):
        if created.finish is None:
            token = END if letter == "~" else LETTERS.index(letter)
            created.take(np.eye(WORDS)[token], room - index)
    return created


def test_a_text_ends_at_the_token_that_ends_texts(text: Text) -> None:
    created = spoken(text, "ab c~d")
    assert created.text() == "ab c"
    assert created.finish is Finish.STOP
    assert len(created.tokens) == 5


def test_a_stop_is_no_part_of_the_text_nor_of_its_pieces(text: Text) -> None:
    created = spoken(text, "abxyzcd", stop=("yz", "never"))
    pieces = [piece.text for piece in created]
    assert "".join(pieces) == "abx"
    assert created.finish is Finish.STOP


def test_what_only_looks_like_a_stop_comes_late_but_whole(text: Text) -> None:
    created = spoken(text, "ayyzb~", stop=("yyyz",))
    assert [piece.text for piece in created] == ["a", "", "", "yyz", "b", ""]


def test_lengths(text: Text) -> None:
    assert spoken(text, "abcdef", max_tokens=3).text() == "abc"
    short = spoken(text, "abcdef", room=1)
    assert (short.text(), short.finish) == ("ab", Finish.LENGTH)


def test_the_helpers_of_stops() -> None:
    assert first_of("abcbc", ("bc", "c")) == 1
    assert first_of("abc", ("x",)) is None
    assert first_of("abc", ()) is None
    assert pending("abcx", ("xyz", "cxy")) == 2
    assert pending("abc", ()) == 0
