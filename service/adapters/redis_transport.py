"""kombu's transports over Redis, with and without Sentinel, which drop what is no ring of a
doorbell.
"""

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from queue import Empty
from typing import Any

from kombu.transport import redis

from service.adapters.messages import drop, read_ring


class _DistrustfulReading:
    """Reads a queue without trusting what is in it; to be mixed into a channel of kombu's."""

    active_queues: Iterable[str]
    connection_errors: tuple[type[Exception], ...]
    ResponseError: type[Exception]
    priority_steps: Sequence[int]
    conn_or_acquire: Callable[[], AbstractContextManager[Any]]
    _q_for_pri: Callable[[str, int], str]

    def _brpop_read(self, **options: Any) -> Any:
        try:
            return super()._brpop_read(**options)  # type: ignore[misc]
        except (Empty, *self.connection_errors):
            raise
        except self.ResponseError as error:
            self._remove_foreign_keys(self.active_queues, str(error))
        except Exception as error:  # bytes that are no text, or no JSON
            drop(repr(error))
        raise Empty

    def _size(self, queue: str) -> int:
        try:
            return int(super()._size(queue))  # type: ignore[misc]
        except self.ResponseError as error:
            self._remove_foreign_keys([queue], str(error))
        return int(super()._size(queue))  # type: ignore[misc]

    def _remove_foreign_keys(self, queues: Iterable[str], why: str) -> None:
        """Remove what has the name of a queue and is none."""
        with self.conn_or_acquire() as client:
            for queue in queues:
                for priority in self.priority_steps:
                    key = self._q_for_pri(queue, priority)
                    if client.type(key) not in (b"list", b"none"):
                        client.delete(key)
                        drop(why)


class Channel(_DistrustfulReading, redis.Channel):  # type: ignore[misc]
    """A channel to one server."""


class SentinelChannel(_DistrustfulReading, redis.SentinelChannel):  # type: ignore[misc]
    """A channel to the server that Sentinels name as the primary."""


class Transport(redis.Transport):  # type: ignore[misc]
    """The transport to name in `broker_transport`."""

    Channel = Channel

    def _deliver(self, message: Any, queue: str) -> None:
        """Pass a ring on, and nothing else."""
        if (ring := read_ring(message, queue)) is None:
            drop("it is not a notification of a build")
        else:
            super()._deliver(ring, queue)


class SentinelTransport(Transport):
    """The transport to name for `sentinel://` URLs."""

    default_port = 26379
    Channel = SentinelChannel
