"""The operators that graphs are drawn from: a function each, with how often it is drawn."""

from collections.abc import Callable

from tests.fuzz.draft import Draft

Operator = Callable[[Draft], object]
OPERATORS: dict[str, tuple[Operator, float]] = {}


def operator(share: float = 1.0) -> Callable[[Operator], Operator]:
    """Registers a function that adds nodes to a draft, or raises Inapplicable."""

    def register(function: Operator) -> Operator:
        OPERATORS[function.__name__] = (function, share)
        return function

    return register
