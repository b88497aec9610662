"""Errors of code generation."""

from collections.abc import Iterator
from contextlib import contextmanager

from compiler.errors import CodegenError, PassError, summary
from compiler.targets import Target


@contextmanager
def failures(target: Target) -> Iterator[None]:
    """Raise what fails inside as CodegenError that names the target, and the pass if one failed;
    CodegenError and MemoryError pass.
    """
    try:
        yield
    except (MemoryError, CodegenError):
        raise
    except Exception as error:
        raise CodegenError(
            f"code generation for {target.name}: {summary(error)}",
            reason="failed",
            pass_name=error.failure.pass_name if isinstance(error, PassError) else None,
            hint="the build's log has the full error",
        ) from error
