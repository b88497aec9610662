"""One document, one spelling, one digest."""

import hashlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relaxd.contract.canonical import canonical_bytes, digest_of, is_digest

SCALARS = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
)
DOCUMENTS = st.recursive(
    SCALARS | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=12,
)


@given(document=DOCUMENTS)
def test_the_bytes_mean_the_document(document: object) -> None:
    assert json.loads(canonical_bytes(document).decode("utf-8", "surrogatepass")) == document


@given(table=st.dictionaries(st.text(), SCALARS, min_size=2))
def test_the_order_of_keys_does_not_count(table: dict[str, object]) -> None:
    assert canonical_bytes(table) == canonical_bytes(dict(reversed(table.items())))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_what_json_does_not_have_is_refused(value: float) -> None:
    with pytest.raises(ValueError, match="JSON"):
        canonical_bytes({"x": value})


def test_known_bytes() -> None:
    assert canonical_bytes({"b": [1, 2.5], "a": "é"}) == '{"a":"é","b":[1,2.5]}'.encode()
    assert digest_of(b"") == "sha256:" + hashlib.sha256(b"").hexdigest()
    assert is_digest(digest_of(b"x"))


@pytest.mark.parametrize(
    "text", ["", "sha256:", "sha256:" + "g" * 64, "sha256:" + "A" * 64, "sha256:" + "a" * 65]
)
def test_what_is_no_digest(text: str) -> None:
    assert not is_digest(text)
    assert not is_digest(digest_of(b"x") + text + "\n")
