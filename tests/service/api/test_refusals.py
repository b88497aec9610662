"""The OpenAPI document's errors and examples hold, and no linter objects to it."""

from collections.abc import Iterator
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from openapi_spec_validator import validate

from service.api.app import create_app
from service.api.auth import OPEN
from service.api.examples import ANSWERS, BODIES
from service.api.refusals import ERRORS
from tests.service.fakes import FakeCompiler
from tests.service.live import QueueDoorbell, services_over


@pytest.fixture(scope="module", params=[None, "a token"])
def document(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Any]]:
    folder = tmp_path_factory.mktemp("described")
    with services_over(folder, FakeCompiler(), QueueDoorbell(), token=request.param) as services:
        yield create_app(services).openapi()


def operations(document: dict[str, Any]) -> dict[tuple[str, str], dict[str, Any]]:
    return {
        (method, path): operation
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    }


def test_the_document_is_one_of_openapi(document: dict[str, Any]) -> None:
    validate(document)
    assert "/v2/{name}/blobs/{digest}" in str(document["tags"])


def test_the_tables_name_endpoints_that_are_there(document: dict[str, Any]) -> None:
    assert ERRORS.keys() | BODIES.keys() | ANSWERS.keys() <= operations(document).keys()


def test_every_operation_lists_its_errors_by_status(document: dict[str, Any]) -> None:
    secured = "securitySchemes" in document["components"]
    result = operations(document)
    for (_method, path), operation in result.items():
        statuses = operation["responses"].keys()
        open_to_all = path in OPEN
        assert {"429", "503"} <= statuses
        assert ("401" in statuses) == ("403" in statuses and secured and not open_to_all) or (
            not secured and "401" not in statuses
        )
        assert bool(operation["security"]) == (secured and not open_to_all)
    compiles = result["post", "/v1/compile"]["responses"]
    assert {"400", "409", "413", "415", "422", "429", "507"} <= compiles.keys()
    assert "`tenant.queue_full`" in compiles["429"]["description"]
    assert "`job.unknown`" in result["get", "/v1/jobs/{job_id}"]["responses"]["404"]["description"]


def test_every_example_fits_its_schema(document: dict[str, Any]) -> None:
    wrong, checked = [], 0
    for position, operation in operations(document).items():
        contents = [response.get("content", {}) for response in operation["responses"].values()]
        contents.append(operation.get("requestBody", {}).get("content", {}))
        for media in (media for content in contents for media in content.values()):
            if "example" not in media:
                continue
            checked += 1
            schema = {**media["schema"], "components": document["components"]}
            errors = Draft202012Validator(schema).iter_errors(media["example"])
            wrong += [(position, error.json_path, error.message) for error in errors]
    assert wrong == []
    assert checked > 100
