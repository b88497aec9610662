"""The class of all commands: turns typed errors into a short message and an exit code."""

import errno
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from relaxd.cli.console import Exit, error_document, exit_code, print_json, render_error, stderr
from relaxd.client.errors import FileTrouble
from relaxd.errors import RelaxdError

# The base of all mistakes on a command line; typer offers it under no name of its own.
_UsageError: Any = typer.BadParameter.__base__

Json = Annotated[bool, typer.Option("--json", help="Print one JSON document on standard output.")]


_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_REFUSED = (
    errno.EACCES,
    errno.EPERM,
    errno.EROFS,
    errno.ENOENT,
    errno.ENOTDIR,
    errno.EISDIR,
    errno.EEXIST,
    errno.ENAMETOOLONG,
    errno.ELOOP,
)


def _trouble_of(error: OSError) -> FileTrouble | None:
    """The typed error for a path that the system refuses, or a full disk; None for any other."""
    path = f": {error.filename}" if error.filename else ""
    if error.errno in _FULL:
        hint = "free some space, or give another folder; TMPDIR is that of temporary files"
        return FileTrouble(f"the disk is full{path} ({error.strerror})", hint=hint)
    if error.errno in _REFUSED and path:
        hint = "give a path that exists and may be written"
        return FileTrouble(f"cannot use the path {error.filename}: {error.strerror}", hint=hint)
    return None


class Command(TyperCommand):
    """A command that ends with the exit code of the RelaxdError it raises; `--json` makes the error
    a document too.
    """

    def make_context(self, info_name: str | None, args: list[str], *rest: Any, **more: Any) -> Any:
        """Read the command's arguments; with `--json`, a mistake among them is a document too."""
        wants_json = "--json" in args
        try:
            return super().make_context(info_name, args, *rest, **more)
        except _UsageError as error:
            if wants_json:
                mistake = {"code": "request.invalid", "message": error.format_message()}
                print_json({"error": {**mistake, "hint": f"relaxd {info_name} --help"}})
                raise typer.Exit(Exit.USAGE) from None
            raise

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except RelaxdError as error:
            raise self._end(ctx, error) from None
        except OSError as error:
            if (trouble := _trouble_of(error)) is None:
                raise
            raise self._end(ctx, trouble) from None

    def _end(self, ctx: Any, error: RelaxdError) -> typer.Exit:
        """Print the error; the end of the command."""
        if self._wants_json(ctx):
            print_json({"error": error_document(error)})
        else:
            stderr().print(render_error(error))
        return typer.Exit(exit_code(error))

    def _wants_json(self, ctx: Any) -> bool:
        return any(
            "--json" in parameter.opts and bool(ctx.params.get(parameter.name or ""))
            for parameter in self.params
        )
