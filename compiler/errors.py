"""Errors of the compiler: one class a stage, each carrying the structured failure that goes over
the wire.
"""

from typing import Any, ClassVar

from relaxd.contract.dims.names import with_names
from relaxd.contract.failures import Failure
from relaxd.contract.states import Stage
from relaxd.errors import RelaxdError


class CompileError(RelaxdError):
    """Base of every failure of a build; `failure.code` is `<prefix>.<reason>`.

    reason: what went wrong, in snake case, stable (`unsupported_op`).
    node, op: the model's node at fault and its operator; pass_name: the compiler pass.
    hint: what to change; field: the request's field at fault; details: JSON types.
    Message and hint show dims by their names where they are given with identifiers.
    """

    prefix: ClassVar[str] = "compile"
    default_stage: ClassVar[Stage] = Stage.LOAD

    def __init__(
        self,
        message: str,
        *,
        reason: str,
        stage: Stage | None = None,
        pass_name: str | None = None,
        node: str | None = None,
        op: str | None = None,
        hint: str | None = None,
        field: str | None = None,
        retryable: bool = False,
        **details: Any,
    ) -> None:
        message, hint = with_names(message), hint and with_names(hint)
        super().__init__(message, hint=hint, **details)
        self.failure = Failure(
            code=f"{self.prefix}.{reason}",
            stage=stage or self.default_stage,
            message=message,
            pass_name=pass_name,
            node=node,
            op=op,
            hint=hint,
            field=field,
            retryable=retryable,
            details=details,
        )
        self.code = self.failure.code

    @classmethod
    def from_failure(cls, failure: Failure) -> "CompileError":
        """The error whose `failure` is the given one, of the class that its code names."""
        error = _class_of(failure.code)(
            failure.message, reason="internal", hint=failure.hint, **failure.details
        )
        error.failure = failure
        error.code = failure.code
        return error


class LoadError(CompileError):
    """The model cannot be read: missing, too large, truncated, not ONNX, or it names data outside
    its own folder.
    """

    prefix = "load"
    default_stage = Stage.LOAD


class ImportFailed(CompileError):
    """The model cannot be turned into Relax: an unsupported operator, or a declaration that
    contradicts the graph.
    """

    prefix = "import"
    default_stage = Stage.IMPORT


class PassError(CompileError):
    """A compiler pass failed; `failure.pass_name` names it."""

    prefix = "pass"
    default_stage = Stage.PASS


class CodegenError(CompileError):
    """The code generator refused the module or the target."""

    prefix = "codegen"
    default_stage = Stage.CODEGEN


class LinkError(CompileError):
    """The linker failed, or no runtime is at hand for the bundle."""

    prefix = "link"
    default_stage = Stage.LINK


class VerifyError(CompileError):
    """The library's outputs differ from the reference's, or it fails to run."""

    prefix = "verify"
    default_stage = Stage.VERIFY


class ProfileError(CompileError):
    """Measuring the library failed."""

    prefix = "profile"
    default_stage = Stage.PROFILE


class UnknownTarget(CompileError):
    """The target is not in the registry; `failure.details` lists the known names."""

    prefix = "target"


class ToolchainMissing(CompileError):
    """A package that compiling needs is not installed here."""

    prefix = "toolchain"


class CompileCancelled(CompileError):
    """The caller cancelled the build; its process is gone."""


class CompileTimeout(CompileError):
    """The build ran past its wall-clock limit and was killed."""


class CompileOutOfMemory(CompileError):
    """The build's processes grew past their memory limit and were killed."""


class CompileDiskFull(CompileError):
    """The build's files grew past their limit, and its processes were killed; or the disk is
    full.
    """


class CompileTooManyProcesses(CompileError):
    """The build started more processes than it may, and all were killed."""


class CompileCrashed(CompileError):
    """The compile process died of a signal or ended without a result."""


_BY_CODE: dict[str, type[CompileError]] = {
    "compile.cancelled": CompileCancelled,
    "compile.timeout": CompileTimeout,
    "compile.out_of_memory": CompileOutOfMemory,
    "compile.disk_full": CompileDiskFull,
    "compile.too_many_processes": CompileTooManyProcesses,
    "compile.crashed": CompileCrashed,
}
OF_STAGE: dict[Stage, type[CompileError]] = {
    kind.default_stage: kind
    for kind in (
        LoadError,
        ImportFailed,
        PassError,
        CodegenError,
        LinkError,
        VerifyError,
        ProfileError,
    )
}
"""The kind of failure that a stage raises."""

_BY_PREFIX: dict[str, type[CompileError]] = {
    **{kind.prefix: kind for kind in OF_STAGE.values()},
    **{kind.prefix: kind for kind in (UnknownTarget, ToolchainMissing)},
}


def _class_of(code: str) -> type[CompileError]:
    return _BY_CODE.get(code) or _BY_PREFIX.get(code.partition(".")[0], CompileError)


_MESSAGE_CHARACTERS = 400


def is_out_of_memory(error: BaseException) -> bool:
    """True if an allocation failed, in Python or in a native library."""
    return isinstance(error, MemoryError) or "std::bad_alloc" in str(error)


def summary(error: BaseException) -> str:
    """The line of a foreign error that says what is wrong, shortened; native libraries put a
    backtrace around it.
    """
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    telling = [
        line for line in lines if "Check failed" in line or "Error:" in line or "error:" in line
    ]
    text = (telling or lines or [type(error).__name__])[0]
    return text if len(text) <= _MESSAGE_CHARACTERS else text[: _MESSAGE_CHARACTERS - 1] + "…"
