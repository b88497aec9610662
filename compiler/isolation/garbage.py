"""How often Python looks for cycles in processes that build programs."""

import gc

_ALLOCATIONS = (100_000, 20, 20)


def collect_seldom() -> None:
    """Look for cycles a hundredth as often: expressions live until a build ends, and few form
    cycles. As often as Python looks by default, it takes a seventh of a build's time.
    """
    gc.set_threshold(*_ALLOCATIONS)
