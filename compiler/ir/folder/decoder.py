"""The decoder that a folder describes."""

import onnx

from compiler.ir.decoders.adapters import AdapterSites
from compiler.ir.decoders.model import decoder_model
from compiler.ir.decoders.text_files import TextFiles
from compiler.ir.folder.adapter import adapter_in
from compiler.ir.folder.architectures import Architecture, design_of
from compiler.ir.folder.archive import Files
from compiler.ir.folder.config import Config, unusable
from compiler.ir.folder.packing import packing_of
from compiler.ir.folder.tensors import tensors_of
from compiler.ir.folder.texts import text_files
from compiler.ir.folder.weights import FolderWeights
from relaxd.contract.model_folder import ADAPTER_WEIGHTS


def decoder_of(
    files: Files, config: Config, architecture: Architecture, sites: AdapterSites | None
) -> tuple[onnx.ModelProto, TextFiles]:
    """The model, and what serving takes beside it; raises LoadError. sites: of adapters."""
    design = design_of(config, architecture)
    packing = packing_of(config)
    tensors = tensors_of(
        (name, data)
        for name, data in files.arrays.items()
        if name.endswith(".safetensors") and name != ADAPTER_WEIGHTS
    )
    if packing is None and any(name.endswith(".qweight") for name in tensors):
        raise unusable("the folder has packed weights, and config.json no quantization_config")
    tied = config.flag("tie_word_embeddings", architecture.tied)
    adapter = adapter_in(files)
    weights = FolderWeights(tensors, architecture, design, tied, packing, adapter)
    model = decoder_model(design, weights, sites)
    weights.require_all_read()
    return model, text_files(files, dict(config.settings))
