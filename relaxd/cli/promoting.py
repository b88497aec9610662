"""Tells a service how the gates of `relaxd ci` ended: failed ones, and aliases that move."""

import re
from collections.abc import Sequence
from typing import Any

from relaxd.cli.checks import Check
from relaxd.cli.console import stderr
from relaxd.cli.project import ProjectModel
from relaxd.client import Client
from relaxd.contract.states import State
from relaxd.errors import DeclarationError, RelaxdError, ServerError

_NAME = re.compile(r"[a-z0-9]+([._-][a-z0-9]+)*")


def require_names(models: Sequence[ProjectModel]) -> None:
    """Raise DeclarationError for a model whose name the registry does not take."""
    for model in models:
        if not _NAME.fullmatch(model.name):
            raise DeclarationError(
                f"{model.name!r} cannot be registered",
                field="model.name",
                hint="give the model a `name` of lower-case letters and digits, with single "
                "dots, underscores or hyphens between them",
            )


def report_failed_gates(checks: Sequence[Check], server: str, token: str | None) -> None:
    """Have webhooks told of the gates that failed; where that fails, say so and nothing more."""
    try:
        with Client(server, token=token) as client:
            for check in checks:
                failed = {gate.gate: gate.said for gate in check.gates if gate.failed}
                if failed and check.job:
                    client.report_failed_gates(check.job, check.target, failed, check.baseline)
    except RelaxdError as error:
        stderr().print(f"warning: no webhook is told of failed gates: {error}", markup=False)


def move_aliases(
    models: Sequence[ProjectModel], alias: str, server: str, token: str | None
) -> list[dict[str, Any]]:
    """Point the alias of each model at what was built: a new version, unless the newest has the
    same bundles. Raises as `relaxd.Client`.
    """
    with Client(server, token=token) as client:
        return [_move(client, model, alias) for model in models]


def _move(client: Client, model: ProjectModel, alias: str) -> dict[str, Any]:
    # Its builds come from the cache: one job, and so one index, over all targets.
    job = client.submit(
        model.path, model.request, samples=model.samples, project=model.project
    ).wait()
    if job.state is not State.SUCCEEDED:
        raise RelaxdError(f"job {job.id} over all targets of {model.name} is {job.state}")
    newest = _version(client, model.name, "latest")
    if newest is None or newest["digest"] != job.document["index"]["digest"]:
        newest = client.register(model.name, job=job.id)
    named, number = _version(client, model.name, alias), newest["version"]
    previous = None if named is None else named["version"]
    if previous != number:
        client.move_alias(model.name, alias, number)
    return {"name": model.name, "alias": alias, "version": number, "previous": previous}


def _version(client: Client, name: str, version: str) -> dict[str, Any] | None:
    try:
        return client.version(name, version)
    except ServerError as error:
        if error.status == 404:
            return None
        raise
