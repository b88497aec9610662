"""Small decoders of sequences long enough to have several pages, by how their caches are stored."""

from pathlib import Path

import compiler
from relaxd.contract.options import CacheForm, CompileOptions, StateForm
from tests.support.models.decoders import fill, grown

TOKENS = 1024
"""Of a sequence: the least at which rows of int8 fill pages."""
FORMS = {
    "float32": (fill, CacheForm.FLOAT32),
    "bfloat16": (fill, CacheForm.BFLOAT16),
    "int8": (fill, CacheForm.INT8),
    "grown": (grown, CacheForm.FLOAT16),
}


def build_paged(folder: Path, form: str) -> Path:
    """A bundle for up to 8 sequences of TOKENS tokens."""
    model, cache = FORMS[form]
    dims = {"batch": (1, 8), "seq": (1, 256), "past": (0, TOKENS), "total": (1, TOKENS)}
    if model is grown:
        # Its caches have room for a call behind the past.
        dims = {"batch": (1, 8), "seq": (1, 256), "past": (0, TOKENS - 256)}
    options = CompileOptions(verify=False, profile=False, state=StateForm.LIFTED, cache=cache)
    compiler.compile_model(model(1, TOKENS), output=folder / form, dims=dims, options=options)
    return folder / form
