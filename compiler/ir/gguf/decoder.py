"""The decoder that a GGUF file describes."""

import onnx

from compiler.ir.decoders.adapters import AdapterSites
from compiler.ir.decoders.design import Part
from compiler.ir.decoders.model import decoder_model
from compiler.ir.gguf.architectures import architecture_of, design_of
from compiler.ir.gguf.file import Gguf
from compiler.ir.gguf.metadata import Metadata
from compiler.ir.gguf.weights import GgufWeights, rates_of


def decoder_of(file: Gguf, sites: AdapterSites | None = None) -> onnx.ModelProto:
    """The model; raises LoadError for a file that describes another. sites: of adapters."""
    metadata = Metadata(file.metadata)
    architecture = architecture_of(metadata)
    table = file.tensors.get(f"{architecture.names[Part.TABLE]}.weight")
    vocabulary = table.shape[0] if table is not None and len(table.shape) == 2 else 0
    design = design_of(metadata, architecture, vocabulary, rates_of(file))
    weights = GgufWeights(file, architecture, design)
    model = decoder_model(design, weights, sites)
    weights.require_all_read()
    return model
