"""Files of a model's surroundings that a build may read."""

from pathlib import Path

from compiler.isolation.linux.visible_paths import model_files


def test_links_of_a_folder_lead_to_files_that_may_be_read(tmp_path: Path) -> None:
    blobs, folder = tmp_path / "held", tmp_path / "m"
    blobs.mkdir()
    folder.mkdir()
    (blobs / "1f").write_bytes(b"{}")
    (folder / "config.json").symlink_to(blobs / "1f")
    (folder / "dangling").symlink_to(blobs / "none")
    (folder / "onnx").mkdir()
    assert set(model_files(folder)) == {folder, blobs / "1f"}
