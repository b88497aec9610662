"""Pools of workers, which are scaled apart: names, and the capabilities that their workers take."""

from dataclasses import dataclass
from fnmatch import fnmatchcase

from compiler.targets import names
from compiler.targets.raw import KINDS
from service.domain import Kind

LONGEST_NAME = 40


@dataclass(frozen=True)
class Pool:
    """A pool, scaled by the builds for its capabilities beyond the first `above`, which another
    pool takes.
    """

    name: str
    capabilities: tuple[str, ...]
    above: int = 0


def known_capabilities() -> tuple[str, ...]:
    """Every capability that a build can ask for: targets, kinds of raw targets, and inspection."""
    return (*names(), *(f"raw-{kind}" for kind in KINDS), Kind.INSPECT.value)


def expand(patterns: str) -> tuple[str, ...]:
    """The capabilities that patterns such as `*,!cuda-*` name, which commas separate: each adds
    those that it matches, or with `!` removes them. Raises ValueError for one that matches none.
    """
    result: set[str] = set()
    for pattern in filter(None, patterns.replace(" ", "").split(",")):
        glob = pattern.removeprefix("!")
        matched = {name for name in known_capabilities() if fnmatchcase(name, glob)}
        if not matched:
            raise ValueError(
                f"no capability is called {glob}; there are {', '.join(known_capabilities())}"
            )
        result = result - matched if pattern.startswith("!") else result | matched
    return tuple(name for name in known_capabilities() if name in result)


def read_pools(text: str) -> tuple[Pool, ...]:
    """Read pools such as `x86=*,!cuda-* spot:4=*,!cuda-* cuda=cuda-*`; raises ValueError."""
    pools = tuple(_read_pool(part) for part in text.split())
    if len({pool.name for pool in pools}) < len(pools):
        raise ValueError("two pools have the same name")
    return pools


def _read_pool(text: str) -> Pool:
    head, equals, patterns = text.partition("=")
    name, _, above = head.partition(":")
    if not (equals and name and len(name) <= LONGEST_NAME and (above or "0").isdecimal()):
        raise ValueError(f"{text} is not a pool: write it as in NAME=cuda-* or NAME:4=cuda-*")
    if not (capabilities := expand(patterns)):
        raise ValueError(f"the pool {name} has no capabilities: name some after =")
    return Pool(name, capabilities, int(above or 0))
