"""Rewrites modules to 32-bit integers for devices whose kernels have no others; the inputs and
outputs of the model keep their declared types.
"""

from dataclasses import dataclass
from typing import Any

import tvm
import tvm_ffi
from tvm import ir, relax, te, tirx

from compiler.errors import PassError
from compiler.passes.framework.base import ModulePass, Phase
from compiler.passes.gpu.narrow_kernels import STORED, check_fits, narrow_kernel

_WIDE, _NARROW = "int64", "int32"


@dataclass(frozen=True)
class Narrow(ModulePass):
    """Rewrites all integers and booleans to 32-bit integers, behind an `entry` of unchanged type.

    An int64 input is viewed as pairs of 32-bit words, of which the kernels read the low one; an
    int64 output is written as the value and its sign. A value that 32 bits do not hold gives wrong
    results.
    """

    entry: str = "main"
    name = "narrow"
    phase = Phase.TENSOR_PROGRAMS

    def apply(self, module: tvm.IRModule) -> tvm.IRModule:
        """Raises PassError for a constant that 32 bits do not hold, and for an output, or an input
        that is read, of fewer than 32 bits.
        """
        return _narrowed(module, self.entry)


def _narrowed(module: tvm.IRModule, entry: str) -> tvm.IRModule:
    main, names = module[entry], _Names(module)
    _check_interface(main)
    others = {
        names(gvar): names.rewrite(func)
        for gvar, func in module.functions.items()
        if gvar.name_hint != entry
    }
    builder = relax.BlockBuilder(tvm.IRModule(others))
    restored = _restore(builder, main, names.rewrite(main))
    items = builder.get().functions.items()
    functions = {
        gvar: narrow_kernel(func) if isinstance(func, tirx.PrimFunc) else func
        for gvar, func in items
    }
    functions[module.get_global_var(entry)] = restored
    result = tvm.IRModule(functions, attrs=module.attrs, global_infos=module.global_infos)
    return tvm.transform.Sequential(
        [relax.transform.Normalize(), relax.transform.CanonicalizeBindings()]
    )(result)


class _Names:
    """Fresh global variables of narrow types for the functions of a module."""

    def __init__(self, module: tvm.IRModule) -> None:
        self._fresh: dict[str, Any] = {}
        for gvar in module.functions:
            self._fresh[gvar.name_hint] = relax.GlobalVar(gvar.name_hint)
            relax.expr._update_type(
                self._fresh[gvar.name_hint],
                tvm_ffi.structural_map(gvar.ty, [(relax.TensorType, _type)]),
            )

    def __call__(self, gvar: ir.GlobalVar) -> ir.GlobalVar:
        return self._fresh[gvar.name_hint]

    def rewrite(self, func: ir.BaseFunc) -> ir.BaseFunc:
        if isinstance(func, tirx.PrimFunc):
            return narrow_kernel(func)
        _check_constants(func)
        return tvm_ffi.structural_map(
            func, [(ir.GlobalVar, self), (relax.TensorType, _type), (ir.GenericConst, _constant)]
        )


def _type(ty: Any) -> Any:
    dtype = STORED.get(str(ty.dtype))
    if dtype is None:
        return ty
    return (
        relax.TensorType(None, dtype, ndim=ty.ndim)
        if ty.shape is None
        else relax.TensorType(ty.shape, dtype)
    )


def _read(main: relax.Function) -> list[Any]:
    """The parameters of which something reads more than the shape."""
    free = {var.__chandle__() for var in relax.analysis.free_vars(main.body)}
    return [param for param in main.params if param.__chandle__() in free]


def _check_interface(main: relax.Function) -> None:
    results = (
        list(main.ret_ty.fields) if isinstance(main.ret_ty, relax.TupleType) else [main.ret_ty]
    )
    for what, ty in [(f"input {param.name!r}", param.ty) for param in _read(main)] + [
        ("an output", ty) for ty in results
    ]:
        if isinstance(ty, relax.TensorType) and str(ty.dtype) != _WIDE and str(ty.dtype) in STORED:
            raise PassError(
                f"{what} is of {ty.dtype}, which the target's kernels cannot read or write",
                reason="narrow_integers",
                pass_name="narrow",
                hint="have the model take and give int32, or build for another target",
            )


