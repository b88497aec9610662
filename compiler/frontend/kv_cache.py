"""Checks that a request for in-place KV caches (`state=lifted`) suits the model and the target."""

from compiler.errors import ImportFailed
from compiler.host.machine import cannot_run
from compiler.targets import ObjectFormat, Target
from relaxd.contract.options import CacheForm, StateForm
from relaxd.contract.request import CompileRequest


def require_host(target: Target, stored: CacheForm | None = None) -> None:
    """Raises ImportFailed where a library cannot write into what its caller owns, or verification
    could not look at what it wrote.

    stored: what rows of caches are rounded to, which shaders of pages have no numbers for.
    """
    if target.launches and stored is not None:
        raise ImportFailed(
            f"{target.name} stores no caches in fewer bits: not every adapter has such numbers",
            reason="cache",
            field="options.cache",
            hint="leave the option out, or compile for wasm32-simd",
        )
    wasm = target.platform.object_format is ObjectFormat.WASM
    if wasm or (target.kind == "llvm" and cannot_run(target) is None):
        return
    raise ImportFailed(
        "in-place KV caches are for this machine's processor, WebAssembly and WebGPU alone, "
        f"not for {target.name}",
        reason="state",
        field="options.state",
        hint="compile it with state=passed",
    )


def require_passed(request: CompileRequest) -> None:
    """Raises ImportFailed for a model that is no ONNX and is to have in-place KV caches."""
    if request.options.state is StateForm.LIFTED:
        raise ImportFailed(
            "only ONNX models can have in-place KV caches",
            reason="state",
            field="options.state",
            hint="export the module to ONNX",
        )
