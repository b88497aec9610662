"""The tensors of a decoder in a folder's files of safetensors."""

from collections.abc import Mapping

import numpy as np

from compiler.ir.decoders.design import Design, Named, Part
from compiler.ir.decoders.joint import find_rows
from compiler.ir.folder.adapter import MergedAdapter
from compiler.ir.folder.architectures import Architecture
from compiler.ir.folder.config import unsupported_error
from compiler.ir.folder.packing import Packing
from compiler.ir.folder.tensors import Tensors
from relaxd.contract.weight_files.safetensors import Stored

_UNREAD = (".rotary_emb.inv_freq", ".self_attn.masked_bias")
"""Ends of names of what older files hold beside weights, and what follows from the settings."""


_LOAD = "compile the model with lora_rank, and load the adapter while it runs"


class FolderWeights:
    """`Weights` of a folder; tied: the head is the table, whatever else is stored."""

    def __init__(
        self,
        tensors: Mapping[str, Stored],
        architecture: Architecture,
        design: Design,
        tied: bool,
        packing: Packing | None = None,
        adapter: MergedAdapter | None = None,
    ) -> None:
        self._adapter = adapter
        self._packing = packing
        self._tensors, self._architecture, self._tied = Tensors(tensors), architecture, tied
        self._design = design

    def matrix(self, part: Part, layer: int | None, rows: int, depth: int) -> Named:
        """See Weights."""
        if part is Part.HEAD and self._tied:
            part = Part.TABLE
        module, first, total = self._rows_in(part, layer, rows)
        name = self._called(module, part, total, rows)
        if self._packing is not None and f"{module}.qweight" in self._tensors:
            if self._adapter is not None and self._adapter.changes(module):
                raise unsupported_error("adapters of packed weights", _LOAD)
            quantized = self._packing.read(module, (total, depth), self._tensors.take)
            return Named(name, quantized.part(first, rows))
        floats = self._tensors.floats(f"{module}.weight", (total, depth))
        if self._adapter is not None:
            floats = self._adapter.merge(module, floats)
        return Named(name, floats[first : first + rows])

    def bias(self, part: Part, layer: int | None, size: int) -> Named | None:
        """See Weights."""
        module, first, total = self._rows_in(part, layer, size)
        if f"{module}.bias" not in self._tensors:
            return None
        values = self._tensors.floats(f"{module}.bias", (total,))[first : first + size]
        if not values.any():
            return None
        return Named(f"{self._called(module, part, total, size)}.bias", values)

    def norm(self, part: Part, layer: int | None, size: int) -> Named | None:
        """See Weights."""
        if part not in self._architecture.names:
            return None
        module = self._architecture.names[part].format(layer)
        values = self._tensors.floats(f"{module}.weight", (size,))
        return Named(module, values + np.float32(1) if self._architecture.plus_one else values)

    def require_all_read(self) -> None:
        """Raises LoadError where tensors are left that belong to something else."""
        self._tensors.require_all_read(["lm_head.weight"] if self._tied else [], _UNREAD)
        if self._adapter is not None:
            self._adapter.require_all_merged()

    def _rows_in(self, part: Part, layer: int | None, rows: int) -> tuple[str, int, int]:
        """The module that holds a part, its first row in it, and the rows of all."""
        pattern, first, total = find_rows(self._architecture.names, self._design, part, rows)
        return pattern.format(layer), first, total

    def _called(self, module: str, part: Part, total: int, rows: int) -> str:
        return module if total == rows else f"{module}.{part}"
