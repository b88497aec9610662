"""Runs the pods of the Kubernetes manifests on one machine, as root on Debian, from images that are
built here: by podman, and by Kubernetes itself. Without options, in each form for which the
machine has the packages.
"""

import argparse
import os
import sys
import tempfile
from pathlib import Path

from tools.cluster.entering import enter
from tools.cluster.forms import FORMS, IMAGES
from tools.images.building import Builder
from tools.images.compose import ROOT
from tools.kubernetes.checking import mistakes

_INSIDE = "RELAXD_CLUSTER_INSIDE"
"""The folder of a run, for the process that has namespaces of its own."""


def main() -> int:
    """Exit status 0 if every step holds in every form that was run."""
    parser = argparse.ArgumentParser(prog="python -m tools.cluster", description=__doc__)
    only = parser.add_mutually_exclusive_group()
    for name in FORMS:
        only.add_argument(f"--{name}", dest="form", action="store_const", const=name)
    parser.add_argument("--folder", type=Path, default=ROOT / ".cache/images", help="of images")
    parser.add_argument("--no-build", action="store_true", help="run the images of the last time")
    arguments = parser.parse_args()
    if folder := os.environ.get(_INSIDE):
        FORMS[arguments.form].run(arguments.folder, Path(folder))
        return 0
    names = _choose(arguments.form)
    if not arguments.no_build:
        _build(arguments.folder)
    failed = [name for name in names if not _run(name, arguments.folder)]
    print("\n".join(f"by {name}: {'FAILED' if name in failed else 'passed'}" for name in names))
    return 1 if failed else 0


def _choose(asked: str | None) -> list[str]:
    """The form that was asked for, or each that the machine allows; says what another one lacks."""
    if os.geteuid() != 0:
        raise SystemExit("pods need root: mounts, networks, users")
    if wrong := list(mistakes()):
        raise SystemExit("\n".join(wrong))
    chosen = []
    for name in [asked] if asked else FORMS:
        if missing := FORMS[name].missing():
            install = f"apt-get install --no-install-recommends {' '.join(missing)}"
            print(f"not by {name}, which needs packages: {install}")
        else:
            chosen.append(name)
    if not chosen:
        raise SystemExit(1)
    return chosen


def _build(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    builder = Builder(folder)
    builder.base()
    for image, dockerfile in IMAGES.items():
        builder.build(dockerfile, image)


def _run(name: str, images: Path) -> bool:
    """Run a form in namespaces of its own; true if every step held. It prints what it shows."""
    print(f"the manifests' pods by {name}:")
    # Not in /tmp, which may be memory: it holds the images' files.
    with tempfile.TemporaryDirectory(prefix="relaxd-cluster-", dir=images.parent) as folder:
        FORMS[name].prepare(images, Path(folder))
        command = [sys.executable, "-m", "tools.cluster", f"--{name}", "--folder", str(images)]
        if enter(command, Path(folder), {**os.environ, _INSIDE: folder}):
            return False
    print(FORMS[name].shown)
    return True


if __name__ == "__main__":
    sys.exit(main())
