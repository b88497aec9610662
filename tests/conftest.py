"""Of every test: files with slow ones come first, drawn examples have no deadline, and torch stays
out of this process, since tvm_ffi imports it wherever it is installed.
"""

import sys

import pytest
from hypothesis import settings

# Three seconds and 230 MB.
sys.modules.setdefault("torch", None)  # type: ignore[arg-type]

# On a machine that others use, how long one example took says nothing.
settings.register_profile("shared machine", deadline=None)
settings.load_profile("shared machine")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Of processes that share the files, none is left alone with a slow one at the end."""
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow)
