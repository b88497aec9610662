"""OpenAI's answers: complete, and in parts."""

import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from relaxd.errors import RelaxdError
from relaxd.llm.generation import Finish, Generation, Piece
from relaxd.llm.logprobs import TokenLogprob
from relaxd.llm.reading import Call, Part, Reader, merge
from relaxd.llm.wire.failures import failure

Document = dict[str, Any]


@dataclass
class Completion:
    """The pieces of one completion; echo: the prompt, where it is repeated."""

    generation: Generation
    reader: Reader
    echo: str | None = None
    pieces: list[Piece] = field(default_factory=list)

    @property
    def finish(self) -> str | None:
        """Why it ended, None as long as it has not."""
        if self.generation.finish is Finish.STOP and self.reader.called:
            return "tool_calls"
        return self.generation.finish and self.generation.finish.value

    @property
    def logprobs(self) -> list[TokenLogprob] | None:
        """The log probabilities of all pieces, None where the request asks for none."""
        if self.generation.sampling.logprobs is None:
            return None
        return [piece.logprob for piece in self.pieces if piece.logprob is not None]

    def read(self) -> tuple[str, str, list[Call]]:
        """The content, the thought and the calls of all pieces."""
        text = "".join(piece.text for piece in self.pieces)
        return merge([self.reader.feed(text, last=True)])


class Answer:
    """The documents of one answer of `n` completions a prompt; spell: the bytes of a token; usage:
    whether a stream ends with it.
    """

    named = False
    """Server-sent events have no names."""

    def __init__(
        self,
        model: str,
        spell: Callable[[int], bytes],
        *,
        chat: bool,
        n: int = 1,
        usage: bool = False,
    ) -> None:
        self._usage = usage
        self._begun: set[int] = set()
        self._chat = chat
        self._n = n
        self._spell = spell
        # By choice, the characters that came before.
        self._lengths: dict[int, int] = {}
        kind = "chat.completion" if chat else "text_completion"
        self._complete = {
            "id": f"{'chatcmpl' if chat else 'cmpl'}-{uuid.uuid4().hex}",
            "object": kind,
            "created": int(time.time()),
            "model": model,
        }
        self._part = {**self._complete, "object": f"{kind}.chunk" if chat else kind}

    def complete(self, completions: Sequence[Completion]) -> Document:
        """The answer at once."""
        choices = [self._choice(index, each) for index, each in enumerate(completions)]
        generations = [completion.generation for completion in completions]
        return {**self._complete, "choices": choices, "usage": usage(generations, self._n)}

    def begin(self, completions: Sequence[Completion]) -> list[Document]:
        """Nothing comes before the first piece."""
        return []

    def feed(self, index: int, completion: Completion, piece: Piece) -> list[Document]:
        """The parts that a piece gives."""
        parts = [] if index in self._begun else [self._first(index, completion)]
        self._begun.add(index)
        return [part for part in (*parts, self._next(index, completion, piece)) if part is not None]

    def end(self, completions: Sequence[Completion]) -> list[Document]:
        """The last part of a stream, where the request asks for it."""
        if not self._usage:
            return []
        counted = usage([completion.generation for completion in completions], self._n)
        return [{**self._part, "choices": [], "usage": counted}]

    def fail(self, error: RelaxdError) -> Document:
        """The document of an error that ends a stream."""
        return failure(error)[1]

    def _first(self, index: int, completion: Completion) -> Document | None:
        """The first part of a choice: the role, or the prompt that is repeated."""
        if self._chat:
            content: Document = {"delta": {"role": "assistant", "content": ""}, "logprobs": None}
        elif completion.echo is not None:
            scored = completion.logprobs is not None
            content = {
                "text": completion.echo,
                "logprobs": self._legacy(index, completion.generation, []) if scored else None,
            }
        else:
            return None
        return {**self._part, "choices": [{"index": index, "finish_reason": None, **content}]}

    def _next(self, index: int, completion: Completion, piece: Piece) -> Document | None:
        """A piece of a choice; None where it has nothing to say yet."""
        last = piece.finish is not None
        part = completion.reader.feed(piece.text, last=last)
        delta = _delta(part)
        if not delta and not last and piece.logprob is None:
            return None
        logprobs = None if piece.logprob is None else [piece.logprob]
        choice = {
            "index": index,
            "finish_reason": completion.finish if last else None,
            "logprobs": self._logprobs(index, None, logprobs),
            **({"delta": delta} if self._chat else {"text": part.content}),
        }
        return {**self._part, "choices": [choice]}

    def _choice(self, index: int, completion: Completion) -> Document:
        text, reasoning, calls = completion.read()
        if self._chat:
            content: Document = {"message": _message(text, reasoning, calls)}
        else:
            content = {"text": (completion.echo or "") + text}
        echoed = None if completion.echo is None else completion.generation
        return {
            "index": index,
            "finish_reason": completion.finish,
            "logprobs": self._logprobs(index, echoed, completion.logprobs),
            **content,
        }

    def _logprobs(
        self, index: int, echoed: Generation | None, logprobs: Sequence[TokenLogprob] | None
    ) -> Document | None:
        if logprobs is None:
            return None
        if self._chat:
            return {"content": [self._token(each) for each in logprobs], "refusal": None}
        return self._legacy(index, echoed, logprobs)

    def _token(self, scored: TokenLogprob) -> Document:
        """A token of a conversation's log probabilities."""
        top = [self._spelled(token, logprob) for token, logprob in scored.top]
        return {**self._spelled(scored.token, scored.logprob), "top_logprobs": top}

    def _spelled(self, token: int, logprob: float) -> Document:
        return {"token": self._word(token), "logprob": logprob, "bytes": list(self._spell(token))}

    def _legacy(
        self, index: int, echoed: Generation | None, logprobs: Sequence[TokenLogprob]
    ) -> Document:
        """Log probabilities as plain completions have them. echoed: whose prompt goes before; the
        first token of a prompt has none.
        """
        before = [] if echoed is None else [None, *echoed.prompt_logprobs]
        scored = [*before, *logprobs]
        head = [] if echoed is None else [self._word(echoed.prompt[0])]
        words = [*head, *(self._word(each.token) for each in scored if each is not None)]
        offsets, length = [], self._lengths.get(index, 0)
        for word in words:
            offsets.append(length)
            length += len(word)
        self._lengths[index] = length
        return {
            "tokens": words,
            "token_logprobs": [each and each.logprob for each in scored],
            "top_logprobs": [
                each and {self._word(token): logprob for token, logprob in each.top}
                for each in scored
            ],
            "text_offset": offsets,
        }

    def _word(self, token: int) -> str:
        """A token's text; bytes that are no whole character are escaped."""
        return self._spell(token).decode(errors="backslashreplace")


