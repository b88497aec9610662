"""Models to Relax: the symbolic builder and its front ends. Importing this package
imports no TVM.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    import onnx

    from compiler.ir.imported import Imported
    from relaxd.contract.request import CompileRequest


def import_model(model: onnx.ModelProto, request: CompileRequest) -> Imported:
    """Import an ONNX model; raises compiler.errors.ImportFailed naming the node or declaration at
    fault.
    """
    from compiler.ir.onnx.reader import read

    return read(model, request)


def inspect_model(model: onnx.ModelProto, request: CompileRequest) -> dict[str, Any]:
    """Describe the model node by node without compiling (see compiler.ir.onnx.inspection)."""
    from compiler.ir.onnx.inspection import inspect

    return inspect(model, request)


def import_torchscript(source: Path | bytes, request: CompileRequest) -> Imported:
    """Import a module saved with torch.jit.save; raises ImportFailed, LoadError for other files,
    ToolchainMissing without torch.
    """
    from compiler.ir.aten.torch_package import without_torch
    from compiler.ir.files.export_names import declare_exported
    from compiler.ir.torchscript.loading import load

    program = load(source)
    with without_torch():
        from compiler.ir.torchscript.reader import read
    return read(program, declare_exported(source, request))


def inspect_torchscript(source: Path | bytes, request: CompileRequest) -> dict[str, Any]:
    """Describe the module node by node (see compiler.ir.torchscript.inspection)."""
    from compiler.ir.aten.torch_package import without_torch
    from compiler.ir.files.export_names import declare_exported
    from compiler.ir.torchscript.loading import load

    program = load(source)
    with without_torch():
        from compiler.ir.torchscript.inspection import inspect
    return inspect(program, declare_exported(source, request))


def import_exported(source: Path, request: CompileRequest) -> Imported:
    """Import a program saved with torch.export.save, without torch; raises ImportFailed, LoadError
    for other files.
    """
    from compiler.ir.files.export_names import declare_exported
    from compiler.ir.pt2.program import read_program
    from compiler.ir.pt2.reader import read

    return read(read_program(source), declare_exported(source, request))


def inspect_exported(source: Path, request: CompileRequest) -> dict[str, Any]:
    """Describe the program node by node by what its file says, with neither torch nor TVM (see
    compiler.ir.pt2.inspection).
    """
    from compiler.ir.files.export_names import declare_exported
    from compiler.ir.pt2.inspection import inspect
    from compiler.ir.pt2.program import read_program

    return inspect(read_program(source), declare_exported(source, request))


def inspect_tflite(source: Path, request: CompileRequest) -> dict[str, Any]:
    """Describe a TFLite file operator by operator (see compiler.ir.onnx.tflite_inspection)."""
    from compiler.ir.onnx.tflite_inspection import inspect
    from compiler.ir.tflite.file import read_tflite

    return inspect(read_tflite(source), request)
