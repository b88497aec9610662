"""Rounds in which engines take turns, begun again where others used the machine meanwhile."""

import os
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from relaxd.timing import quiet

PAUSE = 1.0
"""Seconds after a round in which the machine was not quiet."""


REST = 0.1
"""Seconds before each turn: threads of the engine before it look for work a while after its last
call, ONNX Runtime's for 50 ms of a processor.
"""


class Engine(Protocol):
    """One that times calls when asked, in a process of its own."""

    engine: str
    pid: int

    def ask(self, **request: Any) -> dict[str, Any]:
        """`{"milliseconds": [...]}`, one number a call, or `{"error": ...}`."""
        ...


@dataclass
class Round:
    """By engine: the median of its calls in milliseconds, their number, or its error; and the share
    of the processors that others used meanwhile.
    """

    milliseconds: dict[str, float] = field(default_factory=dict)
    calls: dict[str, int] = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)
    others: float = 0.0

    @property
    def quiet(self) -> bool:
        """True if others used at most `quiet.MOST`."""
        return self.others <= quiet.MOST


def in_turns(racing: Sequence[Engine], request: Mapping[str, Any], wanted: int) -> list[Round]:
    """`wanted` rounds of the same request to every engine.

    A round that was not quiet is done once more, up to `wanted` times in all; where that does not
    give enough quiet rounds, the least noisy ones fill up the number. An engine that fails is not
    asked again.
    """
    racing = list(racing)
    done: list[Round] = []
    while sum(one.quiet for one in done) < wanted and len(done) < 2 * wanted:
        done.append(_round(order(racing, len(done)), request))
        racing = [one for one in racing if one.engine not in done[-1].errors]
        if not done[-1].quiet:
            time.sleep(PAUSE)
    return sorted(done, key=lambda one: one.others)[:wanted]


def order(racing: Sequence[Engine], number: int) -> list[Engine]:
    """Who runs when in the round of that number: each begins in turn, forwards and backwards, so
    that none always follows the same neighbour.
    """
    start = number // 2 % len(racing) if racing else 0
    turned = [*racing[start:], *racing[:start]]
    return turned[::-1] if number % 2 else turned


def _round(racing: Sequence[Engine], request: Mapping[str, Any]) -> Round:
    result = Round()
    pids = [os.getpid(), *(one.pid for one in racing)]
    before = quiet.clock(pids)
    for one in racing:
        time.sleep(REST)
        answer = one.ask(**request)
        if times := answer.get("milliseconds"):
            result.milliseconds[one.engine] = statistics.median(times)
            result.calls[one.engine] = len(times)
        else:
            result.errors[one.engine] = str(answer.get("error"))
    result.others = quiet.others_between(before, quiet.clock(pids))
    return result
