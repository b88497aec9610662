import errno

import pytest

from compiler.errors import CompileDiskFull, CompileError, CompileOutOfMemory, PassError, summary
from compiler.isolation.messages import Event, Log, StageStarted
from compiler.isolation.stages import enter
from relaxd.contract.states import Stage
from relaxd.errors import DeclarationError


def fail(error: Exception, stage: Stage = Stage.PASS) -> tuple[CompileError, list[Event]]:
    events: list[Event] = []
    with pytest.raises(CompileError) as caught, enter(stage, events.append):
        raise error
    return caught.value, events


def test_a_stage_is_announced() -> None:
    events: list[Event] = []
    with enter(Stage.LINK, events.append):
        assert events == [StageStarted(Stage.LINK)]


def test_a_typed_error_passes_as_it_is() -> None:
    error = PassError("x", reason="failed", pass_name="FuseOps")
    assert fail(error)[0] is error


def test_what_a_typed_error_was_made_of_is_log() -> None:
    error = PassError("x", reason="failed")
    error.__cause__ = ValueError("the deeper reason")
    _, events = fail(error)
    assert Log("ValueError: the deeper reason") in events


@pytest.mark.parametrize("stage", [stage for stage in Stage if stage is not Stage.PUBLISH])
def test_an_unforeseen_error_is_internal_and_its_traceback_is_log(stage: Stage) -> None:
    error, events = fail(KeyError("x"), stage)
    assert error.code == f"{stage.value}.internal"
    assert error.failure.stage == stage
    assert any(isinstance(event, Log) and "Traceback" in event.line for event in events)
    assert "Traceback" not in error.message


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("std::bad_alloc")])
def test_memory_that_ran_out_is_said_so(error: Exception) -> None:
    raised, _ = fail(error)
    assert isinstance(raised, CompileOutOfMemory)
    assert (raised.code, raised.failure.stage) == ("compile.out_of_memory", Stage.PASS)


def test_a_full_disk_is_said_so() -> None:
    raised, _ = fail(OSError(errno.ENOSPC, "No space left on device"), Stage.LINK)
    assert isinstance(raised, CompileDiskFull)
    assert (raised.code, raised.failure.stage) == ("compile.disk_full", Stage.LINK)
    assert "log" not in str(raised.hint)


def test_a_bad_declaration_keeps_its_field() -> None:
    error, _ = fail(DeclarationError("dim 'n': no", field="dims.n", hint="as in 4"), Stage.LOAD)
    assert (error.code, error.failure.field, error.failure.hint) == (
        "request.invalid",
        "dims.n",
        "as in 4",
    )


def test_a_summary_is_the_telling_line() -> None:
    native = (
        "Traceback (most recent call last):\n  1: tvm::Foo()\n  File x.cc, line "
        "3\nInternalError: Check failed: (a == b) is false: no"
    )
    assert summary(RuntimeError(native)) == "InternalError: Check failed: (a == b) is false: no"
    assert summary(ValueError()) == "ValueError"
    assert len(summary(ValueError("x" * 9999))) == 400
