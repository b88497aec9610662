import io
import re
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from relaxd.cli import progress
from relaxd.contract.states import Stage


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """Capture what a terminal shows."""
    shown = io.StringIO()
    console = Console(file=shown, force_terminal=True, width=100)
    monkeypatch.setattr(progress, "stderr", lambda: console)
    return shown


def count_points(done: int) -> dict[str, Any]:
    """A step of which `done` of 9 parts have ended."""
    message = f"library at {done} of 9 [shapes]"
    return {"stage": "verify", "message": message, "done": done, "total": 9, "seconds_left": 70.0}


def test_a_terminal_shows_the_stage_the_points_and_what_remains(terminal: io.StringIO) -> None:
    with progress.BuildProgress(["native"]) as shown:
        shown.show_step("native", count_points(3))
    text = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", terminal.getvalue())
    assert "native 6/7 verify: library at 3 of 9 [shapes], about 70 s left" in text


def test_what_the_last_build_took_stands_beside_the_time(terminal: io.StringIO) -> None:
    with progress.BuildProgress(["native"]) as shown:
        shown.start("native", 44.6)
        shown.show_step("native", count_points(3))
    text = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", terminal.getvalue())
    assert "0:00:00 of about 45 s" in text


def test_a_terminal_of_few_columns_shows_all_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = io.StringIO()
    console = Console(file=lines, force_terminal=True, width=60)
    monkeypatch.setattr(progress, "stderr", lambda: console)
    with progress.BuildProgress(["x86-64-v3"]) as shown:
        shown.start("x86-64-v3", 44.6)
        shown.show_step("x86-64-v3", count_points(3))
    text = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", lines.getvalue())
    assert "x86-64-v3 6/7 verify: library at 3" in text
    assert " 0:00:00 of about 45 s" in text
    assert "left" in text
    assert "…" not in text


@pytest.mark.parametrize("expected", [None, "soon", -4, float("nan"), float("inf")])
def test_without_an_earlier_build_nothing_is_expected(
    terminal: io.StringIO, expected: object
) -> None:
    with progress.BuildProgress(["native"]) as shown:
        shown.start("native", expected)
    assert "about" not in terminal.getvalue()


def test_lines_say_what_the_last_build_took(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = io.StringIO()
    monkeypatch.setattr(progress, "stderr", lambda: Console(file=lines, width=100))
    with progress.BuildProgress(["native"]) as shown:
        shown.start("native", 190)
        shown.start("native")
    assert lines.getvalue() == "native: started; the last build took 3 min\n"


@pytest.mark.parametrize(
    ("stage", "text"), [("publish", "native 8/8 publish"), ("polish", "native polish")]
)
def test_a_service_also_publishes_and_may_have_stages_of_a_later_version(
    terminal: io.StringIO, stage: str, text: str
) -> None:
    with progress.BuildProgress(["native"], tuple(Stage)) as shown:
        shown.show_step("native", {"stage": stage})
    assert text in re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", terminal.getvalue())


def test_lines_have_counts_only_where_nothing_else_came_for_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lines, now = io.StringIO(), [0.0]
    monkeypatch.setattr(progress, "stderr", lambda: Console(file=lines, width=100))
    with progress.BuildProgress(["native"], clock=lambda: now[0]) as shown:
        shown.show_step("native", {"stage": "verify"})
        for done in range(9):
            shown.show_step("native", count_points(done))
            now[0] += 4.0
        shown.show_step("native", {"stage": "profile"})
    assert [line.partition(" [")[0] for line in lines.getvalue().splitlines()] == [
        "native: verify",
        "native: verify: library at 3 of 9",
        "native: verify: library at 6 of 9",
        "native: profile",
    ]


def test_an_upload_shows_its_bytes(served: Any, terminal: io.StringIO) -> None:
    Path("large[1].onnx").write_bytes(b"m" * 2_500_000)
    ended = served("compile", "large[1].onnx")
    assert ended.code == 0
    assert "uploading large[1].onnx" in terminal.getvalue()
    assert "2.5/2.5 MB" in terminal.getvalue()
    terminal.truncate(0)
    assert served("compile", "large[1].onnx", "-o", "again").code == 0
    assert "uploading" not in terminal.getvalue(), "the service has it already"


def test_nothing_is_shown_where_there_is_no_terminal(served: Any, model: str) -> None:
    assert "uploading" not in served("compile", model).err


def test_a_download_shows_its_bytes(served: Any, model: str, terminal: io.StringIO) -> None:
    job = served("compile", model, "--detach").out.strip()
    served("jobs", "follow", job)
    assert served("pull", job, "-o", "pulled").code == 0
    assert "pulling" in terminal.getvalue()


def test_the_digest_is_one_word(served: Any, model: str) -> None:
    ended = served("compile", model, columns=40)
    (line,) = (line for line in ended.out.splitlines() if "sha256:" in line)
    assert len(line.strip()) == len("sha256:") + 64
