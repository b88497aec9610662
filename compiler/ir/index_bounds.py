"""Which inputs index into something, and the range of indices that is valid: what sample inputs
must keep to.
"""

from collections.abc import Collection, Iterable


def tightest(
    uses: Iterable[tuple[str | None, int, int]], inputs: Collection[str]
) -> dict[str, tuple[int, int]]:
    """Least and greatest valid index by input name, over all uses of the input as an index.

    uses: the value that an index comes from, None for one that no name leads to, with the least and
    greatest index of that use; values that are no inputs do not count.
    """
    bounds: dict[str, tuple[int, int]] = {}
    for source, low, high in uses:
        if source in inputs and source is not None:
            least, most = bounds.get(source, (low, high))
            bounds[source] = (max(least, low), min(most, high))
    return bounds
