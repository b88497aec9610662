"""The tensors of an encoder in a folder's files."""

from collections.abc import Collection, Mapping

from compiler.ir.decoders.design import Named
from compiler.ir.encoders.design import Linear, Norm, Part
from compiler.ir.folder.encoders.names import UNREAD_ENDINGS, UNUSED
from compiler.ir.folder.tensors import Tensors
from relaxd.contract.weight_files.safetensors import Stored

_OLD_NORMS = {"weight": "gamma", "bias": "beta"}
"""Names of the scale and the bias of a norm in files that were converted from TensorFlow's."""


class EncoderWeights:
    """`Weights` of a folder.

    body: what stands before the encoder's names in models with a head, which its own files may
    leave out; absent: norms that the architecture leaves out of a layer.
    """

    def __init__(
        self,
        tensors: Mapping[str, Stored],
        names: Mapping[Part, str],
        body: str,
        absent: Collection[tuple[Part, int]] = (),
    ) -> None:
        self.tensors, self._names, self._absent = Tensors(tensors), names, absent
        self.body = body if any(name.startswith(body) for name in tensors) else ""

    def has(self, part: Part, layer: int | None = None) -> bool:
        """See Weights; a pooler may be left out."""
        if part not in self._names:
            return False
        return part is not Part.POOLER or f"{self._name(part, layer)}.weight" in self.tensors

    def linear(self, part: Part, layer: int | None, columns: int | None, depth: int) -> Linear:
        """See Weights."""
        name = self._name(part, layer)
        sharing = [one for one, other in self._names.items() if other == self._names[part]]
        if columns is None:
            columns = self.tensors.rows(f"{name}.weight")
        first, total = columns * sharing.index(part), columns * len(sharing)
        label = name if len(sharing) == 1 else f"{name}.{part}"
        matrix = self.tensors.floats(f"{name}.weight", (total, depth))[first : first + columns]
        if f"{name}.bias" not in self.tensors:
            return Linear(Named(label, matrix), None)
        bias = self.tensors.floats(f"{name}.bias", (total,))[first : first + columns]
        return Linear(Named(label, matrix), Named(f"{label}.bias", bias))

    def norm(self, part: Part, layer: int | None, width: int) -> Norm | None:
        """See Weights."""
        if part not in self._names or (part, layer) in self._absent:
            return None
        name = self._name(part, layer)
        scale, bias = (self._norm_name(name, kind) for kind in _OLD_NORMS)
        return Norm(
            Named(scale, self.tensors.floats(scale, (width,))),
            Named(bias, self.tensors.floats(bias, (width,))) if bias in self.tensors else None,
        )

    def tensor(self, part: Part, layer: int | None, shape: tuple[int, ...]) -> Named:
        """See Weights."""
        name = self._name(part, layer)
        if name not in self.tensors:
            name = f"{name}.weight"
        return Named(name, self.tensors.floats(name, shape))

    def require_all_read(self) -> None:
        """Raises LoadError where tensors are left that belong to no head either."""
        heads = (f"{self.body}pooler.", *UNUSED)
        self.tensors.require_all_read(heads, UNREAD_ENDINGS)

    def _name(self, part: Part, layer: int | None) -> str:
        return self._names[part].format(body=self.body, layer=layer)

    def _norm_name(self, module: str, kind: str) -> str:
        old = f"{module}.{_OLD_NORMS[kind]}"
        return old if old in self.tensors else f"{module}.{kind}"
