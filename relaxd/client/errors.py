"""Errors that only a client of the service meets."""

from typing import Any

from relaxd.errors import RelaxdError


class JobFailed(RelaxdError):
    """A build did not succeed; `failure` is its error document, with `code`, `stage`, `node` and
    `op` where they apply.
    """

    code = "job.failed"

    def __init__(self, message: str, *, failure: dict[str, Any], hint: str | None = None) -> None:
        super().__init__(message, hint=hint, failure=failure)
        self.failure = failure


class WaitTimeout(RelaxdError, TimeoutError):
    """The job was still under way when the time given to `wait` was up; the job goes on."""

    code = "client.wait_timeout"


class FileTrouble(RelaxdError):
    """The system refuses to read or write a file or folder that the caller named, or its disk is
    full.
    """

    code = "client.file"


class PullError(RelaxdError):
    """An artifact cannot be pulled: a reference that names nothing, content that belies its digest,
    a folder in the way.
    """

    code = "client.pull"
