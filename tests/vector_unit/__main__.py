"""`python -m tests.vector_unit 256/16 -n 3 tests/compiler`: runs pytest with these arguments, every
build for `native` as on a processor of that vector unit.

Only one such run, and nothing else, can use the environment at a time: a file in its site-packages
tells all of its processes.
"""

import subprocess
import sys
import sysconfig
from pathlib import Path

from tests.vector_unit.hook import GEOMETRIES

_HOOK = Path(sysconfig.get_path("purelib")) / "relaxd_vector_unit.pth"
_LINE = "import sys; sys.path.insert(0, {folder!r}); import hook; hook.install({name!r})\n"


def main() -> int:
    """pytest's exit status; 2 where the first argument names no vector unit."""
    name, *arguments = sys.argv[1:] or [""]
    if name not in GEOMETRIES:
        print(f"vector unit {name!r}: one of {', '.join(GEOMETRIES)}", file=sys.stderr)
        return 2
    _HOOK.write_text(_LINE.format(folder=str(Path(__file__).parent), name=name))
    try:
        return subprocess.call([sys.executable, "-m", "pytest", *arguments])
    finally:
        _HOOK.unlink()


if __name__ == "__main__":
    sys.exit(main())
