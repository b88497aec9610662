"""The encoder of text that a folder describes."""

import onnx

from compiler.ir.decoders.text_files import TextFiles
from compiler.ir.encoders.design import Limit, Part
from compiler.ir.encoders.sentences import sentences_of
from compiler.ir.encoders.text import LENGTH, TOKENS, logits_of, states_of, text_model
from compiler.ir.folder.archive import Files
from compiler.ir.folder.config import Config, unsupported_error
from compiler.ir.folder.encoders.architectures import Family, Task
from compiler.ir.folder.encoders.sentences import modules_of
from compiler.ir.folder.encoders.weights import EncoderWeights
from compiler.ir.folder.exporting import export_hint
from compiler.ir.folder.tensors import tensors_of
from compiler.ir.folder.texts import encoder_texts


def encoder_of(
    files: Files, config: Config, family: Family, task: Task | None
) -> tuple[onnx.ModelProto, TextFiles, tuple[Limit, ...]]:
    """The model, the texts beside it, and the length of its sequences; raises LoadError."""
    text, design = family.describe(config)
    modules = modules_of(files.arrays, design.width)
    # As sentence-transformers does, which loads the encoder without a head where it pools.
    task = None if modules else task
    names = dict(family.names)
    if modules or task is not None:
        names.pop(Part.POOLER, None)
    names |= task.names if task else {}
    tensors = tensors_of(
        (name, data)
        for name, data in files.arrays.items()
        if name.endswith(".safetensors") and "/" not in name
    )
    weights = EncoderWeights(tensors, names, family.body, family.absent)
    if modules:
        finish = sentences_of(design, modules)
    elif task is None:
        finish = states_of(design, weights)
    else:
        head = task.own(config, design, task.head)
        if head.tied and not config.flag("tie_word_embeddings", True):
            what = "masked language models without tied embeddings"
            raise unsupported_error(what, export_hint(config))
        finish = logits_of(head, text, design, weights)
    model = text_model(text, design, weights, finish)
    weights.require_all_read()
    limits = (Limit(TOKENS, 1, LENGTH, text.longest),)
    return model, encoder_texts(files), limits
