"""Splits a byte stream that arrives in pieces into lines of bounded length."""


class Lines:
    """Feed bytes, get complete lines as text without their newline; a line longer than `limit`
    bytes is cut there.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._held = bytearray()

    def feed(self, data: bytes) -> list[str]:
        """The lines that `data` completes."""
        if b"\n" not in data:
            self._hold(data)
            return []
        head, *middle, last = data.split(b"\n")
        self._hold(head)
        lines = [bytes(self._held), *middle]
        self._held = bytearray()
        self._hold(last)
        return [line[: self._limit].decode(errors="replace").rstrip("\r") for line in lines]

    def rest(self) -> list[str]:
        """The line begun and not completed, if any, at the end of the stream."""
        return self.feed(b"\n") if self._held else []

    def _hold(self, data: bytes) -> None:
        self._held += data[: max(self._limit - len(self._held), 0)]
