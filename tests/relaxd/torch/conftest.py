"""Torch, which other tests keep out of the process, is let in before these are collected; tvm is
not to bind itself to it.
"""

from compiler.ir.aten.torch_package import load_torch, without_torch

load_torch()
with without_torch():
    import tvm  # noqa: F401
