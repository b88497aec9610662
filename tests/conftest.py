"""Of every test: files with slow ones come first; torch stays out of this process, since tvm_ffi
imports it wherever it is installed.
"""

import sys

import pytest

# Three seconds and 230 MB.
sys.modules.setdefault("torch", None)  # type: ignore[arg-type]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Of processes that share the files, none is left alone with a slow one at the end."""
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow)
