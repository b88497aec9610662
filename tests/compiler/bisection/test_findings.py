"""The findings of a search, in words."""

from typing import Any

import pytest

from compiler.bisection.findings import sentence

NODE = {"node": "n", "op": "TopK", "value": "v", "nodes": 2}
TIME = "the time budget of 9 s ran out"


@pytest.mark.parametrize(
    ("document", "stopped", "says"),
    [
        (NODE, None, "the first node whose output ('v') departs is 'n' (TopK)"),
        ({**NODE, "value": "n"}, TIME, "the first node whose output departs is 'n' (TopK)"),
        (
            {"first": "a", "last": "b", "nodes": 7},
            TIME,
            f"between the nodes 'a' and 'b', where the search stopped: {TIME}",
        ),
        ({}, TIME, f"the node was not found: {TIME}"),
        ({"first": "a", "last": "b"}, None, "no part of the model departs"),
    ],
)
def test_sentences(document: dict[str, Any], stopped: str | None, says: str) -> None:
    assert says in sentence(document, stopped)
