"""Which bytes a request asks for."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.requests import Request

from relaxd.contract.canonical import digest_of
from service.api.oci_content import is_known, requested_span

DIGEST = digest_of(b"content")


def request(**headers: str) -> Request:
    named = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    return Request({"type": "http", "method": "GET", "path": "/", "headers": named})


@given(data=st.binary(max_size=60), first=st.integers(0, 80), more=st.integers(0, 80))
def test_a_range_is_that_part(data: bytes, first: int, more: int) -> None:
    span = requested_span(request(range=f"bytes={first}-{first + more}"), DIGEST, len(data))
    assert span is not None
    start, end = span
    assert data[start:end] == data[first : first + more + 1]


@given(data=st.binary(max_size=60), count=st.integers(0, 80))
def test_a_suffix_is_the_end(data: bytes, count: int) -> None:
    span = requested_span(request(range=f"bytes=-{count}"), DIGEST, len(data))
    assert span is not None
    assert data[slice(*span)] == (data[-count:] if count else b"")


@given(data=st.binary(min_size=1, max_size=60), first=st.integers(0, 80))
def test_an_open_range_goes_to_the_end(data: bytes, first: int) -> None:
    span = requested_span(request(range=f"bytes={first}-"), DIGEST, len(data))
    assert span is not None
    assert data[slice(*span)] == data[first:]


@pytest.mark.parametrize(
    "text", ["", "bytes=", "bytes=-", "bytes=5-2", "bytes=0-1,3-4", "lines=0-1", "bytes=a-b"]
)
def test_a_range_that_means_nothing_is_ignored(text: str) -> None:
    assert requested_span(request(range=text), DIGEST, 10) is None


def test_a_range_under_another_content_is_ignored() -> None:
    ranged = {"range": "bytes=0-1"}
    assert requested_span(request(**ranged, if_range=f'"{DIGEST}"'), DIGEST, 10) == (0, 2)
    assert requested_span(request(**ranged, if_range='"other"'), DIGEST, 10) is None


@pytest.mark.parametrize(
    ("tags", "known"),
    [
        (f'"{DIGEST}"', True),
        (f'"other", W/"{DIGEST}"', True),
        ("*", True),
        ('"other"', False),
        (DIGEST, False),
        ("", False),
    ],
)
def test_what_the_client_has(tags: str, known: bool) -> None:
    assert is_known(request(if_none_match=tags), DIGEST) is known
