"""OpenAI's responses, without state: a request as one of a conversation, the answer as items, and
its events.
"""

import time
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from relaxd.errors import InputError, RelaxdError
from relaxd.llm.generation import Finish, Generation, Piece
from relaxd.llm.reading import Call, Part
from relaxd.llm.wire.answers import Completion
from relaxd.llm.wire.documents import read_field, read_object
from relaxd.llm.wire.failures import failure

Document = dict[str, Any]
_SAME = (
    "model", "temperature", "top_p", "stream", "parallel_tool_calls", "priority", "seed", "top_k",
    "min_p", "presence_penalty", "frequency_penalty", "repetition_penalty", "logit_bias", "stop",
    "stop_token_ids", "chat_template_kwargs",
)  # fmt: skip
"""Fields that a conversation has by the same name."""
_REFUSED = ("previous_response_id", "conversation", "background", "prompt", "top_logprobs")
_ECHOED = ("instructions", "max_output_tokens", "temperature", "top_p", "metadata", "text")


def convert_request(document: Any) -> Document:
    """Write a request for a response as one for a conversation's answer; raises InputError for what
    a server without state cannot follow.
    """
    fields = read_object(document)
    for name in _REFUSED:
        if fields.get(name):
            raise InputError(f"{name} is not supported", hint="leave it out", field=name)
    converted: Document = {name: fields[name] for name in _SAME if name in fields}
    converted["messages"] = _messages(fields)
    converted["max_completion_tokens"] = read_field(fields, "max_output_tokens", int)
    tools = read_field(fields, "tools", list) or []
    converted["tools"] = [_tool(tool) for tool in tools]
    converted["tool_choice"] = _choice(fields.get("tool_choice"))
    form = (read_field(fields, "text", dict) or {}).get("format")
    if isinstance(form, Mapping) and form.get("type") == "json_schema":
        form = {"type": "json_schema", "json_schema": dict(form)}
    converted["response_format"] = form
    return converted


def _tool(tool: Any) -> Any:
    if not isinstance(tool, Mapping) or tool.get("type") != "function":
        raise InputError("a tool must be a function", field="tools")
    return {"type": "function", "function": {k: v for k, v in tool.items() if k != "type"}}


def _choice(choice: Any) -> Any:
    if isinstance(choice, Mapping):
        return {"type": "function", "function": {"name": choice.get("name")}}
    return choice


def _messages(fields: Mapping[str, Any]) -> list[Any]:
    """Messages of the input: its calls are the assistant's, and their outputs a tool's."""
    value = fields.get("input")
    items = [{"role": "user", "content": value}] if isinstance(value, str) else value
    if not isinstance(items, list) or not items:
        raise InputError("input must be a text or a list that is not empty", field="input")
    instructions = read_field(fields, "instructions", str)
    messages: list[Any] = []
    if instructions:
        messages.append({"role": "system", "content": instructions})
    for item in items:
        _add_item(messages, item)
    return messages


def _add_item(messages: list[Any], item: Any) -> None:
    if not isinstance(item, Mapping):
        raise InputError("an item of input must be an object", field="input")
    match item.get("type", "message"):
        case "message":
            role = "system" if item.get("role") == "developer" else item.get("role")
            messages.append({"role": role, "content": item.get("content")})
        case "function_call":
            function = {"name": item.get("name"), "arguments": item.get("arguments")}
            call = {"id": item.get("call_id"), "type": "function", "function": function}
            last = messages[-1] if messages else {}
            if last.get("role") == "assistant":
                # One turn of the assistant has what it says and its calls.
                last.setdefault("tool_calls", []).append(call)
            else:
                messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
        case "function_call_output":
            output = item.get("output")
            messages.append(
                {"role": "tool", "content": output, "tool_call_id": item.get("call_id")}
            )
        case "reasoning":
            pass
        case other:
            raise InputError(
                f"an item of input is of another type: {str(other)[:50]}", field="input"
            )


