"""`relaxd inspect`: a model's inputs and dims, and which of its operators can be compiled."""

from typing import Any

from relaxd.cli import declarations as declare
from relaxd.cli.command import Json
from relaxd.cli.console import print_json, stderr, stdout
from relaxd.cli.report import render_report
from relaxd.client import Client, extras
from relaxd.contract.model_folder import require_model


def inspect_command(
    model: declare.ModelPath,
    dim: declare.Dims = None,
    input: declare.Inputs = None,
    const: declare.Consts = None,
    shape: declare.Shapes = None,
    server: declare.Server = None,
    token: declare.Token = None,
    json: Json = False,
) -> None:
    """Show MODEL's inputs, dims and operators, supported or not and why.

    Nothing is compiled. Example: [bold]relaxd inspect m.onnx --dim batch=1:64[/]
    """
    request = declare.read_request(dims=dim, inputs=input, consts=const, shapes=shape)
    require_model(model)
    with stderr().status("inspecting"):
        if server:
            with Client(server, token=token) as client:
                report = client.examine(model, request)
        else:
            api = extras.load("compiler.api", extra="compiler")
            report = api.inspect_request(model, request)
    if json:
        print_json(report)
    else:
        stdout().print(render_report(_without_constants(report)))


def _without_constants(report: dict[str, Any]) -> dict[str, Any]:
    """The report for people: nodes that are constants and can be compiled are counted among the
    operators, which is all that they tell.
    """
    nodes = [
        node
        for node in report.get("nodes", [])
        if not (node.get("op") == "Constant" and node.get("supported"))
    ]
    return {**report, "nodes": nodes} if "nodes" in report else report
