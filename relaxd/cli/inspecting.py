"""`relaxd inspect`: a model's inputs and dims, and which of its operators can be compiled."""

import shlex
from collections.abc import Container, Iterator
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from relaxd.cli import declarations as declare
from relaxd.cli.command import Json
from relaxd.cli.console import print_json, stderr, stdout
from relaxd.cli.report import render_report
from relaxd.client import extras
from relaxd.contract.dims.names import option_name
from relaxd.contract.model_folder import require_model
from relaxd.contract.request import CompileRequest

_SUGGESTED = "1:64"
"""The range that the next command has for a dim without a maximum."""


def inspect_command(
    model: declare.ModelPath,
    dim: declare.Dims = None,
    input: declare.Inputs = None,
    const: declare.Consts = None,
    shape: declare.Shapes = None,
    operators: declare.CustomOperators = None,
    nodes: Annotated[
        bool, typer.Option("--nodes", help="List every node with its shapes, not only the refused.")
    ] = False,
    server: declare.Server = None,
    token: declare.Token = None,
    json: Json = False,
) -> None:
    """Show MODEL's inputs, dims and operators, which of its nodes cannot be compiled, and why.

    Nothing is compiled. Example: [bold]relaxd inspect m.onnx --dim batch=1:64[/]
    """
    request = declare.read_request(
        dims=dim, inputs=input, consts=const, shapes=shape, operators=operators
    )
    require_model(model)
    with stderr().status("inspecting"):
        if server:
            from relaxd.client import Client

            with Client(server, token=token) as client:
                report = client.examine(model, request)
        else:
            report = _inspect_here(model, request)
    if json:
        print_json(report)
        return
    for line in _headline(report):
        stdout().print(Text(line))
    stdout().print(render_report(_for_people(report, every_node=nodes)))
    if report.get("supported"):
        declared = {"--input": input, "--const": const, "--shape": shape, "--dim": dim}
        declared["--operators"] = [str(operators)] if operators else None
        service = ["--server", server] if server else []
        words = [*_next(model, report, declared, request.dim_table), *service]
        stdout().print(Text(f"\nnext: {shlex.join(words)}"))
        if not nodes:
            stdout().print(Text("every node with its shapes: --nodes"))


def _inspect_here(model: Path, request: CompileRequest) -> dict[str, Any]:
    """The report of the compiler that is installed; a `.pt2` file takes only its reader."""
    archives = extras.load("compiler.ir.files.torch_archives", extra="compiler")
    if archives.is_exported(model):
        report = extras.load("compiler.ir", extra="compiler").inspect_exported(model, request)
    else:
        api = extras.load("compiler.api", extra="compiler")
        report = api.inspect_request(model, request)
    assert isinstance(report, dict)
    return report


def _headline(report: dict[str, Any]) -> Iterator[str]:
    """Say whether the model can be compiled, and else what stops it."""
    if "supported" not in report:
        return
    nodes = report.get("nodes", [])
    refused = sum(not node["supported"] for node in nodes)
    if report["supported"]:
        yield "supported: yes" + (f", {len(nodes)} of {len(nodes)} nodes" if nodes else "")
    elif refused:
        yield f"supported: no, {refused} of {len(nodes)} nodes cannot be compiled"
    else:
        yield "supported: not as declared, though every operator is known"
    if error := report.get("error"):
        yield f"error: {error['message']}"
        if hint := error.get("hint"):
            yield f" hint: {hint}"


def _for_people(report: dict[str, Any], *, every_node: bool) -> dict[str, Any]:
    """The rest of the report, with the nodes that cannot be compiled, or with all but constants,
    which are counted among the operators.
    """
    rest = {key: value for key, value in report.items() if key not in ("supported", "error")}
    if "nodes" in rest:
        rest["nodes"] = [
            node
            for node in rest["nodes"]
            if not node["supported"] or (every_node and node["op"] != "Constant")
        ]
    return rest


def _next(
    model: Path,
    report: dict[str, Any],
    declared: dict[str, list[str] | None],
    dims: Container[str],
) -> Iterator[str]:
    """The words of the command that compiles the model as declared, other than the declared dims
    with a range for example.
    """
    yield from ("relaxd", "compile", str(model))
    for option, texts in declared.items():
        for text in texts or []:
            yield from (option, text)
    for name, dim in report.get("dims", {}).items():
        if dim.get("max") is None and name not in dims:
            yield from ("--dim", f"{option_name(name)}={_SUGGESTED}")
    yield from ("-o", "out")
