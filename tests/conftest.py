"""Fixtures of all tests: files with slow ones come first, drawn examples have no deadline, and
torch stays out of this process, since tvm_ffi imports it wherever it is installed.
"""

import gc
import inspect
import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest
from hypothesis import settings

from compiler.isolation import garbage, zygote

if TYPE_CHECKING:
    from tests.support.s3 import ObjectServer

# Three seconds and 230 MB.
sys.modules.setdefault("torch", None)

# TVM's script decorators ask for the source of every frame of the stack. Where no file has a frame,
# as those that pytest and its workers begin with, Python looks through all modules each time.
inspect.modulesbyfile |= dict.fromkeys(("<frozen runpy>", "<string>"), "__main__")

# As in a compile process; here the tests and all that they import would be looked through.
garbage.collect_seldom()

# Builds compare at all points, whichever tests have built equal code before.
os.environ.setdefault("RELAXD_VERIFY_AGAIN", "true")

# On a machine that others use, how long one example took says nothing. A gate draws the same
# examples for every change.
settings.register_profile(
    "shared machine", deadline=None, derandomize="RELAXD_REQUIRE_SERVERS" in os.environ
)
settings.load_profile("shared machine")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sort files so that no process is left alone with a slow one at the end."""
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow)


def pytest_collection_finish() -> None:
    """Keep helper processes from the first test to the last."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def _zygote() -> Iterator[None]:
    """Compile processes of the tests are forked from one that has imported TVM, as a worker's."""
    with zygote.keep_zygote():
        yield


@pytest.fixture(scope="session")
def object_server() -> "Iterator[ObjectServer]":
    """One S3 server for all tests of this process."""
    from tests.support.s3 import s3_server  # loads an S3 client, which few tests need

    with s3_server() as server:
        yield server


@pytest.fixture
def s3_url(object_server: "ObjectServer", monkeypatch: pytest.MonkeyPatch) -> str:
    """URL of an empty store on the S3 server, which the environment says how to reach."""
    for name, value in object_server.environment.items():
        monkeypatch.setenv(name, value)
    return f"s3://relaxd/{uuid4().hex}"