def _check_constants(func: ir.BaseFunc) -> None:
    """Raises before the mapping starts: an error inside TVM's mapping would lose its type."""
    constants: list[Any] = []
    tvm_ffi.structural_walk(func, (ir.GenericConst, constants.append))
    for values in (constant.value.numpy() for constant in constants if _is_wide(constant.ty)):
        if values.size:
            check_fits(int(values.min()), int(values.max()))


def _constant(constant: Any) -> Any:
    if not isinstance(constant.ty, relax.TensorType):
        return constant
    # Its type may be narrow already: it is mapped before the constant.
    dtype = STORED.get(str(constant.value.dtype))
    return relax.const(constant.value.numpy().astype(dtype), dtype) if dtype else constant


def _restore(
    builder: relax.BlockBuilder, main: relax.Function, narrowed: relax.Function
) -> relax.Function:
    """Wraps the body of `narrowed` in the parameters and results of `main`."""
    params = [relax.Var(param.name, param.ty) for param in main.params]
    before, read = _Bindings(builder), {param.__chandle__() for param in _read(narrowed)}
    for outer, inner in zip(params, narrowed.params, strict=True):
        if inner.__chandle__() in read:
            before.bind(inner, before.low_words(outer) if _is_wide(outer.ty) else outer)
    after = _Bindings(builder)
    # Unlike the return type of the function, the type of the result has run-time extents too.
    result = narrowed.body.body
    if isinstance(main.ret_ty, relax.TupleType):
        fields = [
            after.result(relax.TupleGetItem(result, i), ty)
            for i, ty in enumerate(main.ret_ty.fields)
        ]
        output = after.bind(relax.Var("wide", main.ret_ty), relax.Tuple(fields))
    else:
        output = after.result(result, main.ret_ty)
    body = relax.SeqExpr([before.block, *narrowed.body.blocks, after.block], output)
    return relax.Function(params, body, main.ret_ty, main.is_pure, main.attrs)


def _is_wide(ty: Any) -> bool:
    return isinstance(ty, relax.TensorType) and str(ty.dtype) == _WIDE


class _Bindings:
    """A block that grows."""

    def __init__(self, builder: relax.BlockBuilder) -> None:
        self._builder = builder
        self._bindings: list[Any] = []

    @property
    def block(self) -> relax.BindingBlock:
        """All bindings as one dataflow block."""
        return relax.DataflowBlock(self._bindings)

    def bind(self, var: Any, value: Any) -> Any:
        """Binds `var` to `value` and returns `var`."""
        self._bindings.append(relax.VarBinding(var, value))
        return var

    def _emit(self, value: Any) -> Any:
        normal = self._builder.normalize(value)
        return self.bind(relax.Var("words", normal.ty), normal)

    def low_words(self, value: Any) -> Any:
        """An int64 tensor's low words."""
        pairs = self._emit(
            relax.op.memory.view(
                value, relax.ShapeExpr([*value.ty.shape, tirx.IntImm(_WIDE, 2)]), _NARROW
            )
        )
        return self._builder.call_te(_low, pairs, primfunc_name_hint="low_words")

    def result(self, value: Any, ty: Any) -> Any:
        """Widens a narrow result to the type that callers expect."""
        narrow = self._emit(value)
        if not _is_wide(ty):
            return narrow
        pairs = self._emit(self._builder.call_te(_extend, narrow, primfunc_name_hint="extended"))
        return self._emit(relax.op.memory.view(pairs, ty.shape, _WIDE))


def _low(pairs: Any) -> Any:
    return te.compute(pairs.shape[:-1], lambda *index: pairs(*index, 0), name="low_words")


def _extend(values: Any) -> Any:
    def word(*index: Any) -> Any:
        value = values(*index[:-1])
        return tirx.Select(index[-1] == 0, value, value >> tirx.IntImm(_NARROW, 31))

    return te.compute([*values.shape, tirx.IntImm(_WIDE, 2)], word, name="extended")
