"""Puts other platforms' runtimes into this environment: `fetch [NAME...]` from wheels, `build TARGET...` from sources."""

import argparse

from compiler import targets
from compiler.runtimes import archives
from compiler.runtimes.fetch import fetch
from compiler.runtimes.pins import PINS
from compiler.targets import Runtime


def main() -> None:
    """Reads the command line and does it."""
    parser = argparse.ArgumentParser(prog="python -m compiler.runtimes", description=__doc__)
    parser.add_argument("command", choices=["fetch", "build"])
    parser.add_argument("names", nargs="*", metavar="NAME", help="platforms to fetch for, or targets to build for")
    arguments = parser.parse_args()
    pins = {pin.name: pin for pin in PINS}
    linked = {target.name: target for target in targets.registry() if target.platform.runtime is Runtime.LINKED and target.emulator}
    known = pins if arguments.command == "fetch" else linked
    if unknown := sorted(set(arguments.names) - known.keys()):
        parser.error(f"unknown name {', '.join(unknown)}: one of {', '.join(known)}")
    for name in arguments.names or known:
        path = fetch(pins[name]) if arguments.command == "fetch" else archives.build(linked[name])
        print(f"{name}: {path}", flush=True)


if __name__ == "__main__":
    main()
