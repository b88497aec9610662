"""Teams of threads that run compiled code: how many, on which cores, and how a call is led.

- a team of n has n disjoint groups of physical cores, together all that the process may use; helper
i stays in group i;
- the caller is worker 0: confined to group 0 during the call, it gets its own affinity back
afterwards. It is left alone where the last call of the same shapes had no loop to share out. Where
another program has its core, it swaps cores with the next helper: a helper on such a core can be
done without (`compiler/runtimes/threads.c`), the caller cannot;
- calls of a team of several are one at a time, from whichever thread; helpers start at the first
and sleep between calls. A team of one is its caller alone, and any number of calls run at once;
- after a fork, which comes between calls (`relaxd.loader.forking`), the child starts helpers of its
own.

Left to TVM's pool, every parallel loop would wait for each of its threads, also one that never got
to run because another program has its core; and there would be a pool for each thread that calls.
"""

import os
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING, Any

from relaxd.errors import DeclarationError
from relaxd.loader.machine.topology import Cores, cpu_quota, default_threads, usable_cores

VARIABLE = "RELAXD_NUM_THREADS"
if TYPE_CHECKING:
    from relaxd.loader.engines.helpers import Helpers

_PATIENCE = 1_000_000
"""Nanoseconds: longer than from one call to the next, short enough that an idle model costs nothing
of a CPU quota.
"""

Groups = tuple[frozenset[int], ...]

_LOOK_NS = 20_000_000
"""Calls of so many nanoseconds are looked at together: some turns of the scheduler."""

_OWN = 0.85
"""The share of that time that a caller computes at least where nobody else has its core."""

_LONGEST_STAY = 64
"""Looks after which the caller moves at most: where all cores are busy, each move gains nothing."""


def wanted_threads(requested: int | None) -> int | None:
    """`requested`, else RELAXD_NUM_THREADS, else None; raises DeclarationError below 1."""
    field = "threads"
    if requested is None and (text := os.environ.get(VARIABLE, "").strip()):
        field = VARIABLE
        requested = int(text) if text.isdecimal() else 0
    if requested is not None and requested < 1:
        raise DeclarationError(
            f"{field} must be an integer of at least 1",
            field=field,
            hint="leave it unset for one thread a core",
        )
    return requested


def core_groups(threads: int, cores: Cores) -> Groups:
    """CPUs for each worker: disjoint as long as there are CPUs enough, whole cores as long as there
    are cores enough.
    """
    if threads <= len(cores):
        return tuple(
            frozenset(cpu for core in cores[i::threads] for cpu in core) for i in range(threads)
        )
    cpus = [core[i] for i in range(max(map(len, cores))) for core in cores if i < len(core)]
    if threads <= len(cpus):
        return tuple(frozenset({cpu}) for cpu in cpus[:threads])
    return (frozenset(cpus),) * threads


def machine_helpers() -> "Helpers":
    """The library that runs the loops of TVM's virtual machines; raises BundleError before the
    first bundle.
    """
    from relaxd.loader.engines.runtime import PROCESS

    return PROCESS.helpers


class Team:
    """Threads for compiled code, worker i on the CPUs `groups[i]`.

    one_at_a_time: whether calls wait for each other even where the team is of one, as those do
    that share a device.
    helpers: gives the library that runs the team; None for code without loops to share out.
    """

    def __init__(
        self,
        groups: Groups,
        helpers: "Callable[[], Helpers] | None" = machine_helpers,
        *,
        one_at_a_time: bool = False,
    ) -> None:
        self.groups = groups
        self.helpers = helpers
        self._one_at_a_time = one_at_a_time
        self._renew()
        os.register_at_fork(after_in_child=self._renew)

    def _renew(self) -> None:
        """A forked child has neither the threads nor, perhaps, a lock that anyone will ever
        release.
        """
        self._lock = threading.Lock()
        self._helpers: int | None = None
        self._cores = CoreGroups(self.groups)
        self._alone: Any = None
        """The kind of the last call, if that had no loop."""

    @property
    def size(self) -> int:
        """The number of threads."""
        return len(self.groups)

    def call(self, function: Callable[..., Any], arguments: Iterable[Any], kind: Any = None) -> Any:
        """`function(*arguments)`, with its parallel loops run by this team; what it raises is
        raised here.

        kind: an object that calls of the same loops give. Where the last one of it had none, the
        caller is not confined to its CPUs, which takes as long as a small model's call.
        """
        if self.size == 1 and not self._one_at_a_time:
            return function(*arguments)
        with self._lock:
            if self.size == 1 or self.helpers is None:
                return function(*arguments)
            if self._helpers is None:
                self._helpers = self._start()
            if kind is None or kind is not self._alone:
                return self._confined(function, arguments, kind)
            helpers = self.helpers()
            helpers.lead(self._helpers)
            try:
                return function(*arguments)
            finally:
                if helpers.leave():
                    self._alone = None

    def _confined(self, function: Callable[..., Any], arguments: Iterable[Any], kind: Any) -> Any:
        assert self.helpers is not None
        assert self._helpers is not None
        before = os.sched_getaffinity(0)
        _bind(0, self._cores.caller)
        helpers = self.helpers()
        helpers.lead(self._helpers)
        started = time.perf_counter_ns(), time.thread_time_ns()
        try:
            return function(*arguments)
        finally:
            self._alone = None if helpers.leave() else kind
            took = time.perf_counter_ns() - started[0], time.thread_time_ns() - started[1]
            self._cores.observe(*took)
            _bind(0, before)

    def _start(self) -> int:
        assert self.helpers is not None
        team, ids = self.helpers().start(self.size - 1, _PATIENCE)
        self._cores.begin(ids)
        return team


