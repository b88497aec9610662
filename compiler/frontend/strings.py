"""Cuts strings off a model, which a loader computes around the library."""

from dataclasses import replace
from pathlib import Path

import numpy as np

from compiler.errors import VerifyError
from compiler.ir.files.model_file import LoadedModel, LoadedScript
from compiler.ir.onnx.strings.cut import cut_strings
from compiler.ir.strings import StringPart
from compiler.verify.inputs.samples import to_npz
from relaxd.contract.dims.tensors import TensorSpec
from relaxd.contract.request import CompileRequest
from relaxd.errors import InputError, LoadContractError


def as_wanted(
    model: LoadedModel | LoadedScript, request: CompileRequest
) -> LoadedModel | LoadedScript:
    """The model without its strings, if it has some. Raises ImportFailed for nodes on strings that
    no step can be.
    """
    if isinstance(model, LoadedScript):
        return model
    cut = cut_strings(model.proto, request)
    if cut is None:
        return model
    proto, strings = cut
    # The reference is given the model as it is now, not the file.
    return replace(model, proto=proto, file=None, strings=strings)


def encode_samples(samples: Path, part: StringPart, folder: Path) -> Path:
    """The samples for the library: a file in the folder where some are strings, else the same.
    Raises VerifyError for strings that the model does not take.
    """
    try:
        with np.load(samples, allow_pickle=False) as archive:
            arrays = dict(archive.items())
    except (OSError, ValueError):
        return samples  # whoever reads samples says what is wrong with them
    if not any(isinstance(one, TensorSpec) and one.name in arrays for one in part.inputs):
        return samples
    try:
        encoded = part.program().encode(arrays)
    except (InputError, LoadContractError) as error:
        raise VerifyError(
            f"the samples cannot be encoded: {error}",
            reason="bad_samples",
            field="samples",
            hint=error.hint or "give strings as the model takes them",
        ) from error
    to_npz(folder / "samples.npz", encoded)
    return folder / "samples.npz"
