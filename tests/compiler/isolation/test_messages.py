import json

import pytest

from compiler.isolation.messages import (
    CompileJob,
    Failed,
    Failing,
    InspectJob,
    Log,
    Message,
    Progress,
    StageStarted,
    Succeeded,
    job_from_json,
    message_from_json,
)
from relaxd.contract.failures import Failure
from relaxd.contract.states import Stage

JOBS = [
    CompileJob("m.onnx", {"dims": {}}, "native", "out", "m", samples="s.npz"),
    InspectJob("m.onnx", {}),
]
MESSAGES: list[Message] = [
    StageStarted(Stage.LINK),
    Log("a line"),
    Progress(Stage.VERIFY, "halfway"),
    Progress(Stage.VERIFY, "at 5 of 10 shapes", 5, 10, 2.5),
    Succeeded({"name": "m"}),
    Failing(Failure("verify.mismatch", Stage.VERIFY, "off")),
    Failed(Failure("load.empty", Stage.LOAD, "empty", field="model")),
]


@pytest.mark.parametrize("job", JOBS, ids=lambda job: job.kind)
def test_jobs_round_trip(job: CompileJob | InspectJob) -> None:
    assert job_from_json(json.loads(json.dumps(job.to_json()))) == job


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: message.kind)
def test_messages_round_trip(message: Message) -> None:
    assert message_from_json(json.loads(json.dumps(message.to_json()))) == message


@pytest.mark.parametrize("count", [-1, float("nan"), float("inf"), "5", True, [5]])
def test_counts_of_an_untrusted_process_are_numbers(count: object) -> None:
    document = Progress(Stage.VERIFY, "halfway", 5, 10, 2.5).to_json()
    for name in ("done", "total", "seconds_left"):
        with pytest.raises(ValueError, match="not a message"):
            message_from_json({**document, name: count})


@pytest.mark.parametrize(
    "document", [{}, {"kind": "stage"}, {"kind": "stage", "stage": "lunch"}, [], None]
)
def test_anything_else_is_refused(document: object) -> None:
    with pytest.raises(ValueError, match=r"not a message|not a valid Stage"):
        message_from_json(document)  # type: ignore[arg-type]
