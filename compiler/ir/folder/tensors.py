"""The tensors of a folder's files of safetensors, of which none may be left over."""

from collections.abc import Iterable, Mapping

from compiler.errors import LoadError
from compiler.ir.decoders.quantized import Array
from compiler.ir.folder.config import unusable
from compiler.ir.folder.floats import as_float32
from compiler.ir.folder.safetensors import read_safetensors
from relaxd.contract.weight_files.safetensors import Stored


def tensors_of(files: Iterable[tuple[str, Array]]) -> dict[str, Stored]:
    """The tensors of all files by name; raises LoadError for a name that two files have."""
    tensors: dict[str, Stored] = {}
    for name, data in files:
        own = read_safetensors(name, data)
        twice = tensors.keys() & own.keys()
        if twice:
            raise unusable(f"two files have the tensor {min(twice)!r}")
        tensors |= own
    return tensors


class Tensors:
    """Tensors by name, and which of them were read."""

    def __init__(self, tensors: Mapping[str, Stored]) -> None:
        self.stored = tensors
        self._read: set[str] = set()

    def __contains__(self, name: str) -> bool:
        return name in self.stored

    def take(self, name: str, shape: tuple[int, ...]) -> Stored:
        """A tensor, which counts as read; raises LoadError where there is none of that shape."""
        stored = self.stored.get(name)
        if stored is None or stored.shape != shape:
            other = "" if stored is None else f" of the shape {list(shape)}"
            raise unusable(f"the folder has no tensor {name!r}{other}")
        self._read.add(name)
        return stored

    def rows(self, name: str) -> int:
        """The first extent of a matrix; raises LoadError where there is none."""
        stored = self.stored.get(name)
        if stored is None or len(stored.shape) != 2:
            raise unusable(f"the folder has no matrix {name!r}")
        return stored.shape[0]

    def floats(self, name: str, shape: tuple[int, ...]) -> Array:
        """A tensor in float32; raises LoadError."""
        return as_float32(name, self.take(name, shape))

    def require_all_read(self, ignored: Iterable[str], endings: tuple[str, ...]) -> None:
        """Raises LoadError where tensors are left that belong to something else; ignored: names
        that may be left, and beginnings of names that end with a dot.
        """
        names = {*ignored}
        starts = tuple(name for name in names if name.endswith("."))
        left = sorted(
            name
            for name in self.stored.keys() - self._read - names
            if not (name.endswith(endings) or name.startswith(starts))
        )
        if left:
            raise LoadError(
                f"the folder has {len(left)} tensors that its architecture does not, "
                f"such as {left[0][:100]!r}",
                reason="folder_architecture",
                field="model",
                hint="merge adapters into the model, and save it with save_pretrained",
            )
