"""Errors of the service; each carries a stable `code`, and the API maps each to one problem."""

from collections.abc import Sequence

from artifacts.errors import StoreFull
from relaxd.contract.failures import Failure
from relaxd.errors import RelaxdError, install_hint


class ServiceError(RelaxdError):
    """Base of every error that the service's use cases raise."""

    code = "service.error"


class InvalidSettings(ServiceError):
    """A RELAXD_ variable has a value that cannot work."""

    code = "settings.invalid"


class TracesUnavailable(ServiceError):
    """The settings ask for traces, and OpenTelemetry is not installed."""

    code = "traces.unavailable"

    def __init__(self) -> None:
        super().__init__(
            "RELAXD_TRACES_URL is set, and OpenTelemetry is not installed",
            hint=f"{install_hint('traces')}, or unset RELAXD_TRACES_URL",
        )


class UnknownJob(ServiceError):
    """No job has that id."""

    code = "job.unknown"

    def __init__(self, job_id: str) -> None:
        super().__init__(
            f"no job has the id {job_id!r}",
            hint="list the jobs with `relaxd jobs list`",
            job=job_id,
        )


class UnknownBlob(ServiceError):
    """The request names a blob that the store does not hold; `field` is the request's field."""

    code = "blob.unknown"

    def __init__(self, digest: str, *, field: str) -> None:
        super().__init__(
            f"{field}: the store holds no blob {digest}",
            hint="upload it first, or POST it to /v1/compile",
            field=field,
            digest=digest,
        )
        self.field = field


class UnknownModel(UnknownBlob):
    """The store does not hold the model."""

    code = "model.unknown"

    def __init__(self, digest: str) -> None:
        super().__init__(digest, field="model")


class IdempotencyConflict(ServiceError):
    """The idempotency key was used before for another request."""

    code = "idempotency.conflict"

    def __init__(self, key: str, job_id: str) -> None:
        super().__init__(
            f"the idempotency key {key!r} belongs to job {job_id}, whose request differs",
            hint="use a new key for a new request",
            job=job_id,
        )


class InspectionFailed(ServiceError):
    """The worker could not read the model; `code` is that of `failure`."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message, hint=failure.hint, **failure.details)
        self.failure = failure
        self.code = failure.code


class NotFinished(ServiceError):
    """The work did not finish in the time that the caller would wait; it goes on, and asking again
    finds the result.
    """

    code = "job.not_finished"


class DatabaseUnavailable(ServiceError):
    """The job database does not answer, was busy for too long, or takes no writes; trying again may
    help.
    """

    code = "database.unavailable"

    def __init__(self, why: str, hint: str | None = None) -> None:
        super().__init__(
            f"the job database does not answer as it should: {why.strip()}",
            hint=hint or "check RELAXD_DATABASE_URL and that the server runs",
        )


class DatabaseDamaged(DatabaseUnavailable):
    """The job database's files are not those of a database any more."""

    code = "database.damaged"

    def __init__(self, why: str) -> None:
        super().__init__(why, "restore the database from a backup, docs/howto/run-the-service.md")


class ChoreTaken(ServiceError):
    """Another process is at the work that only one may do at a time."""

    code = "chore.taken"

    def __init__(self, name: str, holder: str) -> None:
        super().__init__(
            f"{name} is under way in {holder}", hint="try again when it has ended", holder=holder
        )
        self.name = name


class UnknownPin(ServiceError):
    """The digest is not pinned."""

    code = "pin.unknown"

    def __init__(self, digest: str) -> None:
        super().__init__(
            f"{digest} is not pinned", hint="`relaxd pin --list` lists the pins", digest=digest
        )


class UnknownRegistered(ServiceError):
    """No model, version or alias of that name is registered."""

    code = "registry.unknown"

    def __init__(self, ref: str) -> None:
        super().__init__(
            f"{ref} is not registered", hint="`relaxd models list` lists the names", ref=ref
        )


class NothingBuilt(ServiceError):
    """The job that was to be registered has no bundle."""

    code = "registry.no_bundle"

    def __init__(self, job_id: str) -> None:
        super().__init__(
            f"job {job_id} has no bundle",
            hint="register it when one of its builds has succeeded",
            job=job_id,
        )


class RegistryFull(ServiceError):
    """The tenant has as many of these as it may."""

    code = "registry.full"

    def __init__(self, what: str) -> None:
        super().__init__(
            f"the tenant already has {what}, which is the limit",
            hint="remove those that are no longer needed: relaxd models remove",
        )


class VersionInUse(ServiceError):
    """An alias points at the version that was to be removed."""

    code = "registry.in_use"

    def __init__(self, ref: str, aliases: list[str]) -> None:
        super().__init__(
            f"{ref} cannot be removed: it is named by the alias {', '.join(aliases)}",
            hint="move the alias to another version, or remove it",
            aliases=aliases,
        )


class UnknownWebhook(ServiceError):
    """The tenant has no webhook of that id."""

    code = "webhook.unknown"

    def __init__(self, webhook: str) -> None:
        super().__init__(
            f"there is no webhook {webhook!r}", hint="`relaxd webhook list` lists them"
        )


class TooManyWebhooks(ServiceError):
    """The tenant has as many webhooks as it may."""

    code = "webhook.too_many"

    def __init__(self, limit: int) -> None:
        super().__init__(
            f"the tenant already has {limit} webhooks, which is the limit",
            hint="delete one: `relaxd webhook list`, `relaxd webhook delete ID`",
            limit=limit,
        )


