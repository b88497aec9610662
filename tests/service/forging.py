"""Forged tokens, and a service with an issuer that they are sent to."""

import base64
import hashlib
import hmac
import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import jwt
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from service.identity import Scope
from service.usecases.tenants import tokens
from tests.service.issuer import AUDIENCE, EC, RSA, Served, public, serving
from tests.service.tenancy import OPERATOR, House, house

STRANGER = rsa.generate_private_key(public_exponent=65537, key_size=2048)
STRANGER_EC = ec.generate_private_key(ec.SECP256R1())


@dataclass
class World:
    """The service, the issuer that it trusts, and claims that it takes."""

    house: House
    issuer: Served

    def claims(self, **changes: Any) -> dict[str, Any]:
        now = time.time()
        claims = {
            "iss": self.issuer.url,
            "aud": AUDIENCE,
            "sub": "repo:acme/models",
            "iat": now - 5,
            "nbf": now - 5,
            "exp": now + 300,
            "repository": "acme/models",
            "ref": "refs/heads/main",
        }
        return {key: value for key, value in (claims | changes).items() if value is not None}

    def token(self, key: Any = RSA, alg: str = "RS256", kid: Any = "rsa", **changes: Any) -> str:
        headers = {} if kid is None else {"kid": kid}
        return jwt.encode(self.claims(**changes), key, algorithm=alg, headers=headers)


@contextmanager
def trusting(folder: Path) -> Iterator[World]:
    """A service whose tenant `a` takes tokens of an issuer."""
    with serving() as issuer:
        entry = {
            "issuer": issuer.url,
            "audience": AUDIENCE,
            "algorithms": ["RS256", "ES256"],
            "claims": {"repository": "acme/*", "ref": ["refs/heads/main", "refs/tags/v*"]},
            "tenant": "a",
            "scopes": ["submit", "read"],
        }
        lost = {**entry, "claims": {"repository": "lost/models"}, "tenant": "nobody"}
        path = folder / "issuers.json"
        path.write_text(json.dumps({"issuer": [entry, lost]}))
        with house(folder, oidc_issuers=path) as running:
            yield World(running, issuer)


def status_of(world: World, credential: str, method: str = "GET", path: str = "/v1/jobs") -> int:
    """The answer to a request with the credential."""
    # httpx takes no header that is not ASCII.
    header = b"Bearer " + credential.encode("utf-8", "surrogatepass")
    url = f"{world.house.live.url}{path}"
    with httpx.stream(method, url, headers={b"Authorization": header}) as answer:
        return answer.status_code


def raw(header: dict[str, Any], claims: Any, signature: bytes = b"") -> str:
    parts = [json.dumps(part).encode() for part in (header, claims)]
    return ".".join(encode(part) for part in (*parts, signature))


def encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def hmac_with_the_public_key(world: World, form: serialization.Encoding, alg: str) -> str:
    kinds = serialization.PublicFormat
    kind = kinds.PKCS1 if form is serialization.Encoding.DER else kinds.SubjectPublicKeyInfo
    secret = RSA.public_key().public_bytes(form, kind)
    unsigned = raw({"alg": alg, "kid": "rsa"}, world.claims()).rpartition(".")[0]
    digest = getattr(hashlib, f"sha{alg[2:]}")
    return f"{unsigned}.{encode(hmac.new(secret, unsigned.encode(), digest).digest())}"


def swapped_payload(world: World) -> str:
    header, _, signature = world.token().split(".")
    payload = encode(json.dumps(world.claims(repository="acme/other")).encode())
    return f"{header}.{payload}.{signature}"


def own_jwk(world: World) -> str:
    headers = {"kid": "rsa", "jwk": public(STRANGER, "rsa"), "jku": f"{world.issuer.url}/keys"}
    return jwt.encode(world.claims(), STRANGER, algorithm="RS256", headers=headers)


def of_a_token(world: World, change: Callable[[str, str], str]) -> str:
    """A token of tenant b, changed."""
    text = tokens.create(world.house.core, "b", "x", [Scope.READ]).text
    _, token_id, secret = text.split("_")
    return change(token_id, secret)


def other_id(world: World) -> str:
    theirs = tokens.create(world.house.core, "a", "y", [Scope.ADMIN]).token.id
    return of_a_token(world, lambda token_id, secret: f"relaxd_{theirs}_{secret}")


