"""OpenAI's answers: complete, and in parts."""

import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from relaxd.llm.generation import Generation, Piece
from relaxd.llm.logprobs import TokenLogprob

Document = dict[str, Any]


@dataclass
class Completion:
    """The pieces of one completion; echo: the prompt, where it is repeated."""

    generation: Generation
    echo: str | None = None
    pieces: list[Piece] = field(default_factory=list)

    @property
    def text(self) -> str:
        """The text of all pieces."""
        return "".join(piece.text for piece in self.pieces)

    @property
    def logprobs(self) -> list[TokenLogprob] | None:
        """The log probabilities of all pieces, None where the request asks for none."""
        if self.generation.sampling.logprobs is None:
            return None
        return [piece.logprob for piece in self.pieces if piece.logprob is not None]


class Answer:
    """The documents of one answer of `n` completions a prompt; spell: the bytes of a token."""

    def __init__(self, model: str, spell: Callable[[int], bytes], *, chat: bool, n: int) -> None:
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

    def first(self, index: int, completion: Completion) -> Document | None:
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

    def part(self, index: int, piece: Piece) -> Document:
        """A piece of a choice."""
        logprobs = None if piece.logprob is None else [piece.logprob]
        if self._chat:
            content = {"delta": {"content": piece.text} if piece.text else {}}
        else:
            content = {"text": piece.text}
        finish = piece.finish and piece.finish.value
        return {
            **self._part,
            "choices": [
                {
                    "index": index,
                    "finish_reason": finish,
                    "logprobs": self._logprobs(index, None, logprobs),
                    **content,
                }
            ],
        }

    def usage(self, generations: Sequence[Generation]) -> Document:
        """The last part of a stream, where the request asks for it."""
        return {**self._part, "choices": [], "usage": usage(generations, self._n)}

    def _choice(self, index: int, completion: Completion) -> Document:
        finish, text = completion.generation.finish, completion.text
        if self._chat:
            content: Document = {"message": {"role": "assistant", "content": text}}
        else:
            content = {"text": (completion.echo or "") + text}
        echoed = None if completion.echo is None else completion.generation
        return {
            "index": index,
            "finish_reason": finish and finish.value,
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
