"""Errors of the service; each carries a stable `code`, and the API maps each to one problem."""

from relaxd.contract.failures import Failure
from relaxd.errors import RelaxdError


class ServiceError(RelaxdError):
    """Base of every error that the service's use cases raise."""

    code = "service.error"


class InvalidSettings(ServiceError):
    """A RELAXD_ variable has a value that cannot work."""

    code = "settings.invalid"


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
    """The job database does not answer, or was busy for too long; trying again may help."""

    code = "database.unavailable"

    def __init__(self, why: str) -> None:
        super().__init__(
            f"the job database does not answer: {why.strip()}",
            hint="check RELAXD_DATABASE_URL and that the server runs",
        )


class ChoreTaken(ServiceError):
    """Another process is at the work that only one may do at a time."""

    code = "chore.taken"

    def __init__(self, name: str, holder: str) -> None:
        super().__init__(
            f"{name} is under way in {holder}", hint="try again when it has ended", holder=holder
        )


class UnknownPin(ServiceError):
    """The digest is not pinned."""

    code = "pin.unknown"

    def __init__(self, digest: str) -> None:
        super().__init__(
            f"{digest} is not pinned", hint="`relaxd pin --list` lists the pins", digest=digest
        )


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
