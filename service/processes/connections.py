"""Connections of clients that do not keep moving are closed: slow headers, bodies and readers."""

import asyncio
import json
import time
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from service.api.problems import MEDIA_TYPE, TYPE_PREFIX

LINGER_S = 5.0
"""For so long the rest of a body is thrown away once the answer is sent."""
CHECK_S = 0.5

PROBLEM = json.dumps(
    {
        "type": f"{TYPE_PREFIX}http.request_timeout",
        "title": "The request came too slowly",
        "status": 408,
        "detail": "the request did not arrive in time",
        "code": "http.request_timeout",
        "retryable": True,
    }
).encode()


class TimedProtocol(H11Protocol):
    """HTTP/1.1 with deadlines. A header has to arrive within `patience_s`; a body, and an answer
    on its way out, may stop for as long, and must move `least_rate` bytes a second beyond that.
    """

    patience_s = 30.0
    least_rate = 1024

    _timer: asyncio.TimerHandle | None = None
    _phase: str | None = None
    _since = 0.0
    _moved = 0
    _unsent = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for the first header."""
        super().connection_made(transport)
        self._check()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the clock."""
        super().connection_lost(exc)
        self._stop()

    def data_received(self, data: bytes) -> None:
        """Note that the client moves."""
        self._moved += len(data)
        super().data_received(data)
        self._look()
        if self._phase is not None and self._timer is None:
            self._check()

    def pause_writing(self) -> None:
        """The client does not read as fast as we write: watch it."""
        super().pause_writing()
        self._unsent = self.transport.get_write_buffer_size()
        self._look()
        self._check()

    def on_response_complete(self) -> None:
        """Watch what may still come of the request."""
        super().on_response_complete()
        self._look()
        self._check()

    def _look(self) -> None:
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
        self._look()
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
        headers = [
            ("Content-Type", MEDIA_TYPE),
            ("Content-Length", str(len(PROBLEM))),
            ("Connection", "close"),
        ]
        answer: list[Any] = [
            h11.Response(status_code=408, headers=headers),
            h11.Data(data=PROBLEM),
            h11.EndOfMessage(),
        ]
        self.transport.write(b"".join(self.conn.send(event) or b"" for event in answer))
        self.transport.close()

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
