"""The vector units of the registry's processors, with this machine's instructions: kernels are
scheduled for another processor's vectors and registers, and LLVM splits vectors that are too wide.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from unittest import mock

from compiler import targets
from compiler.build import build
from compiler.isolation.messages import CompileJob
from compiler.targets import Target
from compiler.targets.vector_unit import VectorUnit
from tests.vector_unit.hook import GEOMETRIES, at_geometry

NATIVE = "native"
NAMES = (*GEOMETRIES, NATIVE)
_VARIABLE = "RELAXD_GEOMETRY"


def geometry(name: str) -> Target:
    """This machine's instructions, scheduled for the vectors and registers of another processor;
    `native` is this machine as it is.
    """
    native = targets.resolve(NATIVE)
    return native if name == NATIVE else at_geometry(native, name)


def host() -> Target:
    """The target of tests: this machine, or the geometry that `make geometry` asks for."""
    return geometry(os.environ.get(_VARIABLE, NATIVE))


def has_int8() -> bool:
    """Tell whether the target of tests has instructions for matmuls of int8: builds without them
    multiply the integers as floats.
    """
    return bool(VectorUnit.of(host()).integer_dots)


@contextmanager
def builds_for(name: str, llvm: int = 3) -> Iterator[None]:
    """Builds for `native` in this process are for the geometry, optimised by LLVM at the level."""
    wanted, resolve = geometry(name), targets.resolve
    if llvm != 3:
        wanted = replace(wanted, llvm=(*wanted.llvm, ("opt-level", llvm)))
    with mock.patch.object(
        targets, "resolve", lambda asked: wanted if asked == NATIVE else resolve(asked)
    ):
        yield


def build_at(job: CompileJob) -> None:
    """Builds in this process for a target of the registry, or for this machine at a geometry."""
    if job.target not in GEOMETRIES:
        build(job)
        return
    with builds_for(job.target):
        build(replace(job, target=NATIVE))
