"""The error of a file of weights that cannot be read."""


class WeightFileError(Exception):
    """A file is malformed, or has what is not supported; `reason`: which part of the format."""

    def __init__(self, message: str, *, reason: str, hint: str) -> None:
        super().__init__(message)
        self.message = message
        self.reason = reason
        self.hint = hint
