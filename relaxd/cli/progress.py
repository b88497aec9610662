"""Shows the progress of builds on stderr, a live line a target on a terminal, else plain lines; and
of uploads and downloads, on a terminal.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType

from rich.console import Console
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

from relaxd.cli.console import stderr
from relaxd.contract.states import State

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
    """One line a target; use as a context manager."""

    def __init__(self, targets: list[str]) -> None:
        self._console: Console = stderr()
        self._live = Progress(
            SpinnerColumn(finished_text=" "),
            TextColumn("{task.fields[target]}"),
            TextColumn("{task.description}"),
            TimeElapsedColumn(),
            console=self._console,
            disable=not self._console.is_terminal,
        )
        self._tasks: dict[str, TaskID] = {
            target: self._live.add_task("queued", total=1, target=target) for target in targets
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
            self._console.print(f"{target}: {text}")
        elif target in self._tasks:
            self._live.update(self._tasks[target], description=text)

    def end(self, target: str, state: str, note: str = "") -> None:
        """Shows the outcome of the build for `target`."""
        self.say(target, mark(state) + (f" {note}" if note else ""))
        if target in self._tasks:
            self._live.update(self._tasks[target], completed=1)

    def log(self, line: str) -> None:
        """Shows a line that the compiler printed."""
        self._console.print(line, style="dim", markup=False)
