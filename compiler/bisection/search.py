"""Finds the first node of a graph whose output departs from the reference, and a small set of nodes
that departs by itself.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from compiler.bisection.cuts import Cut
from compiler.ir.onnx.model.nodes import Graph

Departing = Callable[[Cut], tuple[str, ...]]
"""Compiles the cut, feeds it the reference's values, and returns those of its outputs that depart
from the reference; none where it cannot be compiled or compared."""

_MOST_SINGLE_VALUES = 8


@dataclass(frozen=True)
class Location:
    """first, last: nodes between which the output departs, equal where one node is found.

    cut: the least part of the model that departs by itself; None where no part smaller than the
    one reported before has shown it. value: the output that departs, once the node is found.
    """

    first: int
    last: int
    cut: Cut | None = None
    value: str | None = None


class Search:
    """outputs: those of the model that depart; report: called whenever the search knows more."""

    def __init__(
        self,
        graph: Graph,
        outputs: Iterable[str],
        departing: Departing,
        report: Callable[[Location], None] = lambda location: None,
    ) -> None:
        self._graph = graph
        self._outputs = frozenset(outputs)
        self._departing = departing
        self._report = report
        relevant = graph.behind(self._outputs)
        self._order = sorted(relevant - graph.bookkeeping) or sorted(relevant)
        self._known: dict[Cut, tuple[str, ...]] = {}

    def run(self) -> Location:
        """The last finding reported: one node and a cut, or as much as could be shown."""
        low, high = self._narrowed()
        location = Location(self._order[low], self._order[high - 1])
        values = self._leaving(low, high)
        window = frozenset(self._order[low:high])
        while values:
            location = self._least(values[0], window)
            window = location.cut.nodes if location.cut else window
            values = self._earlier(location, window)
        return location

    def _earlier(self, location: Location, window: frozenset[int]) -> tuple[str, ...]:
        """The inner values of the least cut that depart once they are outputs, all together or, as
        an output more may end a fusion, one by one.
        """
        inner = [index for index in sorted(window) if index < location.last]
        names = [name for index in inner for name in self._graph.gives[index]]
        values = self._depart(window, names)
        if not values and len(names) <= _MOST_SINGLE_VALUES:
            for name in names:
                nodes = frozenset(self._graph.behind([name], window))
                if values := self._depart(nodes, [name]):
                    break
        return values

    def _narrowed(self) -> tuple[int, int]:
        """A window of the order that departs where it is fed the reference's values."""
        low, high = 0, len(self._order)
        while high - low > 1:
            middle = (low + high) // 2
            if self._leaving(low, middle):
                high = middle
            elif self._leaving(middle, high):
                low = middle
            else:
                return self._straddling(low, middle, high)
        return low, high

    def _straddling(self, low: int, middle: int, high: int) -> tuple[int, int]:
        """`_narrowed`, for a window of which neither half departs by itself: the shortest end, then
        the latest beginning.
        """
        if not self._leaving(low, high):
            return low, high
        good = late = middle
        while high - good > 1:
            end = (good + high) // 2
            good, high = (good, end) if self._leaving(low, end) else (end, high)
        while late - low > 1:
            begin = (low + late) // 2
            low, late = (begin, late) if self._leaving(begin, high) else (low, begin)
        return low, high

    def _leaving(self, low: int, high: int) -> tuple[str, ...]:
        """The values that depart among those that leave the window, which is then reported."""
        window = self._order[low:high]
        later = {name for index in self._order[high:] for name in self._graph.takes[index]}
        produced = (name for index in window for name in self._graph.gives[index])
        leaving = tuple(name for name in produced if name in later | self._outputs)
        values = self._depart(frozenset(window), leaving)
        if values:
            cut = Cut(self._graph.complete(window), leaving)
            self._report(Location(window[0], window[-1], cut))
        return values

    def _least(self, value: str, window: frozenset[int]) -> Location:
        """The least part of the window that still makes the value depart: grown backwards from its
        node, then thinned out. No cut where the value departs only beside other outputs.
        """
        layers = self._layers(value, window)
        count = 1
        while not self._depart(_join(layers[:count]), [value]):
            if count == len(layers):
                last = self._graph.producers[value]
                return Location(last, last, value=value)
            count = min(2 * count, len(layers))
        nodes = _join(layers[:count])
        location = self._shown(value, nodes)
        for index in [index for layer in reversed(layers[1:count]) for index in layer]:
            less = frozenset(self._graph.behind([value], nodes - {index}))
            if index in nodes and self._depart(less, [value]):
                nodes = less
                location = self._shown(value, nodes)
        return location

    def _shown(self, value: str, nodes: frozenset[int]) -> Location:
        last = self._graph.producers[value]
        location = Location(last, last, Cut(self._graph.complete(nodes), (value,)), value)
        self._report(location)
        return location

    def _layers(self, value: str, window: frozenset[int]) -> list[list[int]]:
        """The nodes of the window behind the value, by their distance from it; bookkeeping only
        where the value's own node is.
        """
        last = self._graph.producers[value]
        within = set(window)
        if last not in self._graph.bookkeeping:
            within -= self._graph.bookkeeping
        layers = [[last]]
        while layers[-1]:
            within -= set(layers[-1])
            taken = {name for index in layers[-1] for name in self._graph.takes[index]}
            layers.append(
                sorted(index for index in within if taken.intersection(self._graph.gives[index]))
            )
        return layers[:-1]

    def _depart(self, nodes: frozenset[int], values: Sequence[str]) -> tuple[str, ...]:
        """The departing values in the order of their nodes."""
        if not values:
            return ()
        cut = Cut(self._graph.complete(nodes), tuple(values))
        if cut not in self._known:
            changed = self._departing(cut)
            self._known[cut] = tuple(sorted(changed, key=lambda name: self._graph.producers[name]))
        return self._known[cut]


def _join(layers: Iterable[Sequence[int]]) -> frozenset[int]:
    return frozenset(index for layer in layers for index in layer)
