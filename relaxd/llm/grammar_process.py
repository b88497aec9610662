"""Compiles grammars on trial in a process that may be killed, before this one compiles them.

A grammar comes from anyone, and its compiler may recurse until the stack is full, or take seconds
and gigabytes. One process reads the tokenizer once and forks a child for each grammar, with limits
of time, memory and stack. The module runs as a program too, so it imports nothing of relaxd.
"""

import json
import os
import resource
import signal
import socket
import subprocess
import sys
import threading
import weakref
from dataclasses import asdict, dataclass
from typing import Any

from llguidance import LLMatcher, LLParserLimits, LLTokenizer

_SPACE = r"(\n {0,32}| )?"
"""Between the parts of a JSON text. Models that may write any space write nothing else for ever."""
_MOST_STATES = 50_000
"""Of a lexer, some 2 KB each: a completion whose grammar needs more ends by an error."""
_NICE = 10
_LENGTH = 8
_CHUNK = 1 << 16


@dataclass(frozen=True)
class Limits:
    """Limits of compiling one grammar. stack_bytes: less than a thread has, so that what passes
    on trial passes elsewhere.
    """

    cpu_s: int = 3
    wall_s: float = 10.0
    memory_bytes: int = 256 << 20
    stack_bytes: int = 2 << 20


def compile_grammar(tokenizer: LLTokenizer, syntax: str, definition: str) -> LLMatcher:
    """A matcher at the grammar's start, which may be in error; raises ValueError."""
    match syntax:
        case "json_schema":
            options: Any = {"whitespace_pattern": _SPACE}
            source = LLMatcher.grammar_from_json_schema(definition, overrides=options)
        case "regex":
            source = LLMatcher.grammar_from_regex(definition)
        case _:
            source = LLMatcher.grammar_from_lark(definition)
    limits = LLParserLimits(max_lexer_states=_MOST_STATES)
    return LLMatcher(tokenizer, source, log_level=0, limits=limits)


class GrammarProcess:
    """The process that tries grammars; safe to use from several threads. It starts with the first
    grammar, and again where it has died.
    """

    def __init__(self, serialized: str, ends: list[int], limits: Limits) -> None:
        self._tokenizer = json.dumps({"serialized": serialized, "ends": ends}).encode()
        self._limits = limits
        self._lock = threading.Lock()
        self._control: socket.socket | None = None
        self._end: weakref.finalize[..., GrammarProcess] | None = None

    def try_grammar(self, syntax: str, definition: str) -> dict[str, Any] | None:
        """Compile a grammar there: `bytes`, its size, or `error`, the compiler's message, or `busy`
        where no child can be started; None where it took more than the limits.
        """
        wanted = {"syntax": syntax, "definition": definition, "limits": asdict(self._limits)}
        own, theirs = socket.socketpair()
        with own:
            with theirs:
                self._send(theirs)
            # The child's own clock ends it before.
            own.settimeout(2 * self._limits.wall_s)
            try:
                own.sendall(json.dumps(wanted).encode())
                own.shutdown(socket.SHUT_WR)
                answer = _read_all(own)
            except OSError:
                # It was killed: between two reads, or while it had not read all.
                return None
        return dict(json.loads(answer)) if answer else None

    def close(self) -> None:
        """End the process."""
        with self._lock:
            self._stop()

    def _send(self, connection: socket.socket) -> None:
        with self._lock:
            for attempt in range(2):
                if self._control is None:
                    self._start()
                assert self._control is not None
                try:
                    socket.send_fds(self._control, [b"g"], [connection.fileno()])
                    return
                except OSError:
                    self._stop()
                    if attempt:
                        raise

    def _start(self) -> None:
        control, theirs = socket.socketpair()
        with theirs:
            process = subprocess.Popen(
                [sys.executable, "-P", __file__], stdin=theirs.fileno(), stdout=subprocess.DEVNULL
            )
        self._control = control
        self._end = weakref.finalize(self, _end, process, control)
        length = len(self._tokenizer).to_bytes(_LENGTH, "little")
        control.sendall(length + self._tokenizer)

    def _stop(self) -> None:
        if self._end is not None:
            self._end()
        self._control = self._end = None


def _end(process: "subprocess.Popen[bytes]", control: socket.socket) -> None:
    control.close()
    process.kill()
    process.wait()


def _read_all(connection: socket.socket) -> bytes:
    data = bytearray()
    while chunk := connection.recv(_CHUNK):
        data += chunk
    return bytes(data)


def main() -> None:
    """Read the tokenizer from the control socket, which is the standard input, and fork a child for
    each connection that comes over it, until it closes.
    """
    # Children are not waited for.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with socket.socket(fileno=os.dup(0)) as control:
        length = int.from_bytes(_read_exactly(control, _LENGTH), "little")
        described = json.loads(_read_exactly(control, length))
        tokenizer = LLTokenizer(described["serialized"], eos_token=described["ends"] or None)
        while True:
            data, descriptors, *_ = socket.recv_fds(control, 1, 1)
            if not data:
                return
            with socket.socket(fileno=descriptors[0]) as connection:
                _fork(tokenizer, connection)


def _read_exactly(control: socket.socket, count: int) -> bytes:
    data = bytearray()
    while len(data) < count:
        chunk = control.recv(min(count - len(data), _CHUNK))
        if not chunk:
            sys.exit(0)
        data += chunk
    return bytes(data)


def _fork(tokenizer: LLTokenizer, connection: socket.socket) -> None:
    try:
        child = os.fork()
    except OSError as error:
        connection.sendall(json.dumps({"busy": str(error)}).encode())
        return
    if child == 0:
        try:
            _try_within_limits(tokenizer, connection)
        finally:
            os._exit(0)


def _try_within_limits(tokenizer: LLTokenizer, connection: socket.socket) -> None:
    wanted = json.loads(_read_all(connection))
    limits = Limits(**wanted["limits"])
    # What the compiler writes where it fails would fill the log of whoever started this.
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    # Nobody handles the alarm: it kills, wherever the compiler is.
    signal.setitimer(signal.ITIMER_REAL, limits.wall_s)
    os.nice(_NICE)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CPU, (limits.cpu_s, limits.cpu_s + 1))
    most = _data_bytes() + limits.memory_bytes
    resource.setrlimit(resource.RLIMIT_DATA, (most, most))
    threading.stack_size(limits.stack_bytes)
    before = _peak_bytes()
    answers: list[dict[str, Any] | None] = []
    thread = threading.Thread(target=lambda: answers.append(_try(tokenizer, wanted)))
    thread.start()
    thread.join()
    answer = answers[0]
    if answer is None:
        answer = {"bytes": _peak_bytes() - before}
    connection.sendall(json.dumps(answer).encode())


def _try(tokenizer: LLTokenizer, wanted: dict[str, Any]) -> dict[str, Any] | None:
    """Compile, copy, use once and free a grammar; what is wrong with it."""
    try:
        matcher = compile_grammar(tokenizer, wanted["syntax"], wanted["definition"])
    except ValueError as error:
        return {"error": str(error)}
    if not matcher.is_error():
        matcher.deep_copy().compute_bitmask()
    return {"error": matcher.get_error()} if matcher.is_error() else None


def _data_bytes() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[5]) * resource.getpagesize()


def _peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


if __name__ == "__main__":
    main()
