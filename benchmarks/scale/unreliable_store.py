"""A proxy in front of an object store that is late, and refuses some requests with 503 SlowDown, as
clouds do; in bursts most of them.
"""

import asyncio
import multiprocessing
import random
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.sharedctypes import Synchronized
from typing import Any

HEAD_END = b"\r\n\r\n"
MEDIAN_S, SIGMA, LONGEST_S = 0.003, 0.9, 0.25
"""Latency added to a request, log-normal: 99 of 100 are below 25 ms."""
BODY = b"<Error><Code>SlowDown</Code><Message>Reduce your request rate</Message></Error>"
REFUSAL = (
    b"HTTP/1.1 503 Slow Down\r\nContent-Type: application/xml\r\n"
    b"Content-Length: %d\r\n\r\n" % len(BODY)
)


@dataclass(frozen=True)
class Trouble:
    """Shared with the proxy: `refused_share` of the requests get 503; counts of all requests, of
    those that were refused, and seconds of latency in all.
    """

    refused_share: "Synchronized[float]"
    requests: "Synchronized[int]"
    refused: "Synchronized[int]"
    delayed_s: "Synchronized[float]"


@dataclass(frozen=True)
class _Proxy:
    target: tuple[str, int]
    trouble: Trouble
    draw: random.Random

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the requests of one connection."""
        source, sink = await asyncio.open_connection(*self.target)
        try:
            with suppress(asyncio.IncompleteReadError, ConnectionError):
                while True:
                    await self._answer(reader, writer, source, sink)
        finally:
            for end in (writer, sink):
                end.close()

    async def _answer(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        source: asyncio.StreamReader,
        sink: asyncio.StreamWriter,
    ) -> None:
        head = await reader.readuntil(HEAD_END)
        body = await reader.readexactly(int(_header(head, b"content-length") or 0))
        self.trouble.requests.value += 1
        method = head.split(b" ", 1)[0]
        if self.draw.random() < self.trouble.refused_share.value:
            self.trouble.refused.value += 1
            writer.write(REFUSAL + (b"" if method == b"HEAD" else BODY))
        else:
            delay_s = min(LONGEST_S, self.draw.lognormvariate(0, SIGMA) * MEDIAN_S)
            self.trouble.delayed_s.value += delay_s
            await asyncio.sleep(delay_s)
            sink.write(head + body)
            async for part in _response(source, method):
                writer.write(part)
        await writer.drain()


def _header(head: bytes, name: bytes) -> bytes | None:
    """The value of a header, in lower case."""
    _, present, rest = head.lower().partition(b"\r\n" + name + b":")
    return rest.partition(b"\r\n")[0].strip() if present else None


async def _response(source: asyncio.StreamReader, method: bytes) -> Any:
    head = await source.readuntil(HEAD_END)
    yield head
    if method == b"HEAD" or head[9:12] in (b"204", b"304"):
        return
    if _header(head, b"transfer-encoding") == b"chunked":
        size = 1
        while size:
            line = await source.readuntil(b"\r\n")
            size = int(line.partition(b";")[0], 16)
            yield line + await source.readexactly(size + 2)
    else:
        yield await source.readexactly(int(_header(head, b"content-length") or 0))


async def _listen(proxy: _Proxy, port: "Synchronized[int]") -> None:
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0, limit=1 << 20)
    port.value = server.sockets[0].getsockname()[1]
    await server.serve_forever()


def _run(proxy: _Proxy, port: "Synchronized[int]") -> None:
    asyncio.run(_listen(proxy, port))


@contextmanager
def unreliable_store(target: tuple[str, int], seed: int) -> Iterator[tuple[str, Trouble]]:
    """The URL of a proxy in a process of its own, and what steers and counts its trouble."""
    context = multiprocessing.get_context("fork")
    values = (context.Value(kind, 0) for kind in ("d", "q", "q", "d"))
    trouble, port = Trouble(*values), context.Value("i", 0)
    proxy = _Proxy(target, trouble, random.Random(seed))
    process = context.Process(target=_run, args=(proxy, port), daemon=True)
    process.start()
    try:
        while not port.value:
            process.join(0.05)
            if not process.is_alive():
                raise RuntimeError("the proxy of the store did not start")
        yield f"http://127.0.0.1:{port.value}", trouble
    finally:
        process.terminate()
        process.join()
