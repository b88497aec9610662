"""A kombu transport over a folder: messages between processes of one machine, with no server.

kombu's own file system transport may read a message before it is wholly written, and moves messages
through the machine's temporary folder; here a message appears whole, by a rename, and whoever
removes it first has it.
"""

import os
import time
import uuid
from pathlib import Path
from queue import Empty
from typing import Any, ClassVar

from kombu.transport import virtual
from kombu.utils.json import dumps, loads

from service.adapters.messages import drop, read_ring


class Channel(virtual.Channel):  # type: ignore[misc]
    """Each queue is a folder, each message a file in it, oldest name first."""

    def _folder(self, queue: str) -> Path:
        folder = Path(self.connection.client.transport_options["folder"]) / queue
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def _put(self, queue: str, message: dict[str, Any], **_: Any) -> None:
        folder = self._folder(queue)
        name = f"{time.time_ns():020d}-{uuid.uuid4().hex}"
        partial = folder / f".{name}"
        partial.write_text(dumps(message))
        partial.rename(folder / name)

    def _get(self, queue: str, timeout: float | None = None) -> Any:
        folder = self._folder(queue)
        for name in _messages(folder):
            mine = folder / f".{name}.{uuid.uuid4().hex}"
            try:
                (folder / name).rename(mine)
            except FileNotFoundError:
                continue  # Another process was first.
            content = mine.read_bytes()
            mine.unlink()
            try:
                return loads(content.decode())
            except Exception as error:  # kombu's JSON makes objects, which raise what they like
                drop(repr(error))
        raise Empty

    def _size(self, queue: str) -> int:
        return len(_messages(self._folder(queue)))

    def _purge(self, queue: str) -> int:
        names = _messages(self._folder(queue))
        for name in names:
            (self._folder(queue) / name).unlink(missing_ok=True)
        return len(names)


class Transport(virtual.Transport):  # type: ignore[misc]
    """The transport to name in `broker_transport`; transport options: `folder`, `polling_interval`
    in seconds.
    """

    Channel = Channel
    default_port = 0
    default_connection_params: ClassVar[dict[str, Any]] = {}
    driver_type = "spool"
    driver_name = "spool"

    def driver_version(self) -> str:
        """Nothing but the standard library drives it."""
        return "1"

    def _deliver(self, message: Any, queue: str) -> None:
        """Pass a ring on, and nothing else."""
        if (ring := read_ring(message, queue)) is None:
            drop("it is not a notification of a build")
        else:
            super()._deliver(ring, queue)


def _messages(folder: Path) -> list[str]:
    return sorted(name for name in os.listdir(folder) if not name.startswith("."))