PEM, DER = serialization.Encoding.PEM, serialization.Encoding.DER
FORGED: dict[str, Callable[[World], str]] = {
    "alg none": lambda w: raw({"alg": "none", "kid": "rsa"}, w.claims()),
    "alg None": lambda w: raw({"alg": "None", "kid": "rsa"}, w.claims()),
    "alg NONE": lambda w: raw({"alg": "NONE"}, w.claims()),
    "no alg": lambda w: raw({"kid": "rsa"}, w.claims()),
    "alg a list": lambda w: raw({"alg": ["RS256"], "kid": "rsa"}, w.claims()),
    "HS256 by the public key in PEM": lambda w: hmac_with_the_public_key(w, PEM, "HS256"),
    "HS512 by the public key in PEM": lambda w: hmac_with_the_public_key(w, PEM, "HS512"),
    "HS256 by the public key in DER": lambda w: hmac_with_the_public_key(w, DER, "HS256"),
    "HS256 by nothing": lambda w: jwt.encode(w.claims(), "x" * 32, headers={"kid": "rsa"}),
    "an algorithm that is not pinned": lambda w: w.token(alg="RS512"),
    "PS256 by the right key": lambda w: w.token(alg="PS256"),
    "ES256 with the RSA key's id": lambda w: w.token(EC, "ES256"),
    "RS256 with the EC key's id": lambda w: w.token(kid="ec"),
    "another's key": lambda w: w.token(STRANGER),
    "another's EC key": lambda w: w.token(STRANGER_EC, "ES256", "ec"),
    "another's key in the header": own_jwk,
    "an unknown key id": lambda w: w.token(kid="unknown"),
    "no key id": lambda w: w.token(kid=None),
    "a key id of a path": lambda w: w.token(STRANGER, kid="../../dev/null"),
    "no signature": lambda w: w.token().rpartition(".")[0] + ".",
    "two parts": lambda w: w.token().rpartition(".")[0],
    "half a signature": lambda w: w.token()[:-170],
    "a signature more": lambda w: w.token() + ".x",
    "another payload": swapped_payload,
    "another issuer": lambda w: w.token(iss="https://evil.example"),
    "an issuer with a slash": lambda w: w.token(iss=w.issuer.url + "/"),
    "no issuer": lambda w: w.token(iss=None),
    "issuers": lambda w: raw({"alg": "RS256", "kid": "rsa"}, w.claims(iss=[w.issuer.url])),
    "another audience": lambda w: w.token(aud="https://other.example"),
    "an audience that begins alike": lambda w: w.token(aud=AUDIENCE + ".evil"),
    "no audience": lambda w: w.token(aud=None),
    "expired": lambda w: w.token(exp=time.time() - 60),
    "no expiry": lambda w: w.token(exp=None),
    "an expiry that is no number": lambda w: raw(
        {"alg": "RS256", "kid": "rsa"}, w.claims(exp="tomorrow")
    ),
    "not valid yet": lambda w: w.token(nbf=time.time() + 120),
    "issued in the future": lambda w: w.token(iat=time.time() + 120),
    "no time of issue": lambda w: w.token(iat=None),
    "no subject": lambda w: w.token(sub=None),
    "another repository": lambda w: w.token(repository="evil/models"),
    "a repository that begins alike": lambda w: w.token(repository="acme-evil/models"),
    "no repository": lambda w: w.token(repository=None),
    "another branch": lambda w: w.token(ref="refs/heads/evil"),
    "a tenant that is not there": lambda w: w.token(repository="lost/models"),
    "claims that are a list": lambda w: raw({"alg": "RS256", "kid": "rsa"}, [w.claims()]),
    "not even JSON": lambda w: "e30.e30.e30",
    "deep JSON": lambda w: encode(b"[" * 5000) + ".e30.e30",
    "a surrogate": lambda w: "relaxd_\udcff",
    "long": lambda w: "x" * 20_000,
    "another's id with one's own secret": other_id,
    "an id that is not there": lambda w: of_a_token(w, lambda i, s: f"relaxd_{'0' * 16}_{s}"),
    "a truncated secret": lambda w: of_a_token(w, lambda i, s: f"relaxd_{i}_{s[:-1]}"),
    "a secret with a zero": lambda w: of_a_token(w, lambda i, s: f"relaxd_{i}_{s}0"),
    "upper case": lambda w: of_a_token(w, lambda i, s: f"relaxd_{i}_{s.upper()}g"),
    "no secret": lambda w: of_a_token(w, lambda i, s: f"relaxd_{i}_"),
    "a hash for the secret": lambda w: of_a_token(
        w, lambda i, s: f"relaxd_{i}_{hashlib.sha256(s.encode()).hexdigest()}"
    ),
    "SQL": lambda w: f"relaxd_{'0' * 16}' OR '1'='1",
    "the operator's, truncated": lambda w: OPERATOR[:-1],
    "the operator's and more": lambda w: OPERATOR + "x",
}
