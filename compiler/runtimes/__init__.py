"""TVM's runtime for platforms other than this one: taken from its wheels ahead of time, found here
by builds.
"""

import sys
from importlib import metadata
from pathlib import Path

from compiler.errors import LinkError
from compiler.runtimes.pins import PINS, Pin
from compiler.targets.target import Platform

COMMAND = "python -m compiler.runtimes fetch"


def folder() -> Path:
    """Where fetched runtimes lie: in the environment of the Python that runs."""
    return Path(sys.prefix) / "share" / "relaxd" / "runtimes"


def directory(pin: Pin) -> Path:
    """The folder of one platform's runtime at this compiler's version; it may not exist."""
    return folder() / metadata.version("apache-tvm") / pin.name


def pin_of(platform: Platform) -> Pin | None:
    """The pin for the platform, None for the compiler's own and for those without a wheel."""
    return next((pin for pin in PINS if (pin.os, pin.arch) == (platform.os, platform.arch)), None)


def present(platform: Platform) -> bool:
    """True if a bundle for the platform can be completed here."""
    pin = pin_of(platform)
    return pin is None or all((directory(pin) / name).is_file() for name in pin.libraries)


def find(platform: Platform) -> Path:
    """The folder with the platform's runtime libraries; raises LinkError naming the command that
    fetches them.
    """
    pin = pin_of(platform)
    if pin is None:
        raise LinkError(
            f"TVM has no runtime wheel for {platform.os} on {platform.arch}",
            reason="runtime_missing",
        )
    if not present(platform):
        raise LinkError(
            f"the TVM runtime for {pin.name} is not in this environment",
            reason="runtime_missing",
            hint=f"run `{COMMAND} {pin.name}` once in the worker's environment",
            runtime=pin.name,
        )
    return directory(pin)
