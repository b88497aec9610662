import io
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from relaxd.cli import progress


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """Capture what a terminal shows."""
    shown = io.StringIO()
    console = Console(file=shown, force_terminal=True, width=100)
    monkeypatch.setattr(progress, "stderr", lambda: console)
    return shown


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
