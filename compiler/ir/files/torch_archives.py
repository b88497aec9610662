"""Tells torch's zip archives apart by the names of their parts."""

import zipfile
from pathlib import Path

from compiler.errors import LoadError


def _parts(path: Path) -> list[str]:
    """The parts of a zip without the folder that torch puts all in; none of another file."""
    try:
        with zipfile.ZipFile(path) as archive:
            return [name.partition("/")[2] for name in archive.namelist()]
    except (OSError, zipfile.BadZipFile):
        return []


def is_exported(path: Path) -> bool:
    """True for a zip as torch.export.save writes it, of today's torch or of one before 2.8."""
    names = _parts(path)
    return any(name == "archive_format" for name in names) or (
        "serialized_exported_program.json" in names
    )


def is_torchscript(path: Path) -> bool:
    """True for a zip with code and constants as torch.jit.save writes them; raises LoadError for
    torch's other archives.
    """
    names = _parts(path)
    if "constants.pkl" in names and any(name.startswith("code/") for name in names):
        return True
    if "data.pkl" in names or any(name.startswith(("models/", "data/")) for name in names):
        hint = (
            "export the module: torch.export.save(torch.export.export(model.eval(), inputs, "
            "dynamic_shapes=...), 'm.pt2'), or save it with torch.jit.save, or export it to ONNX"
        )
        raise LoadError(
            "the file was written by torch.save: it is not TorchScript",
            reason="not_torchscript",
            field="model",
            hint=hint,
        )
    return False
