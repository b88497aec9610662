"""Builds of tiny models, for tests."""

import json
from pathlib import Path
from typing import Any

import pytest

import compiler
from compiler.errors import CompileError
from relaxd.contract.bundle.manifest import Manifest
from relaxd.contract.options import CompileOptions
from tests.compiler.graphs import add_and_divide

QUICK = CompileOptions(verify=False, profile=False)


DIMS = {"batch": (1, 8)}


def build(output: Path, model: Any = None, **settings: Any) -> Manifest:
    return compiler.compile_model(
        model or add_and_divide(), output=output, **{"dims": DIMS, **settings}
    )


def failing(
    output: Path, kind: type[CompileError], model: Any = None, **settings: Any
) -> CompileError:
    with pytest.raises(kind) as caught:
        build(output, model, **settings)
    assert not output.exists()
    assert list(output.parent.glob(".*partial")) == []
    return caught.value


def report(output: Path, name: str) -> Any:
    return json.loads((output / name).read_text())