class Reply:
    """One response, and its events as it comes into being."""

    named = True
    """Server-sent events have names."""

    def __init__(self, model: str, document: Mapping[str, Any]) -> None:
        self._document: Document = {
            "id": f"resp_{uuid.uuid4().hex}",
            "object": "response",
            "created_at": int(time.time()),
            "status": "in_progress",
            "error": None,
            "incomplete_details": None,
            "model": model,
            "output": [],
            "tools": document.get("tools") or [],
            "tool_choice": document.get("tool_choice") or "auto",
            "parallel_tool_calls": document.get("parallel_tool_calls") is not False,
            "previous_response_id": None,
            "store": False,
            **{name: document.get(name) for name in _ECHOED},
        }
        self._items: list[Document] = []
        self._events: list[Document] = []
        self._number = 0
        self._call = -1
        self._open = False

    def complete(self, completions: Sequence[Completion]) -> Document:
        """The response at once."""
        (completion,) = completions
        content, reasoning, calls = completion.read()
        self._add(Part(content, reasoning))
        self._add(Part(calls=tuple(calls)))
        return self._finish(completion)

    def begin(self, completions: Sequence[Completion]) -> list[Document]:
        """The events before the first piece."""
        for name in ("created", "in_progress"):
            self._emit(f"response.{name}", response=self._document)
        return self._take()

    def feed(self, index: int, completion: Completion, piece: Piece) -> list[Document]:
        """The events of a piece."""
        part = completion.reader.feed(piece.text, last=piece.finish is not None)
        self._add(part)
        return self._take()

    def end(self, completions: Sequence[Completion]) -> list[Document]:
        """The events behind the last piece."""
        (completion,) = completions
        response = self._finish(completion)
        self._emit(f"response.{response['status']}", response=response)
        return self._take()

    def fail(self, error: RelaxdError) -> Document:
        """The event of an error that ends the response."""
        problem = failure(error)[1]["error"]
        self._emit("error", **{name: problem[name] for name in ("code", "message", "param")})
        return self._take()[-1]

    def _finish(self, completion: Completion) -> Document:
        self._close()
        cut = completion.generation.finish is not Finish.STOP
        return {
            **self._document,
            "status": "incomplete" if cut else "completed",
            "incomplete_details": {"reason": "max_output_tokens"} if cut else None,
            "output": self._items,
            "usage": _usage(completion.generation),
        }

    def _add(self, part: Part) -> None:
        if part.reasoning:
            self._write("reasoning", "reasoning_text", part.reasoning)
        if part.content and (part.content.strip() or self._is_open("message")):
            self._write("message", "output_text", part.content)
        for call in part.calls:
            self._write_call(call)

    def _is_open(self, kind: str) -> bool:
        return self._open and self._items[-1]["type"] == kind

    def _write(self, kind: str, name: str, text: str) -> None:
        """Add to the text of the last item, or begin one."""
        if not self._is_open(kind):
            item: Document = {"id": _new_id(kind), "type": kind, "status": "in_progress"}
            extra: dict[str, Document] = {
                "message": {"role": "assistant"},
                "reasoning": {"summary": []},
            }
            item |= extra[kind]
            self._begin({**item, "content": []})
            content: Document = {"type": name, "text": ""}
            content |= {"annotations": []} if kind == "message" else {}
            self._emit(
                "response.content_part.added", **self._locate(part={**content}, content_index=0)
            )
            self._items[-1]["content"].append(content)
        self._items[-1]["content"][0]["text"] += text
        logprobs: Document = {"logprobs": []} if kind == "message" else {}
        self._emit(
            f"response.{name}.delta", **self._locate(delta=text, content_index=0), **logprobs
        )

    def _write_call(self, call: Call) -> None:
        if call.index != self._call:
            self._call = call.index
            self._begin(
                {
                    "id": _new_id("function_call"),
                    "type": "function_call",
                    "status": "in_progress",
                    "call_id": call.id,
                    "name": call.name,
                    "arguments": "",
                }
            )
        if call.arguments:
            self._items[-1]["arguments"] += call.arguments
            delta = self._locate(delta=call.arguments)
            self._emit("response.function_call_arguments.delta", **delta)

    def _begin(self, item: Document) -> None:
        self._close()
        self._items.append(item)
        self._open = True
        copied = {**item, **({"content": []} if "content" in item else {})}
        index = len(self._items) - 1
        self._emit("response.output_item.added", output_index=index, item=copied)

    def _close(self) -> None:
        if not self._open:
            return
        self._open, item = False, self._items[-1]
        item["status"] = "completed"
        if item["type"] == "function_call":
            done = self._locate(arguments=item["arguments"], name=item["name"])
            self._emit("response.function_call_arguments.done", **done)
        else:
            (content,) = item["content"]
            done = self._locate(text=content["text"], content_index=0)
            logprobs: Document = {"logprobs": []} if item["type"] == "message" else {}
            self._emit(f"response.{content['type']}.done", **done, **logprobs)
            self._emit("response.content_part.done", **self._locate(part=content, content_index=0))
        index = len(self._items) - 1
        self._emit("response.output_item.done", output_index=index, item=item)

    def _locate(self, **fields: Any) -> Document:
        """Fields of an event of the last item."""
        return {"item_id": self._items[-1]["id"], "output_index": len(self._items) - 1, **fields}

    def _emit(self, kind: str, /, **fields: Any) -> None:
        self._events.append({"type": kind, "sequence_number": self._number, **fields})
        self._number += 1

    def _take(self) -> list[Document]:
        events, self._events = self._events, []
        return events


_PREFIXES = {"message": "msg", "reasoning": "rs", "function_call": "fc"}


def _new_id(kind: str) -> str:
    return f"{_PREFIXES[kind]}_{uuid.uuid4().hex}"


def _usage(generation: Generation) -> Document:
    prompt, answer = len(generation.prompt), len(generation.tokens)
    return {
        "input_tokens": prompt,
        "input_tokens_details": {"cached_tokens": generation.reused or 0},
        "output_tokens": answer,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": prompt + answer,
    }
