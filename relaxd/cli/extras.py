"""Parts of relaxd that an installation may lack."""

from importlib import import_module
from types import ModuleType

from relaxd.errors import RelaxdError

OWN = frozenset({"relaxd", "service", "compiler", "artifacts"})


class ExtraMissing(RelaxdError):
    """The command needs packages that are not installed."""

    code = "cli.extra_missing"


def load(module: str, *, extra: str) -> ModuleType:
    """Import a module of the server or the compiler; raises ExtraMissing naming what to install."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        absent = (error.name or module).partition(".")[0]
        if absent in OWN and absent != module.partition(".")[0]:
            raise
        raise ExtraMissing(
            f"this needs {absent}, which is not installed", hint=f"pip install 'relaxd[{extra}]'"
        ) from error
