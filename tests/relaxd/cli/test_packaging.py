"""`relaxd package`: folders that MLflow and KitOps take."""

import importlib
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import yaml

from relaxd.errors import InputError

X, WIDE = np.ones((2, 4), np.float32), np.ones((2, 8), np.float32)
INPUTS = {"x": X, "wide": WIDE, "scale": np.array(3, np.float32)}


@pytest.fixture
def bundle(bundles: Path) -> Path:
    return bundles / "dims"


def test_an_mlflow_model_loads_by_its_flavor(relaxd: Any, bundle: Path) -> None:
    wheel = "https://wheels.example/relaxd-0.1.0-py3-none-any.whl"
    ended = relaxd("package", str(bundle), "--as", "mlflow", "-o", "model", "--package", wheel)
    assert (ended.code, ended.out) == (
        0,
        "model: MLmodel, python_env.yaml, requirements.txt and bundle/\n",
    )
    document = yaml.safe_load(Path("model/MLmodel").read_text())
    flavor = document["flavors"]["python_function"]
    # What MLflow does to load it.
    module = importlib.import_module(flavor["loader_module"])
    model = module._load_pyfunc(str(Path("model", flavor["data"])))
    assert model.predict(INPUTS)["y"].tolist() == [[6.0] * 4] * 2
    assert Path("model/requirements.txt").read_text() == f"relaxd @ {wheel}\n"
    inputs = json.loads(document["signature"]["inputs"])
    assert inputs[0] == {
        "name": "x",
        "type": "tensor",
        "tensor-spec": {"dtype": "float32", "shape": [-1, -1]},
    }
    assert json.loads(document["signature"]["outputs"])[0]["name"] == "y"
    env = yaml.safe_load(Path("model", flavor["env"]["virtualenv"]).read_text())
    assert env["dependencies"] == ["-r requirements.txt"]


def test_tables_and_single_arrays(bundles: Path) -> None:
    from relaxd.loader.pyfunc import _load_pyfunc

    twice = _load_pyfunc(str(bundles / "twice"))
    assert twice.predict(np.array([1, 2], np.float32))["y"].tolist() == [2.0, 4.0]
    column = SimpleNamespace(tolist=lambda: [1.5, 2.5])

    class Table(dict[str, Any]):
        columns = ("x", "an index")

    assert twice.predict(Table(x=column))["y"].tolist() == [3.0, 5.0]
    with pytest.raises(InputError, match="an array has no name"):
        _load_pyfunc(str(bundles / "dims")).predict(X)


def test_a_kitfile_names_the_bundle_beside_it(relaxd: Any, bundle: Path) -> None:
    ended = relaxd("package", str(bundle), "--as", "kitops", "-o", "kit", "--json")
    assert ended.json == {"output": "kit", "layout": "kitops", "files": ["Kitfile"]}
    document = yaml.safe_load(Path("kit/Kitfile").read_text())
    assert document["manifestVersion"] == "1.0.0"
    model = document["model"]
    assert Path("kit", model["path"], "manifest.json").is_file()
    assert model["parameters"]["inputs"]["wide"].startswith("float32[")
    # Kit refuses keys that it does not know.
    assert document.keys() == {"manifestVersion", "package", "model"}
    assert model.keys() <= {"name", "path", "framework", "version", "description", "parameters"}


def test_other_files_stay(relaxd: Any, bundle: Path) -> None:
    Path("full").mkdir()
    Path("full/notes.txt").write_text("mine")
    ended = relaxd("package", str(bundle), "--as", "mlflow", "-o", "full")
    assert (ended.code, "already holds other files" in ended.err) == (2, True)
    assert [path.name for path in Path("full").iterdir()] == ["notes.txt"]
