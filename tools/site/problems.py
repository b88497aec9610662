"""The reference of problem documents, from the table of errors."""

from relaxd.errors import RelaxdError
from service.api.problems import INTERNAL, KINDS
from tools.site.tables import table


def page() -> str:
    """Every class of errors with its code, status and title."""
    rows = [
        (
            f"`{error.code}`" if issubclass(error, RelaxdError) else "",
            f"{int(kind.status)}",
            kind.title,
            "yes" if kind.retryable else "",
        )
        for error, kind in KINDS
        if kind is not INTERNAL
    ]
    return "\n".join(
        (
            "# Problems",
            "",
            "Every error is a problem document ([members](http-api.md#problems)). Its `type` is "
            "`urn:relaxd:problem:` and the code. What fails inside a build has a code of its stage "
            "below the one listed here, such as `import.unsupported_operator`; clients that meet a "
            "code which they do not know go by the status.",
            "",
            table(("code", "status", "title", "the same request may succeed later"), rows),
        )
    )
