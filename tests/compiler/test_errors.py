import pytest

from compiler.errors import CompileCrashed, CompileError, ImportFailed, LinkError, VerifyError
from relaxd.contract.failures import Failure
from relaxd.contract.states import Stage


def test_code_is_the_prefix_and_the_reason() -> None:
    error = ImportFailed(
        "no Foo",
        reason="unsupported_op",
        node="n1",
        op="Foo",
        hint="use Bar",
        inputs=["float32[n]"],
    )
    assert error.code == "import.unsupported_op"
    assert error.failure == Failure(
        "import.unsupported_op",
        Stage.IMPORT,
        "no Foo",
        node="n1",
        op="Foo",
        hint="use Bar",
        details={"inputs": ["float32[n]"]},
    )
    assert str(error) == "no Foo (use Bar)"


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("import.unsupported_op", ImportFailed),
        ("verify.mismatch", VerifyError),
        ("link.failed", LinkError),
        ("compile.crashed", CompileCrashed),
        ("request.invalid", CompileError),
    ],
)
def test_an_error_survives_the_trip_through_its_failure(
    code: str, kind: type[CompileError]
) -> None:
    failure = Failure(
        code,
        Stage.PASS,
        "what",
        pass_name="FuseOps",
        node="n",
        op="o",
        hint="h",
        field="dims.n",
        retryable=True,
        details={"a": 1},
    )
    error = CompileError.from_failure(Failure.from_json(failure.to_json()))
    assert type(error) is kind
    assert error.failure == failure
    assert error.code == code