class CoreGroups:
    """Which group of CPUs is the caller's, and which each helper's.

    Where the caller computes for less than `_OWN` of its calls' time, another program has its core:
    it takes the next helper's group, and that helper the caller's. Where that was no better, the
    next move takes twice as long to come.
    """

    def __init__(self, groups: Groups) -> None:
        self._groups, self._helpers = list(groups), list[int]()
        self._wall = self._own = 0
        self._next = 1
        self._looks, self._stay = 0, 1

    @property
    def caller(self) -> frozenset[int]:
        """The caller's CPUs."""
        return self._groups[0]

    def begin(self, helpers: Sequence[int]) -> None:
        """Confine the helpers, threads of those ids, to their groups."""
        self._helpers = list(helpers)
        for helper, group in zip(self._helpers, self._groups[1:], strict=True):
            _bind(helper, group)

    def observe(self, wall: int, own: int) -> None:
        """Take account of a call: how long it was, and how much of that its thread computed, in
        nanoseconds.
        """
        self._wall, self._own = self._wall + wall, self._own + own
        if self._wall < _LOOK_NS:
            return
        alone = self._own >= _OWN * self._wall
        self._wall = self._own = 0
        self._looks = 0 if alone else self._looks + 1
        if alone:
            self._stay = 1
        elif self._looks >= self._stay:
            self._looks, self._stay = 0, min(2 * self._stay, _LONGEST_STAY)
            self._change()

    def _change(self) -> None:
        """Swap the cores of the caller and a helper, a different one each time."""
        other, groups = self._next, self._groups
        groups[0], groups[other] = groups[other], groups[0]
        self._next = other % len(self._helpers) + 1
        _bind(self._helpers[other - 1], groups[other])


@cache
def _shared_team(groups: Groups, helpers: "Callable[[], Helpers]") -> Team:
    return Team(groups, helpers)


def team_for(
    threads: int | None,
    helpers: "Callable[[], Helpers] | None" = machine_helpers,
    *,
    one_at_a_time: bool = False,
) -> Team:
    """The process's team of so many threads: those of `wanted_threads`, else one a core within the
    cgroup's quota. Teams of one are not shared, so that they run side by side, and so do their
    calls unless they are `one_at_a_time`.

    helpers: gives the library that runs the team, always the same; None for code that has no loop
    to share out.
    """
    count = wanted_threads(threads)
    if helpers is None or count == 1:
        # Which CPUs share a core matters to several alone, and is read from a file for each.
        group = frozenset(os.sched_getaffinity(0))
        return Team((group,), helpers, one_at_a_time=one_at_a_time)
    cores = usable_cores()
    groups = core_groups(count or default_threads(cores, cpu_quota()), cores)
    if len(groups) == 1:
        return Team(groups, helpers, one_at_a_time=one_at_a_time)
    return _shared_team(groups, helpers)


def _bind(thread: int, cpus: Iterable[int]) -> None:
    """Best effort: a CPU set that shrank since the team was made must not keep a model from
    running.
    """
    with suppress(OSError):
        os.sched_setaffinity(thread, cpus)
