from typing import Any

import pytest

from artifacts.errors import BlobCorrupt, StorageFailed
from relaxd.errors import RelaxdError
from relaxd.http.errors import ApiError
from service.api.problems import KINDS, problem_of
from service.errors import DatabaseUnavailable, UnknownJob


def test_a_class_stands_before_its_bases() -> None:
    seen: list[type[Exception]] = []
    for kind, _ in KINDS:
        assert not any(issubclass(kind, earlier) for earlier in seen), (
            f"{kind.__name__} is never reached"
        )
        seen.append(kind)


def _subclasses(base: type[Any]) -> set[type[Any]]:
    return {base}.union(*(_subclasses(child) for child in base.__subclasses__()))


@pytest.mark.parametrize(
    "kind",
    sorted(_subclasses(ApiError), key=str),
    ids=lambda kind: kind.__name__,
)
def test_every_error_of_the_api_is_the_clients(kind: type[Exception]) -> None:
    error = kind.__new__(kind)
    RelaxdError.__init__(error, "m")  # type: ignore[arg-type]
    assert 400 <= problem_of(error).status < 500


def test_an_unknown_error_keeps_its_text() -> None:
    document = problem_of(KeyError("a secret")).to_json()
    assert (document["status"], document["code"], document["type"]) == (
        500,
        "internal",
        "urn:relaxd:problem:internal",
    )
    assert "secret" not in str(document)


def test_members_that_do_not_apply_are_left_out() -> None:
    document = problem_of(UnknownJob("j")).to_json()
    assert document.keys() == {"type", "title", "status", "detail", "code", "retryable", "hint"}


@pytest.mark.parametrize("error", [DatabaseUnavailable("gone"), StorageFailed("gone")])
def test_what_is_away_may_be_tried_again(error: RelaxdError) -> None:
    problem = problem_of(error)
    assert (problem.status, problem.retryable, problem.headers) == (503, True, {"Retry-After": "2"})
    assert problem_of(UnknownJob("j")).headers == {}


def test_a_corrupt_blob_is_one_that_is_missing() -> None:
    problem = problem_of(BlobCorrupt("sha256:" + "0" * 64))
    assert (problem.status, problem.code) == (404, "store.corrupt")
    assert problem.extra["hint"] == "push it again, or build it again"
