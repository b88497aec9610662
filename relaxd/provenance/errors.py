"""Errors of signing and of checking signatures."""

from relaxd.errors import RelaxdError


class TrustError(RelaxdError):
    """A bundle is not what a trusted key signed; `part` names the part that is wrong: a file,
    `envelope`, `signature`, `statement`, `bundle`, `release`, `memory` or `keys`.
    """

    code = "trust.refused"

    def __init__(self, message: str, *, part: str, hint: str | None = None) -> None:
        super().__init__(message, hint=hint, part=part)
        self.part = part


class TrustUnavailable(RelaxdError):
    """Signatures cannot be made or checked by this installation."""

    code = "trust.unavailable"


class KeyInvalid(RelaxdError):
    """A key cannot be read, or is not of ed25519."""

    code = "trust.key"


class SigningFailed(RelaxdError):
    """The signing command failed, or its signature does not fit the public key."""

    code = "trust.signing"
