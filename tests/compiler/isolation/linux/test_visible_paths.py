"""What a build may read of a model's surroundings."""

from pathlib import Path

from compiler.isolation.linux.visible_paths import model_files


def test_links_of_a_folder_lead_to_files_that_may_be_read(tmp_path: Path) -> None:
    held, folder = tmp_path / "held", tmp_path / "m"
    held.mkdir()
    folder.mkdir()
    (held / "1f").write_bytes(b"{}")
    (folder / "config.json").symlink_to(held / "1f")
    (folder / "dangling").symlink_to(held / "none")
    (folder / "onnx").mkdir()
    assert set(model_files(folder)) == {folder, held / "1f"}
