"""`python -m compiler.runtimes fetch [NAME...]`: puts other platforms' runtimes into this environment, all of them by default."""

import argparse

from compiler.runtimes.fetch import fetch
from compiler.runtimes.pins import PINS


def main() -> None:
    """Reads the command line and fetches."""
    parser = argparse.ArgumentParser(prog="python -m compiler.runtimes", description=__doc__)
    parser.add_argument("command", choices=["fetch"])
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(pin.name for pin in PINS))
    arguments = parser.parse_args()
    known = {pin.name: pin for pin in PINS}
    if unknown := sorted(set(arguments.names) - known.keys()):
        parser.error(f"unknown platform {', '.join(unknown)}: one of {', '.join(known)}")
    for name in arguments.names or known:
        print(f"{name}: {fetch(known[name])}", flush=True)


if __name__ == "__main__":
    main()
