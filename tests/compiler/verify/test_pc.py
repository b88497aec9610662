"""The library's side of verify on an emulated PC: how a command's end becomes a point's."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from compiler.verify.emulation.pc import bochs
from compiler.verify.emulation.pc.bochs import Ended
from compiler.verify.emulation.pc.disk import Unfit
from compiler.verify.point_loop import PointFailed, PointLate
from compiler.verify.run.pc import OUTPUT_BYTES, Machine

COMMAND = ["/program", "-", "/inputs", "/outputs", "3"]


@pytest.fixture
def machine() -> Machine:
    return Machine("corei7_skylake_x", [Path("/libc"), Path("/program")], Path("/outputs"), 1e6)


def end_with(ended: Ended | Unfit, monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """The arguments of calls are appended to the list that is returned."""
    calls: list[object] = []

    def run(
        processor: str,
        command: Sequence[str],
        files: Sequence[Path],
        outputs: Mapping[Path, int],
        *,
        seconds: float,
    ) -> Ended:
        calls.append((processor, command, sorted(files), outputs, seconds > 0))
        if isinstance(ended, Unfit):
            raise ended
        return ended

    monkeypatch.setattr(bochs, "run", run)
    return calls


def test_a_machine_has_the_files_that_the_command_names(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = end_with(Ended(0, "words"), monkeypatch)
    machine.start(COMMAND)
    files = [Path("/inputs"), Path("/libc"), Path("/program")]
    outputs = {Path("/outputs"): OUTPUT_BYTES}
    assert calls == [("corei7_skylake_x", COMMAND, files, outputs, True)]


@pytest.mark.parametrize(
    ("ended", "error", "message"),
    [
        (Ended(1, "first\nout of memory\n"), PointFailed, "under Bochs: first\nout of memory"),
        (Ended(134, ""), PointFailed, "under Bochs: ended with status 134"),
        (Ended(None, "PANIC"), PointFailed, "under Bochs: PANIC"),
        (Ended(None, "", late=True), PointLate, "not finished it in 1000000 s"),
        (Unfit("too many files"), PointFailed, "too many files"),
    ],
)
def test_other_ends_are_errors(
    ended: Ended | Unfit,
    error: type[Exception],
    message: str,
    machine: Machine,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    end_with(ended, monkeypatch)
    with pytest.raises(error) as caught:
        machine.start(COMMAND)
    assert message in str(caught.value)
