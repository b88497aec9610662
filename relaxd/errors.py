"""Errors of the light package, each with a stable `code` and a hint that names what to change."""

from collections.abc import Iterable
from typing import Any

_OF_THE_SERVER = frozenset({"compiler", "api", "server"})
"""Extras that take the other wheel, too."""


class RelaxdError(Exception):
    """Base of every error that `relaxd` raises; `details` are JSON types."""

    code = "relaxd.error"

    def __init__(self, message: str, *, hint: str | None = None, **details: Any) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.details = details

    def __str__(self) -> str:
        return f"{self.message} ({self.hint})" if self.hint else self.message


def install_hint(extra: str) -> str:
    """How to install an extra: from the wheels, as no package index has them."""
    wheels = f"'./relaxd-VERSION-py3-none-any.whl[{extra}]'"
    if extra in _OF_THE_SERVER:
        wheels += " ./relaxd_server-VERSION-py3-none-any.whl"
    return f"pip install {wheels}"


def suggest(name: str, known: Iterable[str], hint: str) -> str:
    """The hint, after those of the known names of which `name` looks like a misspelling."""
    from difflib import get_close_matches  # it loads slowly, and only a mistake needs it

    close = get_close_matches(name, list(known), 2)
    return f"did you mean {' or '.join(close)}? {hint}" if close else hint


class DeclarationError(RelaxdError):
    """A dim, input, option or target declaration is malformed; `field` names the one at fault."""

    code = "request.invalid"

    def __init__(
        self, message: str, *, field: str, hint: str | None = None, **details: Any
    ) -> None:
        super().__init__(message, hint=hint, field=field, **details)
        self.field = field


class BundleError(RelaxdError):
    """A bundle is incomplete, corrupt, or of a schema this version cannot read."""

    code = "bundle.invalid"


class BundleNotFound(BundleError):
    """There is no bundle at the path that was given."""

    code = "bundle.not_found"


class LoadContractError(RelaxdError):
    """The machine does not meet the load contract: it has `have` in place of `need`."""

    code = "bundle.load_contract"

    def __init__(self, what: str, *, need: str, have: str, hint: str | None = None) -> None:
        super().__init__(
            f"{what}: the bundle needs {need}, this machine has {have}",
            hint=hint,
            need=need,
            have=have,
        )
        self.what = what
        self.need = need
        self.have = have


class InputError(RelaxdError):
    """An input given to a model has the wrong name, dtype, rank, axis or value range."""

    code = "run.input"


class GrammarError(InputError):
    """A grammar or schema that answers have to follow cannot be read or followed."""

    code = "run.grammar"


class AdapterError(InputError):
    """An adapter cannot be loaded, found or dropped; `reason` is `none` where the bundle takes
    none, `base`, `rank` or `targets` where the adapter does not fit it, `unsupported` or `file` for
    what is not read, `name`, `full` or `count` where there is no such slot.
    """

    code = "run.adapter"

    def __init__(self, message: str, *, reason: str, hint: str, **details: Any) -> None:
        super().__init__(message, hint=hint, reason=reason, **details)
        self.reason = reason


class UnknownAdapterError(AdapterError):
    """No adapter of that name is loaded."""

    code = "run.unknown_adapter"

    def __init__(self, message: str, *, hint: str, **details: Any) -> None:
        super().__init__(message, hint=hint, reason="unknown", **details)


class AdapterInUseError(AdapterError):
    """An adapter cannot be dropped as completions use it."""

    code = "run.adapter_in_use"

    def __init__(self, message: str, *, hint: str, **details: Any) -> None:
        super().__init__(message, hint=hint, reason="in_use", **details)


class CapacityError(RelaxdError):
    """More tokens are given than the caches of a state have room for."""

    code = "run.capacity"

    def __init__(self, tokens: int, capacity: int) -> None:
        super().__init__(
            f"{tokens} tokens are too many: there is room for {capacity}",
            hint="shorten the prompt, truncate or reset the state, or give a greater capacity; a "
            "model's largest is the maximum of its dim when it is compiled",
            tokens=tokens,
            capacity=capacity,
        )


class CacheFullError(RelaxdError):
    """The pages of KV caches take as much memory as they may, and more blocks are needed."""

    code = "run.cache_memory"

    def __init__(self, missing: int, limit: int) -> None:
        super().__init__(
            f"the KV cache is full: {missing} blocks are missing, the limit is {limit}",
            hint="give it more memory (--cache-memory), or run fewer sequences at once",
            missing=missing,
            limit=limit,
        )


class PagesError(InputError):
    """The KV cache of a model cannot be in pages."""

    code = "run.pages"


class OverloadError(RelaxdError):
    """A request is not taken: too many wait. `retry_after`: seconds after which there may be
    room.
    """

    code = "run.overload"

    def __init__(self, message: str, *, retry_after: int, hint: str | None = None) -> None:
        super().__init__(message, hint=hint, retry_after=retry_after)
        self.retry_after = retry_after


class ClosedError(OverloadError):
    """A request is not taken: nobody answers any more."""

    code = "run.closed"


class UnverifiedError(RelaxdError):
    """A build was not verified where the caller requires it; `status` and `verdict` say what it
    has.
    """

    code = "verify.required"


class EstimateError(RelaxdError):
    """A profile cannot tell how long a call takes at the dims; `reason` is `not_measured`,
    `no_grid`, `too_few_points`, `dims` or `range`.
    """

    code = "estimate.refused"

    def __init__(self, message: str, *, reason: str, hint: str | None = None) -> None:
        super().__init__(message, hint=hint, reason=reason)
        self.reason = reason


class ExecutionError(RelaxdError):
    """The compiled library failed while it ran."""

    code = "run.failed"


class ServerError(RelaxdError):
    """The service answered with a problem document; `status` is the HTTP status, `problem` the
    document.
    """

    code = "server.problem"

    def __init__(self, message: str, *, status: int, problem: dict[str, Any]) -> None:
        super().__init__(message, hint=problem.get("hint"))
        self.status = status
        self.problem = problem


class ServerUnreachable(RelaxdError):
    """No service answered at the URL."""

    code = "server.unreachable"
