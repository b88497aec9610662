"""kombu's transports over Redis and its Sentinels, which drop what is no ring of a doorbell."""

from collections.abc import Iterable
from queue import Empty
from typing import Any

from kombu.transport import redis

from service.adapters.messages import drop, read_ring


class Channel(redis.Channel):  # type: ignore[misc]
    """Reads a queue without trusting what is in it."""

    def _brpop_read(self, **options: Any) -> Any:
        try:
            return super()._brpop_read(**options)
        except (Empty, *self.connection_errors):
            raise
        except self.ResponseError as error:
            self._remove_foreign_keys(self.active_queues, str(error))
        except Exception as error:  # bytes that are no text, or no JSON
            drop(repr(error))
        raise Empty

    def _size(self, queue: str) -> int:
        try:
            return int(super()._size(queue))
        except self.ResponseError as error:
            self._remove_foreign_keys([queue], str(error))
        return int(super()._size(queue))

    def _remove_foreign_keys(self, queues: Iterable[str], why: str) -> None:
        """Remove what has the name of a queue and is none."""
        with self.conn_or_acquire() as client:
            for queue in queues:
                for priority in self.priority_steps:
                    key = self._q_for_pri(queue, priority)
                    if client.type(key) not in (b"list", b"none"):
                        client.delete(key)
                        drop(why)


class SentinelChannel(Channel, redis.SentinelChannel):  # type: ignore[misc]
    """Reads in the same way from the server that Sentinels name as the primary."""


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
