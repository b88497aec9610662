"""Shows the progress of builds on stderr, a live line a target on a terminal, else plain lines; and
of uploads and downloads, on a terminal.
"""

import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    SpinnerColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TransferSpeedColumn,
)
from rich.table import Column

from relaxd.cli.console import stderr
from relaxd.contract.states import Stage, State
from relaxd.contract.steps import describe_seconds, describe_step

QUIET_S = 10.0
"""Seconds after which a line is printed for a step of which only the counts change."""
STAGES_HERE = tuple(stage for stage in Stage if stage is not Stage.PUBLISH)
"""The stages of a build without a service."""
COLOURS = {
    State.SUCCEEDED: "green",
    State.FAILED: "red",
    State.TIMED_OUT: "red",
    State.CANCELLED: "yellow",
}


def mark(state: str) -> str:
    """A state as the API spells it, coloured."""
    return f"[{COLOURS.get(State(state), 'cyan')}]{State(state).value}[/]"


@contextmanager
def transfer(label: str) -> Iterator[Callable[[int, int], None]]:
    """A bar from the first bytes on; what it yields gets the bytes moved and the bytes in all."""
    console = stderr()
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
    )
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task(label, total=None, visible=False)

        def moved(done: int, total: int) -> None:
            bar.update(task, completed=done, total=total, visible=True)

        yield moved


class BuildProgress:
    """One line a target; use as a context manager.

    stages: that a build goes through. clock: seconds, for tests.
    """

    def __init__(
        self,
        targets: list[str],
        stages: tuple[Stage, ...] = STAGES_HERE,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._stages, self._clock = stages, clock
        self._printed: dict[str, float] = {}
        self._console: Console = stderr()
        self._live = Progress(
            SpinnerColumn(finished_text=" "),
            # Of a narrow terminal only the description takes a second line.
            TextColumn("{task.fields[target]}"),
            TextColumn("{task.description}", table_column=Column()),
            TimeElapsedColumn(table_column=Column(no_wrap=True)),
            TextColumn("{task.fields[expected]}", style="dim"),
            console=self._console,
            disable=not self._console.is_terminal,
        )
        self._tasks: dict[str, TaskID] = {
            target: self._live.add_task("queued", total=1, target=target, expected="")
            for target in targets
        }

    def __enter__(self) -> "BuildProgress":
        self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._live.stop()

    def say(self, target: str, text: str) -> None:
        """Shows the current step of the build for `target`."""
        if self._live.disable:
            self._printed[target] = self._clock()
            self._console.print(f"{target}: {text}")
        elif target in self._tasks:
            self._live.update(self._tasks[target], description=text)

    def start(self, target: str, expected: object = None) -> None:
        """Counts the time of the build for `target` from now on.

        expected: seconds that the last build of its model took, where the service knows that.
        """
        if target not in self._tasks:
            return
        self._live.reset(self._tasks[target], description="starting")
        if isinstance(expected, int | float) and 0 < expected < math.inf:
            took = describe_seconds(expected)
            if self._live.disable:
                self.say(target, f"started; the last build took {took}")
            self._live.update(self._tasks[target], expected=f"of about {took}")

    def show_step(self, target: str, step: Mapping[str, Any]) -> None:
        """Shows the step, as `describe_step` takes it, with the number of its stage; in lines the
        counts of a step only where nothing was printed for a while.
        """
        text = escape(describe_step(step))
        if self._live.disable:
            since = self._clock() - self._printed.get(target, -math.inf)
            if step.get("total") is None or since >= QUIET_S:
                self.say(target, text)
            return
        number = next(
            (n for n, stage in enumerate(self._stages, 1) if stage == step["stage"]), None
        )
        position = "" if number is None else f"[dim]{number}/{len(self._stages)}[/] "
        self.say(target, position + text)

    def end(self, target: str, state: str, note: str = "") -> None:
        """Shows the outcome of the build for `target`."""
        self.say(target, mark(state) + (f" {note}" if note else ""))
        if target in self._tasks:
            self._live.update(self._tasks[target], completed=1, expected="")

    def log(self, line: str) -> None:
        """Shows a line that the compiler printed."""
        self._console.print(line, style="dim", markup=False)
