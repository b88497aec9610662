import json
from enum import StrEnum

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relaxd.contract.text import clean, sanitize


class Colour(StrEnum):
    RED = "red"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain", "plain"),
        ("é漢😀\n\t\x1b", "é漢😀\n\t\x1b"),
        ("a\0b", "a\\x00b"),
        ("é\0", "é\\x00"),
        ("\ud800x", "\\ud800x"),
        (b"caf\xe9".decode(errors="surrogateescape"), "caf\\udce9"),
    ],
)
def test_what_no_database_takes_becomes_an_escape(text: str, expected: str) -> None:
    assert clean(text) == expected


def test_a_document_is_clean_throughout() -> None:
    document = {"a\0": ["\ud800", ("x", 1, None, True)], "n": [float("nan"), float("-inf"), 1.5]}
    assert sanitize(document) == {
        "a\\x00": ["\\ud800", ["x", 1, None, True]],
        "n": [None, None, 1.5],
    }
    assert sanitize({"c": Colour.RED}) == {"c": "red"}


def test_a_deep_document_is_cut() -> None:
    document: list[object] = []
    for _ in range(50_000):
        document = [document]
    assert json.dumps(sanitize(document)).count("[") < 200


TEXTS = st.text(st.characters(exclude_categories=()))
DOCUMENTS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXTS,
    lambda part: st.lists(part) | st.dictionaries(TEXTS, part),
)


@given(DOCUMENTS)
def test_a_cleaned_document_can_be_sent_and_stored(document: object) -> None:
    text = json.dumps(sanitize(document), ensure_ascii=False, allow_nan=False)
    assert "\\u0000" not in text.replace("\\\\", "")
    assert sanitize(json.loads(text.encode())) == sanitize(document)
