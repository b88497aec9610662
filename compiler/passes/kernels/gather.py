"""Copying what a block of rows needs of the left side into scratch memory, contiguous along the depth."""

from typing import Any

import tvm
from tvm import tirx

from compiler.passes.kernels.contract import Contraction
from compiler.passes.kernels.nest import vectorizable
from compiler.passes.machine import Machine
from compiler.passes.tir.exprs import Expr, as_int, const, substitute, uses
from compiler.passes.tir.loops import Stmt, product, seq, serial, store, strips, unfuse, when
