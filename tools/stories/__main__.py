"""Builds the wheels, installs them as the tutorials say, and follows each tutorial:
`python -m tools.stories`.
"""

import argparse
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from tests.docs.blocks import ROOT, Command, blocks_of
from tests.docs.models import lay_out
from tools import dist
from tools.stories.environments import Environment, serve
from tools.stories.telling import Stumble, Teller, Write

FOLDER = ROOT / "docs" / "tutorials"


def main() -> int:
    """Exit status 0 if every tutorial does what it says, 1 otherwise."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--transcript", type=Path, help="write down here what a reader sees")
    arguments = parser.parse_args()
    with ExitStack() as stack:
        written = (
            stack.enter_context(arguments.transcript.open("w")) if arguments.transcript else None
        )

        def write(text: str) -> None:
            for out in filter(None, (sys.stdout, written)):
                print(text, file=out, flush=True)

        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="relaxd-stories-")))
        try:
            _tell_all(scratch, stack, write)
        except Stumble as problem:
            print(f"error: {problem}", file=sys.stderr)
            return 1
    return 0


def _tell_all(scratch: Path, stack: ExitStack, write: Write) -> None:
    """One environment compiles, and later serves; the other is that of a program that only loads
    bundles.
    """
    wheels = dist.build(scratch / "wheels")
    write("\n".join(f"# built {wheel.name}" for wheel in wheels))
    relaxd, server = wheels
    compiling, slim = (
        Environment.fresh(scratch / name, scratch / "wheels") for name in ("compiling", "serving")
    )
    _install(compiling, f"'{relaxd}[compiler]' {server}", scratch, write)
    _install(slim, str(relaxd), scratch, write)
    for page in ("onnx-file", "pull-requests"):
        _tell(page, Teller(scratch / page, compiling, slim, "", write))
    _install(compiling, f"'{relaxd}[server]' {server}", scratch, write)
    (scratch / "service").mkdir()
    url = stack.enter_context(serve(compiling, scratch / "service"))
    _tell("by-digest", Teller(scratch / "by-digest", slim, slim, url, write))


def _install(environment: Environment, what: str, folder: Path, write: Write) -> None:
    """Install as the tutorials say."""
    write(f"# the environment {environment.folder.name!r}")
    teller = Teller(folder, environment, environment, "", write)
    teller.run(Command(f"pip install {what}"), 0, environment)


def _tell(name: str, teller: Teller) -> None:
    teller.folder.mkdir()
    lay_out(teller.folder)
    teller.write(f"\n# docs/tutorials/{name}.md\n")
    for block in blocks_of(FOLDER / f"{name}.md"):
        teller.tell(block)


if __name__ == "__main__":
    sys.exit(main())
