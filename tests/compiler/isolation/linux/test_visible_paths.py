"""Files of a model's surroundings that a build may read."""

from pathlib import Path

import pytest

from compiler.isolation.linux import visible_paths
from compiler.isolation.linux.visible_paths import VisiblePaths, find_closed, model_files


def test_links_of_a_folder_lead_to_files_that_may_be_read(tmp_path: Path) -> None:
    blobs, folder = tmp_path / "held", tmp_path / "m"
    blobs.mkdir()
    folder.mkdir()
    (blobs / "1f").write_bytes(b"{}")
    (folder / "config.json").symlink_to(blobs / "1f")
    (folder / "dangling").symlink_to(blobs / "none")
    (folder / "onnx").mkdir()
    assert set(model_files(folder)) == {folder, blobs / "1f"}


def test_what_others_may_not_read_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Below folders that everybody may enter: temporary folders of tests are none of those."""
    monkeypatch.setattr(Path, "parents", property(lambda path: (path.parent,)))
    tmp_path.chmod(0o755)
    model, output = tmp_path / "model", tmp_path / "model/out"
    output.mkdir(parents=True, mode=0o700)
    (model / "weights").mkdir()
    (model / "weights/1").write_bytes(b"")
    (model / "dangling").symlink_to(tmp_path / "none")

    def closed() -> Path | None:
        return find_closed(VisiblePaths((model,), (), (output,), (), (model,)))

    assert closed() is None, "what is written to gets another owner"
    for path, mode in ((model / "weights/1", 0o640), (model / "weights", 0o754), (model, 0o700)):
        usual = path.stat().st_mode
        path.chmod(mode)
        assert closed() == path
        path.chmod(usual)
    monkeypatch.setattr(visible_paths, "_MOST_OWN", 2)
    assert closed() == model
