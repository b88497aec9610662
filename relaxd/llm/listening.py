"""Completions of one request whose pieces the engine's thread hands to the event loop."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import replace
from functools import partial

from relaxd.errors import InputError
from relaxd.llm.conversation import Conversation, begin_conversation
from relaxd.llm.engine import Engine
from relaxd.llm.generation import Generation, Piece
from relaxd.llm.sampling import Sampling
from relaxd.llm.wire.answers import Completion
from relaxd.llm.wire.requests import Asked


class Listening:
    """The completions of a request by their index; made in the event loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._pieces: asyncio.Queue[tuple[int, Piece]] = asyncio.Queue()
        self.completions: list[Completion] = []

    @property
    def generations(self) -> list[Generation]:
        """The completions as the engine has them."""
        return [completion.generation for completion in self.completions]

    def begin(self, engine: Engine, want: Asked) -> None:
        """Begin all completions, or none; raises as the engine does. Not in the event loop: others
        wait while a long prompt is encoded.
        """
        if (count := want.n * max(len(want.prompts), 1)) > engine.most_requests:
            raise InputError(
                f"{count} completions are more than the {engine.most_requests} that may run and"
                " wait",
                field="n",
            )
        try:
            if want.messages is not None:
                conversation = begin_conversation(engine, want)
                self._begin_each(engine, want, conversation)
            for prompt in want.prompts:
                echo = _echo(engine, prompt) if want.echo else None
                self._begin_each(engine, want, _plain(engine.encode(prompt), want), echo)
        except BaseException:
            self.cancel()
            raise

    def cancel(self) -> None:
        """End all completions before their next tokens."""
        for generation in self.generations:
            generation.cancel()

    def _begin_each(
        self, engine: Engine, want: Asked, conversation: Conversation, echo: str | None = None
    ) -> None:
        for number in range(want.n):
            begun = engine.generate(
                conversation.tokens,
                _vary(conversation.sampling, number),
                partial(self._hear, len(self.completions)),
                priority=want.priority,
                shown=conversation.shown,
                adapter=want.adapter,
            )
            self.completions.append(Completion(begun, conversation.make_reader(), echo))

    def _hear(self, index: int, piece: Piece) -> None:
        # The loop may be closed by the time that the engine notices.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._pieces.put_nowait, (index, piece))

    async def __aiter__(self) -> AsyncIterator[tuple[int, Piece]]:
        left = len(self.completions)
        while left:
            index, piece = await self._pieces.get()
            if piece.error is not None:
                raise piece.error
            yield index, piece
            left -= piece.finish is not None

    async def read_all(self) -> None:
        """Read all pieces into their completions."""
        async for index, piece in self:
            self.completions[index].pieces.append(piece)


def _plain(tokens: list[int], want: Asked) -> Conversation:
    return Conversation(tokens, want.sampling)


def _vary(sampling: Sampling, number: int) -> Sampling:
    """Give each completion of a prompt draws of its own."""
    if sampling.seed is None or not number:
        return sampling
    return replace(sampling, seed=(sampling.seed + number) % (1 << 64))


def _echo(engine: Engine, prompt: str | list[int]) -> str:
    if isinstance(prompt, str):
        return prompt
    return "" if engine.text is None else engine.text.decode(prompt)
