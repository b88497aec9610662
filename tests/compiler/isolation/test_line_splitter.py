import itertools

from hypothesis import given
from hypothesis import strategies as st

from compiler.isolation.line_splitter import Lines


@given(st.text(alphabet="ab\n"), st.lists(st.integers(0, 60)))
def test_lines_do_not_depend_on_how_the_stream_is_cut(text: str, cuts: list[int]) -> None:
    data = text.encode()
    lines, received = Lines(1000), []
    edges = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    for start, end in itertools.pairwise(edges):
        received += lines.feed(data[start:end])
    received += lines.rest()
    assert received == text.removesuffix("\n").split("\n") if text else received == []


def test_a_line_is_cut_at_the_limit() -> None:
    lines = Lines(4)
    assert lines.feed(b"abc") == []
    assert lines.feed(b"defgh\nxy") == ["abcd"]
    assert lines.feed(b"z\n") == ["xyz"]


def test_broken_text_is_kept_readable() -> None:
    assert Lines(10).feed(b"\xff\xfea\r\n") == ["\ufffd\ufffda"]
