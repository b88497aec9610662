"""A failure survives the wire, and says nothing of what does not apply."""

from dataclasses import fields

from hypothesis import given
from hypothesis import strategies as st

from relaxd.contract.failures import Failure

WORDS = st.none() | st.text(min_size=1)
FAILURES = st.builds(
    Failure,
    code=st.text(min_size=1),
    stage=st.text(min_size=1),
    message=st.text(),
    pass_name=WORDS,
    node=WORDS,
    op=WORDS,
    hint=WORDS,
    field=WORDS,
    retryable=st.booleans(),
    details=st.dictionaries(st.text(), st.integers() | st.text() | st.lists(st.text())),
)


@given(failure=FAILURES)
def test_there_and_back(failure: Failure) -> None:
    document = failure.to_json()
    assert Failure.from_json(document) == failure
    assert {"code", "stage", "message", "retryable"} <= document.keys()


def test_what_does_not_apply_is_left_out() -> None:
    document = Failure("link.failed", "link", "no").to_json()
    assert document == {
        "code": "link.failed",
        "stage": "link",
        "message": "no",
        "retryable": False,
    }
    assert len(fields(Failure)) > len(document)
