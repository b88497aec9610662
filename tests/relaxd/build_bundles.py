"""Builds small bundles straight from Relax, in a process of its own: `python build_bundles.py
DIRECTORY`.
"""

# ruff: noqa: E402
import hashlib
import json
import platform
import shutil
import sys
from importlib import metadata
from pathlib import Path

sys.modules["torch"] = None

import numpy as np
import tvm
from tvm import relax, te, tirx

from compiler import targets
from compiler.bundle import weights
from compiler.link.library import link_objects
from compiler.passes.memory.add_release import AddRelease
from compiler.runtimes.threads import threads
from relaxd.contract.bundle.manifest import FILENAME, FileEntry, LoadContract, Manifest
from relaxd.contract.dims.tensors import STORAGE
from tests.support import declared

HOST = targets.resolve("native")
RUNTIME = Path(tvm.__file__).parent / "lib"
N, M = tirx.Var("n", "int64"), tirx.Var("m", "int64")


def tensor(name, shape, dtype="float32"):
    return relax.Var(name, relax.TensorType(shape, dtype))


def module(inputs, body):
    builder = relax.BlockBuilder()
    with builder.function("main", inputs):
        with builder.dataflow():
            outputs = [
                builder.emit(output) if not isinstance(output, relax.Var) else output
                for output in body(builder, *inputs)
            ]
            result = builder.emit_output(outputs[0] if len(outputs) == 1 else relax.Tuple(outputs))
        builder.emit_func_output(result)
    return builder.finalize()


def link(output, objects, options=(), **_):
    link_objects([Path(item) for item in objects], Path(output), HOST, options)


def write(directory, name, mod, inputs, outputs, dims, constants=()):
    bundle = Path(directory, name)
    bundle.mkdir()
    table = weights.write(constants, bundle / "weights.bin").table
    relax.build(AddRelease().apply(mod), tvm.target.Target({"kind": "llvm"})).export_library(
        str(bundle / "model.so"), fcompile=link
    )
    for library in ("libtvm_runtime.so", "libtvm_runtime_extra.so"):
        shutil.copy(RUNTIME / library, bundle)
    shutil.copy(threads(HOST), bundle)
    files = {
        file.name: FileEntry(hashlib.sha256(file.read_bytes()).hexdigest(), file.stat().st_size)
        for file in bundle.iterdir()
    }
    versions = {package: metadata.version(package) for package in ("apache-tvm", "apache-tvm-ffi")}
    manifest = Manifest(
        name=name,
        inputs=tuple(declared.spec(text) for text in inputs),
        outputs=tuple(declared.spec(text) for text in outputs),
        dims=tuple(declared.dim(text) for text in dims),
        target={},
        load=LoadContract(arch=platform.machine(), libc="2.28", runtime=versions),
        action_key={},
        toolchain={},
        files=files,
        weights=table,
    )
    (bundle / FILENAME).write_text(json.dumps(manifest.to_json()))


def dims(directory):
    """Sum of x and every other column of wide, times scale."""
    x, wide, scale = tensor("x", [N, M]), tensor("wide", [N, 2 * M]), tensor("scale", [])

    def body(builder, x, wide, scale):
        half = builder.emit_te(lambda w: te.compute((N, M), lambda i, j: w[i, 2 * j]), wide)
        return [relax.op.multiply(relax.op.add(x, half), scale)]

    mod = module([x, wide, scale], body)
    write(
        directory,
        "dims",
        mod,
        ["x=float32[n,m]", "wide=float32[n,2*m]", "scale=float32[]"],
        ["y=float32[n,m]"],
        ["n=1:8", "m=2:64%2"],
    )


def ownership(directory):
    """Fresh, twice the same, the input itself, views of both, and a constant."""
    x, constant = tensor("x", [N, 4]), relax.const(np.arange(4, dtype="float32"))

    def body(builder, x):
        y = builder.emit(relax.op.add(x, constant))
        flat, flat_y = relax.op.reshape(x, [N * 4]), relax.op.reshape(y, [N * 4])
        return [y, y, x, flat, flat_y, constant]

    shapes = ["[n,4]", "[n,4]", "[n,4]", "[4*n]", "[4*n]", "[4]"]
    outputs = [f"o{i}=float32{shape}" for i, shape in enumerate(shapes)]
    write(directory, "ownership", module([x], body), ["x=float32[n,4]"], outputs, ["n=0:"])


