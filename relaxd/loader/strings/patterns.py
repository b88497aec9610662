"""Regular expressions, by RE2, which ONNX Runtime matches them with too: in linear time."""

from typing import Any

from relaxd.loader.strings.registry import explain_lack

PACKAGE = "google-re2"


def compile_pattern(pattern: str, *, longest: bool = False) -> Any:
    """The pattern, with the methods of Python's own; raises ValueError for one that cannot be read,
    LoadContractError where the library is not installed.

    longest: of the matches that begin at one character, the longest, not the first, is found.
    """
    if not isinstance(pattern, str):
        raise TypeError("a pattern is no string")
    try:
        import re2
    except ImportError as error:
        raise explain_lack("the patterns of the model's texts", PACKAGE) from error
    options = re2.Options()
    options.log_errors, options.longest_match = False, longest
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        reason = error.args[0]
        raise ValueError(f"the pattern {pattern[:60]!r} cannot be read: {reason!s}") from error
