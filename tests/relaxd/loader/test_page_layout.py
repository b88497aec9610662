"""Which pages hold which tokens: each page is in one block, and shared ones hold no later rows."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relaxd.loader.page_layout import CacheShape, PageLayout, aligned_capacity

PAGE = 4096
SHAPES = st.lists(
    st.builds(CacheShape, st.integers(1, 3), st.integers(4, 2000)), min_size=1, max_size=3
)


def layout_of(shapes: list[CacheShape], tokens: int) -> PageLayout:
    capacity = aligned_capacity(shapes, tokens, PAGE)
    assert capacity is not None
    return PageLayout(shapes, capacity, PAGE)


@pytest.mark.parametrize(
    ("row", "block", "capacity"),
    [(256, 16, 1008), (128, 32, 1024), (68, 64, 1024), (512, 16, 1000), (320, 16, 1024)],
)
def test_blocks_by_the_bytes_of_a_row(row: int, block: int, capacity: int) -> None:
    layout = layout_of([CacheShape(2, row)], 1000)
    assert (layout.block, layout.capacity) == (block, capacity)


def test_rows_that_are_too_short() -> None:
    assert aligned_capacity([CacheShape(2, 3)], 1000, PAGE) is None


@given(SHAPES, st.integers(1, 3000))
def test_blocks_part_the_pages(shapes: list[CacheShape], tokens: int) -> None:
    layout = layout_of(shapes, tokens)
    assert layout.capacity >= tokens
    for index, (heads, row) in enumerate(shapes):
        plane = row * layout.capacity
        assert plane % PAGE == 0
        ends = [head * plane for head in range(heads)]
        for block in range(layout.blocks):
            mine = [part for part in layout.parts(block, block + 1) if part.cache == index]
            for part in mine:
                head = part.start // plane
                assert part.start == ends[head]
                assert part.start % PAGE == part.size % PAGE == 0
                ends[head] += part.size
        assert ends == [(head + 1) * plane for head in range(heads)]


@given(SHAPES, st.integers(1, 3000), st.data())
def test_rows_by_their_tokens(shapes: list[CacheShape], tokens: int, data: st.DataObject) -> None:
    layout = layout_of(shapes, tokens)
    length = data.draw(st.integers(0, layout.capacity))
    count, most = layout.count_full(length), layout.cover(length)
    assert 0 <= count <= most <= count + 3
    for index, (_, row) in enumerate(shapes):
        plane = row * layout.capacity
        full = [part for part in layout.parts(0, count) if part.cache == index]
        assert all(part.start % plane + part.size <= length * row for part in full)
        covered = [part for part in layout.parts(0, most) if part.cache == index]
        assert all(part.size >= length * row for part in covered)
        copied = [part for part in layout.parts(count, most, length) if part.cache == index]
        sizes = sum(part.size for part in [*full, *copied])
        assert sizes == length * row * shapes[index].heads
    assert layout.reach(most) >= length
