from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import positive_data_acceptance

from service.api.app import create_app
from tests.service.fakes import FakeCompiler
from tests.service.live import QueueDoorbell, announce, services_over, working

FOLLOWED = {"GET /v1/overview/events"}
"""Without end, so not asked for here."""
TAKING_NOTHING = [
    "GET /v1/targets",
    "GET /healthz",
    "GET /readyz",
    "GET /metrics",
    "GET /v1/pins",
    "GET /v1/whoami",
    "GET /v1/sign-in",
    "GET /v1/tenants",
    "GET /v1/webhooks",
]
OPERATIONS = [
    *TAKING_NOTHING,
    "POST /v1/compile",
    "POST /v1/jobs",
    "GET /v1/jobs",
    "GET /v1/jobs/{job_id}",
    "POST /v1/jobs/{job_id}:cancel",
    "POST /v1/jobs/{job_id}/gates",
    "GET /v1/jobs/{job_id}/events",
    "GET /v1/jobs/{job_id}/logs",
    "GET /v1/overview",
    "POST /v1/inspect",
    "GET /v1/actions/{digest}",
    "GET /v1/artifacts/{digest}",
    "GET /v1/artifacts/{digest}/report",
    "GET /v1/artifacts/{digest}/trace",
    "POST /v1/gc",
    "PUT /v1/pins/{digest}",
    "POST /v1/webhooks",
    "DELETE /v1/webhooks/{webhook_id}",
    "POST /v1/webhooks/{webhook_id}:ping",
    "GET /v1/webhooks/{webhook_id}/deliveries",
    "GET /v1/models",
    "GET /v1/models/{name}",
    "GET /v1/models/{name}/builds",
    "PATCH /v1/models/{name}",
    "DELETE /v1/models/{name}",
    "POST /v1/models/{name}/versions",
    "GET /v1/models/{name}/versions/{version}",
    "DELETE /v1/models/{name}/versions/{version}",
    "PUT /v1/models/{name}/aliases/{alias}",
    "DELETE /v1/models/{name}/aliases/{alias}",
    "DELETE /v1/pins/{digest}",
    "GET /v1/tokens",
    "GET /v1/audit",
    "GET /v1/usage",
    "POST /v1/sign-in",
    "POST /v1/tokens",
    "DELETE /v1/tokens/{token_id}",
    "POST /v1/tokens/{token_id}:rotate",
    "POST /v1/tenants",
    "PATCH /v1/tenants/{name}",
    "DELETE /v1/tenants/{name}",
]
WAITING = ("POST /v1/inspect",)
"""Endpoints that answer 504, as described, where the work takes longer than the request waits."""
BUDGET = settings(
    max_examples=8,
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.generate],
)


@pytest.fixture(scope="module")
def described(tmp_path_factory: pytest.TempPathFactory) -> Iterator[schemathesis.BaseSchema]:
    doorbell, folder = QueueDoorbell(), tmp_path_factory.mktemp("openapi")
    with (
        services_over(
            folder, FakeCompiler(), doorbell, allowed_hosts="testserver", lease_s=3600
        ) as services,
        working(services.core, doorbell),
    ):
        announce(services.core)
        yield _without_formats(
            schemathesis.openapi.from_asgi("/openapi.json", create_app(services))
        )


def _without_formats(described: schemathesis.BaseSchema) -> schemathesis.BaseSchema:
    """Drops `format: binary`, which any text of a form meets: the generator of what does not fit
    believes that some does not.
    """
    (form,) = described.raw_schema["paths"]["/v1/compile"]["post"]["requestBody"][
        "content"
    ].values()
    for field in form["schema"]["properties"].values():
        field.pop("format", None)
    return described


def test_every_endpoint_is_described(described: schemathesis.BaseSchema) -> None:
    operations: Any = described.get_all_operations()
    labels = {operation.ok().label for operation in operations}
    assert labels == set(OPERATIONS) | FOLLOWED


@pytest.mark.parametrize("label", OPERATIONS)
def test_what_fits_the_description_is_answered_as_described(
    described: schemathesis.BaseSchema, label: str
) -> None:
    # A schema cannot say everything: a well-formed request may still name a model that is not
    # there.
    _exercise(
        described, label, schemathesis.GenerationMode.POSITIVE, without=[positive_data_acceptance]
    )


@pytest.mark.parametrize("label", [label for label in OPERATIONS if label not in TAKING_NOTHING])
def test_what_does_not_fit_is_refused_as_described(
    described: schemathesis.BaseSchema, label: str
) -> None:
    _exercise(described, label, schemathesis.GenerationMode.NEGATIVE, without=[])


def _exercise(
    described: schemathesis.BaseSchema,
    label: str,
    mode: schemathesis.GenerationMode,
    without: list[Any],
) -> None:
    method, path = label.split()
    if label in WAITING:
        without = [*without, not_a_server_error]

    @BUDGET
    @given(described[path][method].as_strategy(generation_mode=mode))
    def holds(case: schemathesis.Case) -> None:
        case.call_and_validate(excluded_checks=without)

    holds()
