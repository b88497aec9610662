"""Tells torch's zip archives apart by the names of their parts."""

import pickletools
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
        raise _saved_error(_classes_in(path))
    return False


_MOST_PICKLE = 64 << 20
_TENSORS = ("collections ", "torch._utils ", "torch ", "torch.storage ", "numpy")
"""Beginnings of the names of classes that a state dict refers to."""
_LOADED = "m = torch.load('FILE', weights_only=False).eval()"
_EXPORT = "torch.export.save(torch.export.export(m, inputs, dynamic_shapes=...), 'm.pt2')"


def _classes_in(path: Path) -> list[str]:
    """The classes and functions that the archive's pickle names, which is not run; none of an
    archive without one, or of one that is malformed.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            (part,) = (one for one in archive.infolist() if one.filename.endswith("/data.pkl"))
            if part.file_size > _MOST_PICKLE:
                return []
            content = archive.read(part)
        return [
            str(argument)
            for opcode, argument, _ in pickletools.genops(content)
            if opcode.name == "GLOBAL"
        ]
    except (OSError, ValueError, zipfile.BadZipFile, NotImplementedError, RuntimeError):
        return []


def _saved_error(classes: list[str]) -> LoadError:
    """The error for an archive of torch.save, by what its pickle names."""
    others = [name for name in classes if not name.startswith(_TENSORS)]
    if classes and not others:
        what = "a state dict: weights, without the module that computes with them"
        hint = (
            "create the module and load them: m = Module(...); "
            "m.load_state_dict(torch.load('FILE', weights_only=True)); m.eval(); then " + _EXPORT
        )
    else:
        saved = f" of {others[0].replace(' ', '.')[:100]!r}" if others else ""
        what = f"an object{saved} that torch.save has pickled, which runs code when it is loaded"
        hint = f"where you trust it, load it beside its code: {_LOADED}; then {_EXPORT}"
    return LoadError(
        f"the file is {what}: it is not TorchScript",
        reason="not_torchscript",
        field="model",
        hint=f"{hint}; or save the module with torch.jit.save, or export it to ONNX",
    )
