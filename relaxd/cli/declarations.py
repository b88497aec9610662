"""Options that declare something about a model, shared by the commands that take them."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from relaxd.client.operators import read_operators
from relaxd.contract.dims.dims import Dim
from relaxd.contract.dims.grid import AUTO
from relaxd.contract.dims.names import unquote_name
from relaxd.contract.dims.tensors import TensorSpec
from relaxd.contract.options import Flavour, Precision, PrecisionOver, WeightForm
from relaxd.contract.request import CompileRequest
from relaxd.contract.urgency import HIGHEST, LOWEST
from relaxd.errors import DeclarationError

PANEL = "Declarations"

ModelPath = Annotated[
    Path,
    typer.Argument(
        help="An ONNX file, beside which its data is found, a .pt2, TorchScript, TFLite or GGUF "
        "file, or a folder (or a tar) of an ONNX model or of Hugging Face's.",
        show_default=False,
    ),
]
Dims = Annotated[
    list[str] | None,
    typer.Option(
        "--dim",
        metavar="NAME=RANGE",
        help="A dim's range: batch=1:64, seq=8:512%8@128, batch=4. Names are those of the model.",
        rich_help_panel=PANEL,
    ),
]
Inputs = Annotated[
    list[str] | None,
    typer.Option(
        "--input",
        metavar="NAME=SPEC",
        help='An input declared whole: ids=int64\\[batch,seq], or int64\\[batch,"seq-len"].',
        rich_help_panel=PANEL,
    ),
]
Consts = Annotated[
    list[str] | None,
    typer.Option(
        "--const",
        metavar="NAME=VALUE",
        help="An input fixed to a scalar: sr=16000.",
        rich_help_panel=PANEL,
    ),
]
Shapes = Annotated[
    list[str] | None,
    typer.Option(
        "--shape",
        metavar="VALUE=AXES",
        help="Names for a data-dependent shape: boxes=\\[n,4].",
        rich_help_panel=PANEL,
    ),
]
Options = Annotated[
    list[str] | None,
    typer.Option(
        "--option",
        metavar="NAME=VALUE",
        help="A compile option: verify=false, rtol=1e-3, seed=7.",
        rich_help_panel=PANEL,
    ),
]
Flavours = Annotated[
    Flavour | None,
    typer.Option(
        "--flavour",
        help="The backend: vm (needs TVM's runtime), or standalone (a plain C library).",
        show_default="the target's",
    ),
]
Weights = Annotated[
    WeightForm | None,
    typer.Option(
        "--weights",
        help="The type that large weights are stored in; numerics.json reports the error.",
        show_default="float32",
    ),
]
WeightsError = Annotated[
    float | None,
    typer.Option(
        "--weights-error",
        metavar="SHARE",
        min=0,
        help="Fail if quantized weights change an output by more than this share, as 0.05.",
        show_default=False,
    ),
]
PrecisionOption = Annotated[
    Precision | None,
    typer.Option(
        "--precision",
        help="The type that matmuls and convolutions compute in; numerics.json reports the error.",
        show_default="float32",
    ),
]
PrecisionError = Annotated[
    float | None,
    typer.Option(
        "--precision-error",
        metavar="SHARE",
        min=0,
        help="Fail if quantized operands change an output by more than this share, as 0.02.",
        show_default=False,
    ),
]
PrecisionOverOption = Annotated[
    PrecisionOver | None,
    typer.Option(
        "--precision-over",
        help="If the error is greater: fail, or keep the most sensitive layers in float32.",
        show_default="fail",
    ),
]
Grid = Annotated[
    list[str] | None,
    typer.Option(
        "--grid",
        metavar="auto|NAME=VALUES",
        help="Profile over a grid, for `relaxd estimate`: auto, or batch=1,4 and seq=16,128,512.",
        rich_help_panel=PANEL,
    ),
]
Targets = Annotated[
    list[str] | None,
    typer.Option(
        "--target",
        metavar="TARGET",
        help="What to compile for; repeat for several. See `relaxd targets`.",
        show_default="native",
    ),
]
OneTarget = Annotated[
    str | None,
    typer.Option(
        "--target",
        metavar="TARGET",
        help="The target, if the build has several.",
        show_default=False,
    ),
]
CustomOperators = Annotated[
    Path | None,
    typer.Option(
        "--operators",
        metavar="FILE",
        help="A TOML file of operators that C code of yours computes.",
        rich_help_panel=PANEL,
    ),
]
Project = Annotated[
    str,
    typer.Option(
        "--project",
        metavar="NAME",
        envvar="RELAXD_PROJECT",
        help="With a server: whom its usage is counted for.",
        show_default=False,
    ),
]
Priority = Annotated[
    int,
    typer.Option(
        "--priority",
        metavar=f"{LOWEST}..{HIGHEST}",
        help="With a server: which of the tenant's builds go first, the highest.",
    ),
]
Deadline = Annotated[
    str | None,
    typer.Option(
        "--deadline",
        metavar="SECONDS|30m|2h|TIME",
        help="With a server: when builds may begin at the latest.",
        show_default=False,
    ),
]
Server = Annotated[
    str | None,
    typer.Option(
        "--server",
        metavar="URL",
        envvar="RELAXD_SERVER",
        help="The service to use.",
        show_default=False,
    ),
]
Token = Annotated[
    str | None,
    typer.Option(
        "--token",
        metavar="TOKEN",
        envvar="RELAXD_TOKEN",
        help="The service's bearer token.",
        show_default=False,
    ),
]


def read_request(
    *,
    dims: list[str] | None = None,
    inputs: list[str] | None = None,
    consts: list[str] | None = None,
    shapes: list[str] | None = None,
    options: list[str] | None = None,
    flavour: Flavour | None = None,
    weights: WeightForm | None = None,
    weights_error: float | None = None,
    precision: Precision | None = None,
    precision_error: float | None = None,
    precision_over: PrecisionOver | None = None,
    targets: list[str] | None = None,
    grid: list[str] | None = None,
    operators: Path | None = None,
) -> CompileRequest:
    """The request that the options spell; raises DeclarationError for a malformed or
    repeated one.
    """
    flags = {
        "flavour": flavour,
        "weights": weights,
        "weights_error": weights_error,
        "precision": precision,
        "precision_error": precision_error,
        "precision_over": precision_over,
    }
    options = [
        *(options or []),
        *(f"{name}={value}" for name, value in flags.items() if value is not None),
    ]
    return CompileRequest.of(
        dims=_table("dim", dims, Dim.of),
        inputs=_table("input", inputs, TensorSpec.of),
        consts=_table("const", consts, lambda name, text: _scalar(text)),
        shapes=_table("shape", shapes, lambda name, text: text),
        options=_options(options, grid),
        targets=targets or ["native"],
        operators=read_operators(operators) if operators else (),
    )


def _options(options: list[str] | None, grid: list[str] | None) -> dict[str, Any]:
    table = _table("option", options, lambda name, text: _scalar(text))
    if not grid:
        return table
    if table.get("profile", True) is not True:
        raise DeclarationError(
            "--grid and --option profile exclude each other",
            field="options.profile",
            hint="leave out one of them",
        )
    if grid == [AUTO]:
        return {**table, "profile": {"grid": AUTO}}
    return {**table, "profile": {"grid": _table("grid", grid, _values)}}


def _values(name: str, text: str) -> list[int]:
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() and len(part) < 19 for part in parts):
        raise DeclarationError(
            f"cannot read --grid {name}={text}",
            field=f"options.profile.grid.{name}",
            hint=_EXAMPLES["grid"],
        )
    return [int(part) for part in parts]


def split_dim(text: str) -> tuple[str, str]:
    """The dim's name and what `NAME=VALUE` says of it, either of which may be empty. The last `=`
    divides them, as names may have some; a name may stand in double quotes.
    """
    name, equals, value = text.rpartition("=")
    return unquote_name(name if equals else text), value.strip() if equals else ""


def _table(
    kind: str, declarations: list[str] | None, read: Callable[[str, str], Any]
) -> dict[str, Any]:
    table: dict[str, Any] = {}
    for declaration in declarations or []:
        if kind in ("dim", "grid"):
            name, text = split_dim(declaration)
        else:
            name, text = (part.strip() for part in declaration.partition("=")[::2])
        if "=" not in declaration or not name:
            raise DeclarationError(
                f"cannot read --{kind} {declaration!r}", field=f"{kind}s", hint=_EXAMPLES[kind]
            )
        if name in table:
            raise DeclarationError(f"--{kind} {name} is given twice", field=f"{kind}s.{name}")
        table[name] = read(name, text)
    return table


_EXAMPLES = {
    "dim": "as in --dim batch=1:64",
    "input": 'as in --input "ids=int64[batch,seq]"',
    "const": "as in --const sr=16000",
    "shape": 'as in --shape "boxes=[n,4]"',
    "option": "as in --option verify=false",
    "grid": "as in --grid auto, or --grid seq=16,128,512",
}


def _scalar(text: str) -> Any:
    try:
        value = json.loads(text)
    except ValueError:
        return text
    return value if isinstance(value, (bool, int, float, str)) else text