def constant(directory):
    """One output, and that a constant of the library."""
    value = relax.const(np.arange(4, dtype="float32"))
    mod = module([tensor("x", [N])], lambda builder, x: [value])
    write(directory, "constant", mod, ["x=float32[n]"], ["y=float32[4]"], ["n=0:"])


def twice(directory):
    """x + x, without constants."""
    mod = module([tensor("x", [N])], lambda builder, x: [relax.op.add(x, x)])
    write(directory, "twice", mod, ["x=float32[n]"], ["y=float32[n]"], ["n=0:"])


def weighty(directory):
    """Constants in a file of their own: one used, one used and returned, and a bfloat16 one
    returned.
    """
    x = tensor("x", [N, 512])
    used, retained = (relax.const(np.arange(512, dtype="float32") + start) for start in (0, 1))
    half = relax.const(
        tvm.runtime.tensor(np.ones(1024, "uint16"))._create_view((1024,), "bfloat16"), "bfloat16"
    )

    def body(builder, x):
        return [relax.op.add(relax.op.add(x, used), retained), retained, half]

    separated = weights.separate(module([x], body))
    outputs = ["sum=float32[n,512]", "kept=float32[512]", "half=bfloat16[1024]"]
    write(
        directory,
        "weighty",
        separated.module,
        ["x=float32[n,512]"],
        outputs,
        ["n=1:"],
        separated.constants,
    )


def dtypes(directory):
    """Every dtype: logical_not of bool, twice anything else."""
    names = [
        "bool",
        "int8",
        "int16",
        "int32",
        "int64",
        "uint8",
        "uint16",
        "uint32",
        "uint64",
        "float16",
        "bfloat16",
        "float32",
        "float64",
    ]
    inputs = [tensor(f"x_{name}", [N], name) for name in names]

    def body(builder, *inputs):
        return [
            relax.op.logical_not(x)
            if name == "bool"
            else builder.emit_te(lambda a: te.compute((N,), lambda i: a[i] + a[i]), x)
            for name, x in zip(names, inputs, strict=True)
        ]

    taken, created = ([f"{side}_{name}={name}[n]" for name in names] for side in "xy")
    write(directory, "dtypes", module(inputs, body), taken, created, ["n=0:"])


def quantized_inputs(directory):
    """A copy of an input of every type that is held in bytes of another."""
    inputs = [tensor(f"x_{name}", [N], stored) for name, stored in STORAGE.items()]

    def body(builder, *inputs):
        return [
            builder.emit_te(
                lambda a: te.compute((N,), lambda i: a[i]), x, primfunc_name_hint="copy"
            )
            for x in inputs
        ]

    taken, created = ([f"{side}_{name}={name}[n]" for name in STORAGE] for side in "xy")
    write(directory, "narrow", module(inputs, body), taken, created, ["n=0:"])


def vector(directory):
    """Rows in parallel, aligned 16-float vectors within, `work` passes: crashes on an unaligned
    input.
    """
    x, work = tensor("x", [N, 64]), tensor("work", [], "int64")

    def body(builder, x, work):
        def kernel(a, w):
            k = te.reduce_axis((0, 4096), "k")
            return te.compute(
                (N, 64),
                lambda i, j: te.sum(a[i, j] * tirx.Cast("float32", w() + k % 2), axis=k),
                name="B",
            )

        return [builder.call_te(kernel, x, work, primfunc_name_hint="kernel")]

    mod = relax.transform.LegalizeOps()(module([x, work], body))
    schedule = tvm.s_tir.Schedule(mod)
    schedule.work_on("kernel")
    block = schedule.get_sblock("B")
    i, j, k = schedule.get_loops(block)
    outer, inner = schedule.split(j, [None, 16])
    schedule.reorder(i, outer, k, inner)
    schedule.vectorize(inner)
    schedule.parallel(i)
    write(
        directory,
        "vector",
        schedule.mod,
        ["x=float32[n,64]", "work=int64[]"],
        ["y=float32[n,64]"],
        ["n=1:"],
    )


if __name__ == "__main__":
    for build in (dims, ownership, constant, twice, weighty, dtypes, quantized_inputs, vector):
        build(sys.argv[1])
