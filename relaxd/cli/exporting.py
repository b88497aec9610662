"""`relaxd export`: a module of torch as a file with its dims, on the user's machine."""

import shlex
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from relaxd.cli import declarations as declare
from relaxd.cli.command import Json
from relaxd.cli.console import print_json, stderr, stdout

Target = Annotated[
    str,
    typer.Argument(
        metavar="MODULE:FUNCTION",
        help="What makes the module, as package.net:make or net.py:Net: a class or function "
        "without arguments that gives an nn.Module or (module, example inputs), or a module.",
        show_default=False,
    ),
]
Output = Annotated[
    Path,
    typer.Option("-o", "--output", metavar="FILE", help="The file to write, such as m.pt2."),
]


def export_command(
    target: Target,
    output: Output = Path("model.pt2"),
    dim: declare.Dims = None,
    input: declare.Inputs = None,
    json: Json = False,
) -> None:
    """Export a PyTorch module with its dims to a file that `relaxd compile` takes.

    Runs your code here, with your torch, and sends nothing. Where torch.export fixes a dim it says
    which line does, and tries what keeps it.

    Example: [bold]relaxd export net:make -o m.pt2 --dim x_0=1:64[/]
    """
    from relaxd.torch.errors import load_torch
    from relaxd.torch.exporting import export_module
    from relaxd.torch.target import load_target

    request = declare.read_request(dims=dim, inputs=input)
    with stderr().status("importing torch"):
        load_torch()
    with stderr().status(f"exporting {target}"):
        module, example = load_target(target)
        exported = export_module(module, example, request, output)
    if json:
        print_json(exported.to_json())
        return
    kind = "torch.export" if exported.form == "program" else "TorchScript"
    stdout().print(Text(f"{output}: {kind}"))
    for spec in exported.inputs:
        stdout().print(Text(f"  {spec.name}={spec.text}"))
    for one in exported.dims:
        stdout().print(Text(f"  {one.name}: {one.describe()}"))
    points = len(exported.checked)
    sizes = f"{points} {'size' if points == 1 else 'sizes'}"
    stdout().print(Text(f"checked: it gives what the module gives at {sizes}"))
    for note in exported.notes:
        stdout().print(Text(f"note: {note}"))
    for loss in exported.losses:
        stderr().print(Text(f"lost: {loss}", style="yellow"))
    stdout().print(Text(f"\nnext: {shlex.join(['relaxd', 'compile', str(output), '-o', 'out'])}"))
