"""Connections are limited in number, and those of clients that do not keep moving are closed: slow
headers, bodies and readers.
"""

import asyncio
import json
import time
from collections.abc import Callable
from dataclasses import dataclass

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from relaxd.http.errors import MEDIA_TYPE, TYPE_PREFIX

LINGER_S = 5.0
"""For so long the rest of a body is thrown away once the answer is sent."""
CHECK_S = 0.5
LINGERING = 128
LINGER_AWAY_S = 1.0
"""So many connections that were turned away may read their answer, and for so long."""


@dataclass(frozen=True)
class Refusal:
    """An answer of the server itself, behind which the connection closes."""

    status: int
    code: str
    title: str
    detail: str
    headers: tuple[tuple[str, str], ...] = ()


TOO_SLOW = Refusal(
    408,
    "http.request_timeout",
    "The request came too slowly",
    "the request did not arrive in time",
)
TOO_MANY = Refusal(
    503,
    "http.too_many_connections",
    "The service has too many connections",
    "the service has as many connections open as it takes",
    (("Retry-After", "1"),),
)


def problem(refusal: Refusal) -> tuple[str, bytes]:
    """The media type and the body of a problem document, as RFC 9457 describes it."""
    document = {
        "type": f"{TYPE_PREFIX}{refusal.code}",
        "title": refusal.title,
        "status": refusal.status,
        "detail": refusal.detail,
        "code": refusal.code,
        "retryable": True,
    }
    return MEDIA_TYPE, json.dumps(document).encode()


class TimedProtocol(H11Protocol):
    """HTTP/1.1 with deadlines. A header has to arrive within `patience_s`; a body, and an answer
    on its way out, may stop for as long, and must move `least_rate` bytes a second beyond that.

    A connection beyond `most` is answered 503 whatever it asks, and closed. One that waits for
    its next request is kept for `kept_s`, which is longer than HTTP clients and proxies keep theirs
    (5 s to 90 s by default): whoever closes first must not be the one that a request is sent to.
    Where half of `most` are open, it is kept for `crowded_s`. Where all are, the one that has
    waited longest for a header makes room, unless it came within `grace_s`: connections on which
    nobody asks anything keep nobody out. `document` makes the body of what the server refuses here.
    """

    patience_s = 30.0
    least_rate = 1024
    most = 4096
    kept_s, crowded_s = 95.0, 5.0
    grace_s = 1.0
    document: Callable[[Refusal], tuple[str, bytes]] = staticmethod(problem)

    _timer: asyncio.TimerHandle | None = None
    _phase: str | None = None
    _since = 0.0
    _moved = 0
    _unsent = 0
    _is_turned_away = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for the first header."""
        super().connection_made(transport)
        if len(self.connections) > self.most and self._is_one_too_many():
            self._turn_away()
        else:
            self._check()

    def _is_one_too_many(self) -> bool:
        """True if `most` are open, and no connection was closed for this one: the one that
        has waited longest for a header is, if that is long.
        """
        served = [
            other
            for other in self.connections
            if isinstance(other, TimedProtocol) and not other._is_turned_away
        ]
        if len(served) <= self.most:
            return False
        before = time.monotonic() - self.grace_s
        silent = [other for other in served if other._phase == "header" and other._since <= before]
        if not silent:
            return True
        oldest = min(silent, key=lambda other: other._since)
        # It ends later, and must not count until then.
        self.connections.discard(oldest)
        oldest.transport.abort()
        return False

    def _turn_away(self) -> None:
        """Answer before the request has come, and hear no more than the client's end: closing with
        unread bytes would take the answer back.
        """
        self._is_turned_away = True
        self._write(TOO_MANY)
        if len(self.connections) > self.most + LINGERING:
            self.transport.abort()
            return
        self.transport.write_eof()
        self._timer = self.loop.call_later(LINGER_AWAY_S, self.transport.abort)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the clock."""
        super().connection_lost(exc)
        self._stop()

    def data_received(self, data: bytes) -> None:
        """Note that the client moves."""
        if self._is_turned_away:
            return
        self._moved += len(data)
        super().data_received(data)
        self._poll()
        if self._phase is not None and self._timer is None:
            self._check()

    def pause_writing(self) -> None:
        """The client does not read as fast as we write: watch it."""
        super().pause_writing()
        self._unsent = self.transport.get_write_buffer_size()
        self._poll()
        self._check()

    def on_response_complete(self) -> None:
        """Watch what may still come of the request, and keep the connection for the next."""
        crowded = 2 * len(self.connections) >= self.most
        self.timeout_keep_alive = self.crowded_s if crowded else self.kept_s  # type: ignore[assignment]
        super().on_response_complete()
        self._poll()
        self._check()

    def _poll(self) -> None:
        """Find out what the client owes us, and start its clock anew if that has changed."""
        phase = self._owed()
        if phase != self._phase:
            self._phase, self._since, self._moved = phase, time.monotonic(), 0

    def _owed(self) -> str | None:
        answered = self.cycle is None or self.cycle.response_complete
        if self.flow.write_paused:
            return "read"
        if self.conn.their_state is h11.SEND_BODY:
            return "rest" if answered else "body"
        if self.conn.their_state is h11.IDLE and self.timeout_keep_alive_task is None:
            return "header"
        return None

    def _check(self) -> None:
        """Look at the clock, now and again while the client owes us anything."""
        self._stop()
        if self.transport.is_closing() and not self.flow.write_paused:
            return
        self._poll()
        if self._phase is not None and self._is_late():
            self._end()
        elif self._phase is not None:
            self._timer = self.loop.call_later(min(CHECK_S, self.patience_s / 4), self._check)

    def _is_late(self) -> bool:
        spent = time.monotonic() - self._since
        match self._phase:
            case "header":
                return spent > self.patience_s
            case "rest":
                return spent > min(LINGER_S, self.patience_s)
            case "body" if self.flow.read_paused:
                # We do not keep up, not the client.
                self._since, self._moved = time.monotonic(), 0
                return False
            case "read":
                left = self.transport.get_write_buffer_size()
                self._moved += max(self._unsent - left, 0)
                self._unsent = left
        return spent > self.patience_s + self._moved / self.least_rate

    def _end(self) -> None:
        unanswered = self._phase == "header" or not self.cycle.response_started
        if self._phase in ("read", "rest") or not unanswered:
            self.transport.abort()
            return
        if self._phase == "body":
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        self._write(TOO_SLOW)
        self.transport.close()

    def _write(self, refusal: Refusal) -> None:
        """Answer; the connection has to be closed behind it."""
        kind, body = self.document(refusal)
        headers = [
            ("Content-Type", kind),
            ("Content-Length", str(len(body))),
            ("Connection", "close"),
            *refusal.headers,
        ]
        events = (
            h11.Response(status_code=refusal.status, headers=headers),
            h11.Data(data=body),
            h11.EndOfMessage(),
        )
        self.transport.write(b"".join(self.conn.send(event) or b"" for event in events))

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def protocol(
    most: int, document: Callable[[Refusal], tuple[str, bytes]] = problem
) -> type[TimedProtocol]:
    """The protocol of a process that takes so many connections, and refuses more by `document`."""
    members = {"most": most, "document": staticmethod(document)}
    return type("LimitedProtocol", (TimedProtocol,), members)
