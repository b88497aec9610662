"""Parts of relaxd that an installation may lack."""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType

from relaxd.errors import RelaxdError, install_hint

RUNTIME = frozenset({"numpy", "tvm_ffi"})
"""What running a bundle takes; the images of the API have neither."""

OWN = frozenset({"relaxd", "service", "compiler", "artifacts"})


class ExtraMissing(RelaxdError):
    """The command needs packages that are not installed."""

    code = "cli.extra_missing"


def load(module: str, *, extra: str) -> ModuleType:
    """Import a module of the server or the compiler; raises ExtraMissing naming what to install,
    also where the two wheels are of different versions.
    """
    _check_versions(extra)
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        absent = (error.name or module).partition(".")[0]
        if absent in OWN and absent != module.partition(".")[0]:
            raise
        raise ExtraMissing(
            f"this needs {absent}, which is not installed", hint=install_hint(extra)
        ) from error


def _check_versions(extra: str) -> None:
    """No wheel requires the other by its name, so pip compares no versions."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        own, server = version("relaxd"), version("relaxd-server")
    except PackageNotFoundError:
        return  # not installed as wheels, or to be named by what is imported
    if own != server:
        raise ExtraMissing(f"relaxd is {own}, and relaxd-server {server}", hint=install_hint(extra))


@contextmanager
def runtime() -> Iterator[None]:
    """Around imports and calls that run a bundle; raises ExtraMissing where what that takes is not
    installed.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        absent = (error.name or "").partition(".")[0]
        if absent not in RUNTIME:
            raise
        package = "apache-tvm-ffi" if absent == "tvm_ffi" else absent
        raise ExtraMissing(
            f"running a bundle needs {package}, which is not installed",
            hint="run it where relaxd's wheel was installed with its dependencies: the API's image "
            "runs no bundles",
        ) from error
