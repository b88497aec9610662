"""Prepares this environment for other platforms: `fetch` runtimes from wheels, `build` them from
sources, `warm` the linker, fetch OpenCL's `driver` from Debian's packages.
"""

import argparse
from collections.abc import Callable
from functools import partial

from compiler import targets
from compiler.runtimes import archives, drivers, linking
from compiler.runtimes.fetch import fetch
from compiler.runtimes.pins import PINS
from compiler.targets import Runtime, Target

Steps = dict[str, Callable[[], object]]


def main() -> None:
    """Reads the command line and does it."""
    commands = {"fetch": _fetching, "build": _building, "warm": _warming, "driver": _driving}
    parser = argparse.ArgumentParser(prog="python -m compiler.runtimes", description=__doc__)
    parser.add_argument("command", choices=commands)
    parser.add_argument(
        "names",
        nargs="*",
        metavar="NAME",
        help="platforms to fetch for, targets to build or warm for, or processors whose driver to "
        "fetch; all by default",
    )
    arguments = parser.parse_args()
    steps = commands[arguments.command]()
    if unknown := sorted(set(arguments.names) - steps.keys()):
        parser.error(f"unknown name {', '.join(unknown)}: one of {', '.join(steps)}")
    for name in arguments.names or steps:
        print(f"{name}: {steps[name]() or 'ready'}", flush=True)


def _fetching() -> Steps:
    return {pin.name: partial(fetch, pin) for pin in PINS}


def _building() -> Steps:
    return {
        target.name: partial(archives.build, target)
        for target in _of(Runtime.LINKED)
        if target.emulator and not target.platform.unseen
    }


def _warming() -> Steps:
    return {target.name: partial(linking.warm_up, target) for target in _of(Runtime.BUNDLED)}


def _driving() -> Steps:
    return {arch: partial(drivers.fetch, arch) for arch in drivers.architectures()}


def _of(runtime: Runtime) -> list[Target]:
    return [
        target
        for target in targets.registry()
        if target.platform.runtime is runtime and target.device is None
    ]


if __name__ == "__main__":
    main()
