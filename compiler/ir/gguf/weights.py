"""The tensors of a decoder in a GGUF file."""

from compiler.errors import LoadError
from compiler.ir.decoders.design import Design, Named, Part
from compiler.ir.decoders.joint import find_rows
from compiler.ir.decoders.quantized import Array, Quantized, dequantize
from compiler.ir.gguf.architectures import Architecture
from compiler.ir.gguf.blocks import tensor_of
from compiler.ir.gguf.file import Gguf


class GgufWeights:
    """`Weights` of a GGUF file; the table is the head where there is no other."""

    def __init__(self, file: Gguf, architecture: Architecture, design: Design) -> None:
        self._file, self._names, self._design = file, architecture.names, design
        self._read: set[str] = set()

    def matrix(self, part: Part, layer: int | None, rows: int, depth: int) -> Named:
        """See Weights."""
        if part is Part.HEAD and f"{self._names[part]}.weight" not in self._file.tensors:
            part = Part.TABLE
        pattern, first, total = find_rows(self._names, self._design, part, rows)
        name = f"{pattern.format(layer)}.weight"
        tensor = self._take(name, total, depth)
        if total == rows:
            return Named(name, tensor)
        own = tensor.part(first, rows) if isinstance(tensor, Quantized) else tensor[first:][:rows]
        return Named(f"{name}.{part}", own)

    def bias(self, part: Part, layer: int | None, size: int) -> Named | None:
        """See Weights."""
        pattern, first, total = find_rows(self._names, self._design, part, size)
        name = f"{pattern.format(layer)}.bias"
        if name not in self._file.tensors:
            return None
        values = dequantize(self._take(name, total))[first:][:size]
        return Named(name if total == size else f"{name}.{part}", values)

    def norm(self, part: Part, layer: int | None, size: int) -> Named | None:
        """See Weights; llama.cpp's converter has added the 1 that Gemma's norms lack."""
        if part not in self._names:
            return None
        name = f"{self._names[part].format(layer)}.weight"
        return Named(name, dequantize(self._take(name, size)))

    def require_all_read(self) -> None:
        """Raises LoadError where tensors are left that belong to something else."""
        if left := sorted(self._file.tensors.keys() - self._read - {RATES}):
            raise LoadError(
                f"the GGUF file has {len(left)} tensors that its architecture does not, "
                f"such as {left[0][:100]!r}",
                reason="gguf_architecture",
                field="model",
                hint="merge adapters into the model; of others, export the model to ONNX",
            )

    def _take(self, name: str, *shape: int) -> Array | Quantized:
        """A tensor, which counts as read."""
        stored = self._file.tensors.get(name)
        if stored is None or stored.shape != shape:
            raise LoadError(
                f"the GGUF file has no tensor {name!r}"
                + (f" of the shape {list(shape)}" if stored else ""),
                reason="gguf",
                field="model",
            )
        self._read.add(name)
        return tensor_of(name, stored)


RATES = "rope_freqs.weight"
"""By what the steps of rotations are divided: how Llama 3's are stored."""


def rates_of(file: Gguf) -> Array | None:
    """float32 [pairs], None where the file has none."""
    stored = file.tensors.get(RATES)
    return None if stored is None else dequantize(tensor_of(RATES, stored))
