"""A port that leads to a server, another one later, and may be slow: what stands before databases
that fail over.
"""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

CHUNK = 1 << 16


@dataclass
class Forwarder:
    """Forwards connections to `target`, each part of them after `delay_s`. Those that are open stay
    with the server that they were made to.
    """

    target: tuple[str, int]
    delay_s: float = 0.0
    listener: socket.socket = field(default_factory=lambda: socket.create_server(("127.0.0.1", 0)))

    @property
    def port(self) -> int:
        """The port to connect to."""
        return int(self.listener.getsockname()[1])

    def serve(self) -> None:
        """Forward until the listener is closed."""
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(self.target)
            except OSError:
                client.close()
                continue
            for ends in ((client, server), (server, client)):
                threading.Thread(target=self._pass_on, args=ends, daemon=True).start()

    def _pass_on(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while part := source.recv(CHUNK):
                time.sleep(self.delay_s)
                sink.sendall(part)
        for end in (source, sink):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()


@contextmanager
def forwarding(target: tuple[str, int], host: str = "127.0.0.1") -> Iterator[Forwarder]:
    """A forwarder at that address for as long as the context lasts."""
    forwarder = Forwarder(target, listener=socket.create_server((host, 0)))
    thread = threading.Thread(target=forwarder.serve, daemon=True)
    thread.start()
    try:
        yield forwarder
    finally:
        forwarder.listener.shutdown(socket.SHUT_RDWR)
        forwarder.listener.close()
        thread.join()
