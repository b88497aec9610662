"""`python -m tests.vector_unit 256/16 -n 3 tests/compiler`: runs pytest with these arguments, every
build for `native` as on a processor of that vector unit.

Compile processes inherit no variables, so a file in the environment's site-packages tells all of
its processes, for as long as this one holds a lock on the file.
"""

import fcntl
import subprocess
import sys
import sysconfig
from pathlib import Path

from tests.vector_unit.hook import GEOMETRIES

_HOOK = Path(sysconfig.get_path("purelib")) / "relaxd_vector_unit.pth"
_LINE = (
    "import sys; sys.path.insert(0, {folder!r}); import hook; sys.path.pop(0); "
    "hook.install({name!r}, {lock!r})\n"
)


def main() -> int:
    """Run pytest and return its exit status; 2 where the first argument names no vector unit, or
    another run uses the environment.
    """
    name, *arguments = sys.argv[1:] or [""]
    if name not in GEOMETRIES:
        print(f"vector unit {name!r}: one of {', '.join(GEOMETRIES)}", file=sys.stderr)
        return 2
    with _HOOK.open("a", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"another run uses {_HOOK}: wait for its end", file=sys.stderr)
            return 2
        folder = str(Path(__file__).parent)
        _HOOK.write_text(_LINE.format(folder=folder, name=name, lock=str(_HOOK)))
        try:
            return subprocess.call([sys.executable, "-m", "pytest", *arguments])
        finally:
            _HOOK.unlink()


if __name__ == "__main__":
    sys.exit(main())
