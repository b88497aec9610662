"""`make env` builds only environments of its own."""

from pathlib import Path

import pytest

from tools import env


def test_a_linked_environment_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "other"
    (other / "bin").mkdir(parents=True)
    link = tmp_path / ".venv"
    link.symlink_to(other)
    monkeypatch.setattr(env, "VENV", link)
    with pytest.raises(SystemExit, match=r"is a link to .*: remove the link"):
        env.main()
    assert (other / "bin").is_dir()
