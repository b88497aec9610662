"""The class of all commands: turns typed errors into a short message and an exit code."""

from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from relaxd.cli.console import error_document, exit_code, print_json, render_error, stderr
from relaxd.errors import RelaxdError

Json = Annotated[bool, typer.Option("--json", help="Print one JSON document on standard output.")]


class Command(TyperCommand):
    """A command that ends with the exit code of the RelaxdError it raises; `--json` makes the error
    a document too.
    """

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except RelaxdError as error:
            if self._wants_json(ctx):
                print_json({"error": error_document(error)})
            else:
                stderr().print(render_error(error))
            raise typer.Exit(exit_code(error)) from None

    def _wants_json(self, ctx: Any) -> bool:
        return any(
            "--json" in parameter.opts and bool(ctx.params.get(parameter.name or ""))
            for parameter in self.params
        )
