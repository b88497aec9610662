"""Credentials for registries as docker's and podman's configuration has them, and the two ways in
which registries ask for them.
"""

import base64
import binascii
import json
import os
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx

_HUB = "https://index.docker.io/v1/"
_CHALLENGE = re.compile(r'(\w+)="([^"]*)"')
_HELPER_S = 30


def credentials(host: str) -> tuple[str, str] | None:
    """User and password for a registry's host and port, None where nothing is configured."""
    for config in _configurations():
        helpers = config.get("credHelpers")
        helper = (helpers or {}).get(host) if isinstance(helpers, dict) else None
        if helper and (login := _asked(str(helper), host)):
            return login
        if login := _written(config, host):
            return login
        if config.get("credsStore") and (login := _asked(str(config["credsStore"]), host)):
            return login
    return None


def _configurations() -> Iterator[dict[str, Any]]:
    paths = [
        os.environ.get("REGISTRY_AUTH_FILE"),
        os.path.join(os.environ.get("DOCKER_CONFIG") or Path.home() / ".docker", "config.json"),
        os.path.join(os.environ.get("XDG_RUNTIME_DIR") or "/nonexistent", "containers/auth.json"),
    ]
    for path in paths:
        try:
            document = json.loads(Path(path).read_bytes()) if path else None
        except (OSError, ValueError):
            continue
        if isinstance(document, dict):
            yield document


def _written(config: dict[str, Any], host: str) -> tuple[str, str] | None:
    auths = config.get("auths")
    for name, entry in auths.items() if isinstance(auths, dict) else ():
        if _host_of(name) != host or not isinstance(entry, dict):
            continue
        if entry.get("identitytoken"):
            return "<token>", str(entry["identitytoken"])
        try:
            user, colon, password = base64.b64decode(str(entry.get("auth", ""))).partition(b":")
        except binascii.Error:
            continue
        if colon:
            return user.decode(), password.decode()
    return None


def _host_of(name: str) -> str:
    if name == _HUB:
        return "registry-1.docker.io"
    return re.sub(r"^https?://", "", name).partition("/")[0]


def _asked(helper: str, host: str) -> tuple[str, str] | None:
    """Run `docker-credential-HELPER get`; None where it knows no credentials."""
    try:
        done = subprocess.run(
            [f"docker-credential-{helper}", "get"],
            input=host,
            capture_output=True,
            text=True,
            timeout=_HELPER_S,
            check=False,
        )
        answer = json.loads(done.stdout) if done.returncode == 0 else {}
        return str(answer["Username"]), str(answer["Secret"])
    except (OSError, subprocess.TimeoutExpired, ValueError, KeyError, TypeError):
        return None


class RegistryAuth:
    """Answers a registry's challenge: Basic with the credentials, Bearer with a token that the
    realm gives for them, or for nobody where there are none. For answers of that registry only:
    where it redirects, nobody is given credentials, and a realm is not followed elsewhere.

    `header` is the Authorization that the registry took last, None before it asked for one.
    """

    def __init__(self, host: str) -> None:
        self._host = host
        self.header: str | None = None

    def answer(self, refusal: httpx.Response, ask: Callable[[httpx.Request], bytes]) -> bool:
        """True if there is an answer to the challenge, which is `header` then; `ask` sends a
        request to the realm and gives the body of its answer.
        """
        kind, _, rest = refusal.headers.get("WWW-Authenticate", "").partition(" ")
        known = credentials(self._host) if kind else None
        if kind.lower() == "basic":
            self.header = _basic(known) if known else None
        elif kind.lower() == "bearer":
            asked = dict(_CHALLENGE.findall(rest))
            self.header = _bearer(ask(self._token_request(asked, known, refusal.url.scheme)))
        return bool(kind) and self.header is not None

    def _token_request(
        self, asked: dict[str, str], known: tuple[str, str] | None, scheme: str
    ) -> httpx.Request:
        realm = httpx.URL(asked.get("realm", ""))
        if scheme == "https" and realm.scheme != "https":
            raise httpx.UnsupportedProtocol(f"{self._host} asks for credentials at {realm}")
        parts = {name: text for name, text in asked.items() if name in ("service", "scope")}
        if known and known[0] == "<token>":
            grant = {"grant_type": "refresh_token", "refresh_token": known[1]}
            form: dict[str, str] = {**parts, **grant, "client_id": "relaxd"}
            return httpx.Request("POST", realm, data=form)
        headers = {"Authorization": _basic(known)} if known else {}
        return httpx.Request("GET", realm.copy_merge_params(parts), headers=headers)


def _basic(known: tuple[str, str]) -> str:
    return "Basic " + base64.b64encode(":".join(known).encode()).decode()


def _bearer(content: bytes) -> str | None:
    try:
        document = json.loads(content)
    except (ValueError, RecursionError):
        return None
    match document:
        case {"token": str(token)} | {"access_token": str(token)} if token:
            return f"Bearer {token}"
    return None
