"""The inputs and dims that `relaxd export` keeps in torch's archives beside the model: torch writes
no names of dims, and TorchScript not even sizes.
"""

import json
import zipfile
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import Any

from compiler.errors import LoadError
from relaxd.contract.request import CompileRequest
from relaxd.errors import DeclarationError

_PART = "/extra/relaxd.json"
_LARGEST = 1 << 20
_MALFORMED = (ValueError, RecursionError, KeyError, TypeError, AttributeError)


def declare_exported(source: Path | bytes, request: CompileRequest) -> CompileRequest:
    """The request with what the file declares where the request declares nothing: all inputs
    unless it declares one, and the range of each dim; raises LoadError.
    """
    if request.inputs or (data := _read(source)) is None:
        return request
    try:
        document = json.loads(data)
        declared = CompileRequest.of(inputs=document["inputs"], dims=document["dims"])
    except (*_MALFORMED, DeclarationError) as error:
        raise LoadError(
            f"the inputs that relaxd export wrote into the file cannot be read: {str(error)[:200]}",
            reason="export_names",
            field="model",
            hint="export the module again, or declare every --input",
        ) from error
    dims = {dim.name: dim for dim in (*declared.dims, *request.dims)}
    return replace(request, inputs=declared.inputs, dims=tuple(sorted(dims.values())))


def _read(source: Path | bytes) -> bytes | None:
    file: Any = BytesIO(source) if isinstance(source, bytes) else source
    try:
        with zipfile.ZipFile(file) as archive:
            for entry in archive.infolist():
                if entry.filename.endswith(_PART) and entry.file_size <= _LARGEST:
                    return archive.read(entry)
    except (OSError, zipfile.BadZipFile, ValueError, NotImplementedError):
        pass  # whoever reads the model says what is wrong with the file
    return None
