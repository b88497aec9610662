"""Tokens of foreign issuers (OpenID Connect): which are trusted, and for which tenant."""

import fnmatch
import json
import tomllib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import structlog
from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError, model_validator

from service.errors import InvalidSettings
from service.identity import DEFAULT, Method, Principal, Scope, is_tenant_name
from service.settings import Settings

if TYPE_CHECKING:
    from service.adapters.sign_in import SignIn

Algorithm = Literal[
    "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"
]
"""Asymmetric ones alone: with the others, whoever can check a token can also make one."""
LEEWAY_S = 30.0
"""How far the issuer's clock may be off."""

logger = structlog.get_logger("relaxd.oidc")


class Issuer(BaseModel):
    """One entry of the file: tokens of `issuer` for `audience` whose claims all match stand for
    `tenant` with `scopes`.

    claims: by name, one text or several; `*` stands for any characters. jwks_url: where the keys
    are; found at the issuer if left out. client_id: under which people sign in on the web page,
    whose ID tokens have it for their audience; login_scopes: what is asked of the issuer, beside
    `openid`, for claims that the entry names; client_secret: for an issuer that wants one.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    issuer: Annotated[str, Field(pattern=r"^https?://")]
    audience: Annotated[str, Field(min_length=1)]
    algorithms: Annotated[tuple[Algorithm, ...], Field(min_length=1)] = ("RS256",)
    claims: dict[str, str | tuple[str, ...]] = {}
    tenant: str
    scopes: Annotated[frozenset[Scope], Field(min_length=1)]
    jwks_url: Annotated[str, Field(pattern=r"^https?://")] | None = None
    client_id: Annotated[str, Field(min_length=1)] | None = None
    client_secret: SecretStr | None = None
    login_scopes: tuple[Annotated[str, Field(pattern=r"^[!#-\[\]-~]+$")], ...] = ()

    @model_validator(mode="before")
    @classmethod
    def _the_audience_is_the_client(cls, entry: Any) -> Any:
        if not isinstance(entry, dict) or "client_id" not in entry:
            return entry
        entry = {"audience": entry["client_id"], **entry}
        if entry["audience"] != entry["client_id"]:
            raise ValueError("leave `audience` out: ID tokens of the page are for its client_id")
        return entry

    def matches(self, claims: Mapping[str, Any]) -> bool:
        """True if every claim that the entry names is there and fits."""
        return all(
            _fits(claims.get(name), (wanted,) if isinstance(wanted, str) else wanted)
            for name, wanted in self.claims.items()
        )


def _fits(value: Any, patterns: Sequence[str]) -> bool:
    """True if a claim, or a member of one that is a list, fits a pattern; a boolean reads `true` or
    `false`.
    """
    values = value if isinstance(value, list) else [value]
    texts = [
        str(one).lower() if isinstance(one, bool) else str(one)
        for one in values
        if isinstance(one, (str, int))
    ]
    return any(fnmatch.fnmatchcase(text, pattern) for text in texts for pattern in patterns)


def read_issuers(path: Path) -> tuple[Issuer, ...]:
    """The entries of a file, `[[issuer]]` tables in TOML or a list `issuer` in JSON; raises
    InvalidSettings.
    """
    try:
        text = path.read_text()
        document = json.loads(text) if path.suffix == ".json" else tomllib.loads(text)
        issuers = tuple(Issuer.model_validate(entry) for entry in document["issuer"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InvalidSettings(
            f"RELAXD_OIDC_ISSUERS: {path} does not list issuers: {_reason(error)}",
            hint="each needs issuer, audience, tenant and scopes",
        ) from None
    for entry in issuers:
        if entry.tenant != DEFAULT and not is_tenant_name(entry.tenant):
            raise InvalidSettings(
                f"RELAXD_OIDC_ISSUERS: {entry.tenant!r} is not a tenant", hint="correct the file"
            )
    return issuers


def _reason(error: Exception) -> str:
    if isinstance(error, ValidationError):
        return "; ".join(
            f"{'.'.join(map(str, mistake['loc']))}: {mistake['msg']}"
            for mistake in error.errors(include_input=False, include_url=False)
        )
    return f"{type(error).__name__}: {error}"


class Verifier:
    """Checks tokens against the entries; safe to use from several threads."""

    def __init__(
        self, issuers: Sequence[Issuer], key_of: Callable[[Issuer, str], Any | None]
    ) -> None:
        self._issuers = issuers
        self._key_of = key_of

    def __call__(self, token: str) -> Principal | None:
        """The principal of the first entry that the token meets; None for every other token."""
        import jwt

        try:
            header = jwt.get_unverified_header(token)
            claimed = jwt.decode(token, options={"verify_signature": False})
        except (jwt.PyJWTError, ValueError, RecursionError):
            return None
        entries = [entry for entry in self._issuers if entry.issuer == claimed.get("iss")]
        for entry in entries:
            principal = self._check(entry, token, header)
            if principal is not None:
                return principal
        return None

    def _check(self, entry: Issuer, token: str, header: Mapping[str, Any]) -> Principal | None:
        import jwt

        kid = header.get("kid")
        # Before a key is looked for: a token with another algorithm costs its issuer no request.
        if header.get("alg") not in entry.algorithms or not isinstance(kid, str):
            return None
        key = self._key_of(entry, kid)
        if key is None:
            return None
        try:
            claims = jwt.decode(
                token,
                key,
                algorithms=list(entry.algorithms),
                audience=entry.audience,
                issuer=entry.issuer,
                leeway=LEEWAY_S,
                options={"require": ["exp", "iat", "aud", "iss", "sub"]},
            )
        except (jwt.PyJWTError, ValueError, TypeError) as error:
            logger.info("a token was refused", issuer=entry.issuer, reason=str(error))
            return None
        if not entry.matches(claims):
            return None
        return Principal(entry.tenant, str(claims["sub"])[:200], entry.scopes, Method.OIDC)


def trust_issuers(settings: Settings) -> tuple[Verifier | None, "SignIn | None"]:
    """Make the verifier of tokens of the configured issuers, and the sign-in of people at them;
    None where there are none. Raises InvalidSettings.
    """
    if settings.oidc_issuers is None:
        return None, None
    from service.adapters.issuer_documents import IssuerDocuments
    from service.adapters.issuer_keys import IssuerKeys
    from service.adapters.sign_in import SignIn

    entries, documents = read_issuers(settings.oidc_issuers), IssuerDocuments()
    return Verifier(entries, IssuerKeys(documents).key), SignIn(entries, documents)
