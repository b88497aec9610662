"""The folder that shows a mismatch again: a model, its inputs, and the command to run."""

import json
import shlex
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from relaxd.contract.bundle.manifest import REPRODUCER_START
from relaxd.contract.dims.dims import Dim
from relaxd.contract.dims.names import option_name
from relaxd.contract.operators import CustomOperator
from relaxd.contract.options import CompileOptions
from relaxd.contract.request import CompileRequest

MODEL = "model.onnx"
INPUTS = "inputs.npz"
OPERATORS = "operators.toml"
_README = "README.md"


def describe(folder: Path, request: CompileRequest, target: str, findings: dict[str, Any]) -> None:
    """Write what was found, and how to see it again, beside the inputs, and the model where the
    folder holds one.
    """
    command = shlex.join(_command(folder, request, target))
    _write_operators(folder, request.operators)
    document = {**findings, "target": target, "command": command}
    (folder / REPRODUCER_START).write_text(json.dumps(document, indent=2) + "\n")
    (folder / _README).write_text(_readme(folder, findings, command))


def replace(
    folder: Path, source: Path, request: CompileRequest, target: str, findings: dict[str, Any]
) -> None:
    """Put the model and the inputs of `source`, described, in the folder's place."""
    fresh = _beside(folder, "new")
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir()
    # Contents alone: the sandbox lets nobody change modes and times.
    for name in (MODEL, INPUTS):
        shutil.copyfile(source / name, fresh / name)
    describe(fresh, request, target, findings)
    old = _beside(folder, "old")
    folder.rename(old)
    fresh.rename(folder)
    shutil.rmtree(old)


def settle(folder: Path) -> None:
    """Make good what an end in the middle of `replace` left."""
    if not folder.exists():
        _beside(folder, "old").rename(folder)
    for name in ("new", "old"):
        shutil.rmtree(_beside(folder, name), ignore_errors=True)


def _beside(folder: Path, name: str) -> Path:
    return folder.with_name(f".{folder.name}.{name}")


def _readme(folder: Path, findings: dict[str, Any], command: str) -> str:
    about = (
        f"`{MODEL}` holds the least part of the model that shows the difference."
        if (folder / MODEL).exists()
        else "MODEL is the whole model: no part of it was found to show the difference by itself."
    )
    return "\n\n".join(
        (
            "# The library differs from the reference",
            f"{findings['message']}.",
            f"{about} `{INPUTS}` holds inputs at which it does.",
            f"```console\n$ {command}\n```",
            "",
        )
    )


def _command(folder: Path, request: CompileRequest, target: str) -> list[str]:
    model = MODEL if (folder / MODEL).exists() else "MODEL"
    declared = [
        *(("--dim", f"{option_name(dim.name)}={_text(dim)}") for dim in request.dims),
        *(("--input", str(spec)) for spec in request.inputs),
        *(("--const", f"{name}={value}") for name, value in request.consts),
        *(
            ("--shape", f"{name}=[{','.join(axis.text for axis in axes)}]")
            for name, axes in request.shapes
        ),
        *((("--operators", OPERATORS),) if request.operators else ()),
        *(("--option", option) for option in _options(request.options)),
    ]
    flat = [word for pair in declared for word in pair]
    return ["relaxd", "compile", model, "--samples", INPUTS, "--target", target, *flat]


def _write_operators(folder: Path, operators: Sequence[CustomOperator]) -> None:
    """Write the file that declares custom operators, with their sources beside it."""
    tables = []
    for index, operator in enumerate(operators):
        source = f"operator{index}.c"
        (folder / source).write_text(operator.source)
        document = {**operator.to_json(), "source": source}
        # A text or a list of texts is the same in TOML.
        lines = [f"{key} = {json.dumps(value)}" for key, value in document.items()]
        tables.append("\n".join(("[[operator]]", *lines, "")))
    if tables:
        (folder / OPERATORS).write_text("\n".join(tables))


def _options(options: CompileOptions) -> Iterator[str]:
    """The options that are not as by default, without what only adds to the result."""
    defaults = CompileOptions().to_json()
    yield "profile=false"
    for name, value in options.to_json().items():
        if name not in ("profile", "dump") and value != defaults[name]:
            yield f"{name}={value}"


def _text(dim: Dim) -> str:
    """The command line's form."""
    size = f"{dim.min}" if dim.min == dim.max else f"{dim.min}:{dim.max or ''}"
    multiple = f"%{dim.multiple}" if dim.multiple != 1 else ""
    return size + multiple + (f"@{dim.opt}" if dim.opt is not None else "")
