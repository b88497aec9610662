"""Enters the stages of a build: announces each, and turns every error in it into the stage's typed
error.
"""

import errno
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from compiler.errors import (
    OF_STAGE,
    CompileDiskFull,
    CompileError,
    CompileOutOfMemory,
    is_out_of_memory,
    summary,
)
from compiler.isolation.messages import Event, Log, StageStarted
from relaxd.contract.failures import Failure
from relaxd.contract.states import Stage
from relaxd.errors import DeclarationError

OnEvent = Callable[[Event], None]


@contextmanager
def enter(stage: Stage, on_event: OnEvent) -> Iterator[None]:
    """Run the body as the stage. Raises only CompileError: an unforeseen error gets the code
    `<stage>.internal`, and its traceback goes to the log.
    """
    on_event(StageStarted(stage))
    try:
        yield
    except CompileError as error:
        if error.__cause__ is not None:
            _log(error.__cause__, on_event)
        raise
    except Exception as error:
        _log(error, on_event)
        raise _translate(stage, error) from error


def _log(error: BaseException, on_event: OnEvent) -> None:
    for line in "".join(traceback.format_exception(error)).splitlines():
        on_event(Log(line))


def _translate(stage: Stage, error: Exception) -> CompileError:
    if is_out_of_memory(error):
        return CompileOutOfMemory(
            f"memory ran out at stage {stage.value}",
            reason="out_of_memory",
            stage=stage,
            hint="raise the memory limit, or narrow the dims",
        )
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return CompileDiskFull(
            f"the disk was full at stage {stage.value}",
            reason="disk_full",
            stage=stage,
            hint="make room on the disk of the output and of TMPDIR",
        )
    if isinstance(error, DeclarationError):
        return CompileError.from_failure(
            Failure(error.code, stage, error.message, hint=error.hint, field=error.field)
        )
    return OF_STAGE[stage](
        f"{type(error).__name__}: {summary(error)}",
        reason="internal",
        stage=stage,
        hint="the build's log has the full error",
    )
