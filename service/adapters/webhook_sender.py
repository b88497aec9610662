"""Posts to the URLs of webhooks, which anyone may name: to public addresses alone, unless the
settings allow others. The address that was checked is the one that is connected to.
"""

import contextlib
import http.client
import ipaddress
import socket
import ssl
import threading
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

from relaxd.http.public_addresses import is_public

TIMEOUT_S = 10.0
"""For connecting, and for each wait for the receiver."""
DEADLINE_S = 30.0
"""For all after connecting: a receiver may send a byte at a time."""


def post(
    url: str,
    body: bytes,
    headers: Mapping[str, str],
    *,
    private: bool = False,
    resolve: Callable[..., Any] = socket.getaddrinfo,
) -> str | None:
    """Why the receiver did not take the message, or None if it did (a status of 2xx). Redirects
    are not followed, and no proxy is used.

    private: whether other than public addresses, and plain HTTP, are allowed.
    """
    try:
        return _post(url, body, headers, private, resolve)
    except (OSError, ssl.SSLError, http.client.HTTPException, ValueError) as error:
        return f"{type(error).__name__}: {error}"[:300]


def _post(
    url: str,
    body: bytes,
    headers: Mapping[str, str],
    private: bool,
    resolve: Callable[..., Any],
) -> str | None:
    parts = urlsplit(url)
    host, is_plain = parts.hostname or "", parts.scheme == "http"
    port = parts.port or (80 if is_plain else 443)
    if is_plain and not private:
        return "plain HTTP is not allowed"
    resolved = resolve(host, port, type=socket.SOCK_STREAM)
    addresses = [str(entry[4][0]) for entry in resolved]
    # Of a name with addresses of both kinds, none is taken.
    if not private and not all(is_public(ipaddress.ip_address(one)) for one in addresses):
        return f"{host} is not a public address"
    connection = _Pinned(host, port, addresses[0], is_plain=is_plain)
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    deadline = threading.Timer(DEADLINE_S, connection.abort)
    deadline.start()
    try:
        connection.request("POST", path, body, dict(headers))
        status = connection.getresponse().status
    except (OSError, http.client.HTTPException) as error:
        if connection.aborted:
            raise TimeoutError(f"no answer within {DEADLINE_S:g} s") from error
        raise
    finally:
        deadline.cancel()
        connection.close()
    return None if 200 <= status < 300 else f"HTTP {status}"


class _Pinned(http.client.HTTPConnection):
    """A connection to one address of a host, over TLS to the host's name unless `is_plain`."""

    def __init__(self, host: str, port: int, address: str, *, is_plain: bool) -> None:
        super().__init__(host, port, timeout=TIMEOUT_S)
        self._address, self._is_plain = address, is_plain
        self.aborted = False

    def abort(self) -> None:
        """End what another thread waits for."""
        self.aborted = True
        with contextlib.suppress(OSError):
            if self.sock is not None:
                self.sock.shutdown(socket.SHUT_RDWR)

    def connect(self) -> None:
        """Connect to the address, whatever the name means by now."""
        plain = socket.create_connection((self._address, self.port), TIMEOUT_S)
        plain.settimeout(TIMEOUT_S)
        self.sock = plain
        if not self._is_plain:
            context = ssl.create_default_context()
            # Shaken hands later, by when `abort` knows the socket.
            secured = context.wrap_socket(
                plain, server_hostname=self.host, do_handshake_on_connect=False
            )
            self.sock = secured
            secured.do_handshake()