class UnknownTenant(ServiceError):
    """No tenant has that name, or it is not the caller's to ask about."""

    code = "tenant.unknown"

    def __init__(self, name: str) -> None:
        super().__init__(
            f"there is no tenant {name[:80]!r}",
            hint="an operator of the service makes tenants: `relaxd tenant create NAME`",
            tenant=name[:80],
        )


class TenantExists(ServiceError):
    """The name is another tenant's."""

    code = "tenant.exists"

    def __init__(self, name: str) -> None:
        super().__init__(f"the tenant {name!r} already exists", hint="choose another name")


class TenantKept(ServiceError):
    """The operator's own tenant cannot be deleted."""

    code = "tenant.kept"

    def __init__(self, name: str) -> None:
        super().__init__(
            f"the tenant {name!r} belongs to the operator and cannot be deleted", tenant=name
        )


class TenantBusy(ServiceError):
    """Builds of a tenant that is to be deleted still run."""

    code = "tenant.busy"

    def __init__(self, name: str, running: int) -> None:
        super().__init__(
            f"the tenant {name!r} is not deleted yet: {running} of its builds are stopping",
            hint="send the request again in a few seconds",
            tenant=name,
            running=running,
        )


class QuotaExceeded(StoreFull):
    """The tenant may store no more."""

    code = "tenant.quota"

    def __init__(self, tenant: str) -> None:
        super().__init__(
            f"tenant {tenant} may store no more",
            hint="wait until old jobs expire, or ask an operator for a larger quota: "
            "`relaxd tenant set NAME --stored-mb N`",
        )


class TooManyUploads(ServiceError):
    """The tenant has as many uploads under way as it may."""

    code = "tenant.uploads"
    retry_after_s = 10

    def __init__(self, tenant: str, limit: int) -> None:
        super().__init__(
            f"tenant {tenant} may have {limit} uploads under way at a time",
            hint="finish or delete some; an abandoned upload expires. An operator "
            "raises RELAXD_MAX_UPLOADS",
            limit=limit,
        )


class QueueFull(ServiceError):
    """The tenant has as many builds queued as it may."""

    code = "tenant.queue_full"
    retry_after_s = 10

    def __init__(self, tenant: str, limit: int) -> None:
        super().__init__(
            f"tenant {tenant} may have {limit} builds queued at a time",
            hint="try again when some have begun, or ask an operator for more: "
            "`relaxd tenant set NAME --queued N`",
            limit=limit,
        )


class NoWorker(ServiceError):
    """No worker is running, where the caller would not have a job wait for one."""

    code = "worker.none"
    retry_after_s = 5
    """A service that has just been started has its workers a few seconds later."""

    def __init__(self) -> None:
        super().__init__(
            "no worker is running, so the job would wait",
            hint="start one with `relaxd worker`, or submit with --wait-for-worker",
        )


class TargetNotServed(ServiceError):
    """Workers are running, and none of them compiles for the target."""

    code = "worker.target"

    def __init__(self, target: str, served: Sequence[str]) -> None:
        super().__init__(
            f"no running worker compiles for {target}, so its build would wait",
            hint="submit with --wait-for-worker, or choose a target of the running workers: "
            f"{', '.join(served)}",
            target=target,
            served=list(served),
        )


class UnknownToken(ServiceError):
    """The tenant has no such token, or it has ended."""

    code = "token.unknown"

    def __init__(self, token_id: str) -> None:
        super().__init__(
            f"there is no token {token_id[:40]!r}", hint="`relaxd token list` lists the tokens"
        )


class OpenService(ServiceError):
    """Nobody signs in to the service, so that a token would keep nobody out."""

    code = "token.open_service"

    def __init__(self) -> None:
        super().__init__(
            "this service requires no sign-in, so a token would protect nothing",
            hint="set RELAXD_TOKEN or RELAXD_OIDC_ISSUERS on the server first",
        )


class UnknownIssuer(ServiceError):
    """Nobody signs in on the page at that issuer, or not as that client."""

    code = "sign_in.unknown"

    def __init__(self, issuer: str) -> None:
        super().__init__(
            f"nobody can sign in here at {issuer[:200]!r}",
            hint="GET /v1/sign-in lists the issuers; RELAXD_OIDC_ISSUERS names them, with a "
            "`client_id`",
        )


class SignInUnavailable(ServiceError):
    """The issuer does not answer as it should; trying again may help."""

    code = "sign_in.unavailable"

    def __init__(self, issuer: str) -> None:
        super().__init__(
            f"{issuer} did not answer as it should; the service's log says why",
            hint="sign in again in a minute, or with a token",
        )


class SignInRefused(ServiceError):
    """The issuer does not take the code, or no entry the token that it gave."""

    code = "sign_in.refused"

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message, hint=hint)


class DatabaseTooNew(ServiceError):
    """A newer relaxd has migrated the job database; this one does not know its tables."""

    code = "database.too_new"

    def __init__(self, revision: str, known: str) -> None:
        super().__init__(
            f"the job database is at revision {revision} of a newer relaxd; this one knows "
            f"revisions up to {known}",
            hint="run that relaxd, or restore a backup of the database from before its upgrade",
            revision=revision,
            known=known,
        )


class StaleClaim(ServiceError):
    """The worker no longer holds the build: its lease expired, or the build ended; nothing it
    reports is stored.
    """

    code = "claim.stale"
