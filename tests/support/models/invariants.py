"""A small decoder of 4 bits whose rows are rounded to 8, as a library with state."""

from pathlib import Path

import compiler
from relaxd.contract.options import CacheForm, CompileOptions, Precision, StateForm
from tests.support.models.gguf_files import METADATA, Q4_1, Q8_0, tensors, write

LONGEST, MOST = 320, 128
"""More tokens than attention takes in one part, and pieces of more queries than are few."""


def quantized_decoder(folder: Path, cache: CacheForm = CacheForm.FLOAT32) -> Path:
    """The bundle of a decoder for up to 8 sequences of LONGEST tokens, MOST of them a call."""
    model = folder / "model.gguf"
    write(model, tensors(Q4_1, Q8_0), METADATA | {"llama.context_length": LONGEST})
    dims = {
        "batch_size": (1, 8),
        "sequence_length": (1, MOST),
        "past_sequence_length": (0, LONGEST),
        "total_sequence_length": (1, LONGEST),
    }
    options = CompileOptions(
        verify=False,
        profile=False,
        state=StateForm.LIFTED,
        cache=cache,
        precision=Precision.INT8,
    )
    compiler.compile_model(model, output=folder / "built", dims=dims, options=options)
    return folder / "built"