def _delta(part: Part) -> Document:
    """The fields that a part of a stream adds to the message."""
    texts = {"content": part.content, "reasoning_content": part.reasoning}
    delta: Document = {name: text for name, text in texts.items() if text}
    return delta | (
        {"tool_calls": [_call_delta(call) for call in part.calls]} if part.calls else {}
    )


def _call_delta(call: Call) -> Document:
    if call.name is None:
        return {"index": call.index, "function": {"arguments": call.arguments}}
    return {"index": call.index, **_call(call)}


def _call(call: Call) -> Document:
    function = {"name": call.name, "arguments": call.arguments}
    return {"id": call.id, "type": "function", "function": function}


def _message(text: str, reasoning: str, calls: Sequence[Call]) -> Document:
    message: Document = {"role": "assistant", "content": text}
    if reasoning:
        message["reasoning_content"] = reasoning
    if calls:
        message |= {"content": text if text.strip() else None}
        message["tool_calls"] = [_call(call) for call in calls]
    return message


def usage(generations: Sequence[Generation], n: int) -> Document:
    """The tokens of the prompts, each of which has `n` completions, with those that were not
    computed again, and of the completions.
    """
    firsts = generations[::n]
    prompt = sum(len(each.prompt) for each in firsts)
    answer = sum(len(each.tokens) for each in generations)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": answer,
        "total_tokens": prompt + answer,
        "prompt_tokens_details": {"cached_tokens": sum(each.reused or 0 for each in firsts)},
    }
