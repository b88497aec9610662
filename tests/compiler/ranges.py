"""Dims of a test's module, by its variables."""

import tvm
from tvm import relax

from compiler.ir.imported import Ranges
from relaxd.contract.dims.dims import Dim


def ranges_of(module: tvm.IRModule, *dims: Dim) -> Ranges:
    """The dims by the variables of those names in the parameters of `main`."""
    named = {dim.name: dim for dim in dims}
    variables = {
        variable
        for parameter in module["main"].params
        for variable in relax.analysis.definable_tir_vars_in_type(parameter.ty)
    }
    return {variable: named[variable.name] for variable in variables if variable.name in named}
