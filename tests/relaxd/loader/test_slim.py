import json
import subprocess
import venv
from importlib import metadata
from pathlib import Path

import pytest

import relaxd

HEAVY = ("tvm", "torch", "onnx", "httpx", "typer", "rich", "pydantic")
CODE = """
import json, re, sys
import numpy as np
import relaxd

model = relaxd.load(sys.argv[1])
x, wide = np.ones((3, 4), "float32"), np.ones((3, 8), "float32")
y = model.run({"x": x, "wide": wide, "scale": np.float32(2)})["y"]
heavy = sorted(name for name in sys.modules if name in %r)
peak = re.search(r"VmHWM:\\s+(\\d+) kB", open("/proc/self/status").read())
print(json.dumps({"y": y.tolist(), "heavy": heavy, "megabytes": int(peak[1]) >> 10}))
"""


@pytest.fixture(scope="module")
def slim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment that holds numpy, apache-tvm-ffi (with its one requirement) and
    relaxd, and no more.
    """
    root = tmp_path_factory.mktemp("slim")
    venv.create(root, symlinks=True)
    (packages,) = root.glob("lib/python*/site-packages")
    for name in ("numpy", "apache-tvm-ffi", "typing-extensions"):
        files = metadata.files(name) or []
        for top in {file.parts[0] for file in files} - {".."}:
            if top != "__pycache__":
                (packages / top).symlink_to(str(metadata.distribution(name).locate_file(top)))
    (packages / "relaxd").symlink_to(Path(relaxd.__file__).parent)
    return root / "bin" / "python"


def test_a_bundle_runs_on_numpy_and_tvm_ffi_alone(slim, bundles, tmp_path):
    done = subprocess.run(
        [slim, "-I", "-c", CODE % (HEAVY,), bundles / "dims"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["y"] == [[4] * 4] * 3
    assert report["heavy"] == []
    assert report["megabytes"] < 150


def test_bytes_come_and_go_without_ml_dtypes(slim, bundles, tmp_path):
    code = (
        "import json, sys, numpy as np, relaxd\n"
        "model = relaxd.load(sys.argv[1])\n"
        "held = {'int4': 'int8', 'int2': 'int8'}\n"
        "x = {s.name: np.array([1, 0], held.get(s.dtype, 'uint8')) for s in model.inputs}\n"
        "y = model.run(x)\n"
        "print(json.dumps([sorted({a.dtype.name for a in y.values()}), y['y_int4'].tolist(),"
        " 'ml_dtypes' in sys.modules]))"
    )
    done = subprocess.run(
        [slim, "-I", "-c", code, bundles / "narrow"], capture_output=True, text=True, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [["int8", "uint8"], [1, 0], False]


def test_the_environment_has_nothing_heavier(slim):
    code = (
        f"import importlib.util, json; print(json.dumps([n for n in {HEAVY!r} if "
        "importlib.util.find_spec(n)]))"
    )
    done = subprocess.run([slim, "-I", "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == []
