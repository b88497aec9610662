"""The names of `import relaxd`, and that it imports nothing until it is used."""

import subprocess
import sys
from pathlib import Path

import relaxd


def test_every_name_is_there() -> None:
    assert set(relaxd.__all__) <= set(dir(relaxd))
    for name in relaxd.__all__:
        assert getattr(relaxd, name) is not None
    assert relaxd.__version__.count(".") >= 1
    assert (Path(relaxd.__file__).parent / "py.typed").exists()


def test_nothing_is_imported_before_its_use() -> None:
    heavy = "[name for name in ('httpx', 'numpy') if name in sys.modules]"
    code = f"import sys, relaxd; dir(relaxd); print({heavy})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
