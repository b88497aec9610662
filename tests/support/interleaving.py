"""Runs threads one at a time, in an order that a seed decides, over a clock of its own."""

import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import obstore


class Interleaving:
    """Tasks yield to each other at `pause`, and nowhere else; each pause takes some time."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.now = 1_700_000_000.0
        self.steps = 0
        self._mine: dict[int, threading.Semaphore] = {}
        self._back = threading.Semaphore(0)
        self._errors: list[BaseException] = []
        self._still = False

    @contextmanager
    def still(self) -> Iterator[None]:
        """Whatever the block does is one step."""
        self._still = True
        try:
            yield
        finally:
            self._still = False

    def pause(self) -> None:
        """Let another task go on; threads that are no tasks pass."""
        turn = self._mine.get(threading.get_ident())
        if turn is not None and not self._still:
            self._back.release()
            turn.acquire()

    def run(self, *tasks: Callable[[], None]) -> None:
        """Run all tasks to their ends; raises the first error of one."""
        running: list[tuple[threading.Thread, threading.Semaphore]] = []
        for task in tasks:
            turn = threading.Semaphore(0)
            thread = threading.Thread(target=self._run, args=(task, turn), daemon=True)
            running.append((thread, turn))
            thread.start()
        while running and not self._errors:
            thread, turn = self.random.choice(running)
            self.steps += 1
            self.now += self.random.expovariate(1.0)
            turn.release()
            self._back.acquire()
            running = [entry for entry in running if getattr(entry[0], "ended", None) is None]
        if self._errors:
            raise self._errors[0]

    def _run(self, task: Callable[[], None], turn: threading.Semaphore) -> None:
        self._mine[threading.get_ident()] = turn
        turn.acquire()
        try:
            task()
        except BaseException as error:
            self._errors.append(error)
        finally:
            del self._mine[threading.get_ident()]
            threading.current_thread().ended = True  # type: ignore[attr-defined]
            self._back.release()

    # As the module `time`:

    def time(self) -> float:
        """The time of the interleaving, in seconds since the epoch."""
        return self.now

    monotonic = time

    def sleep(self, seconds: float) -> None:
        """Yield at least once."""
        self.now += seconds
        self.pause()


class Pausing:
    """An object that yields before every call of a method."""

    def __init__(self, inner: Any, interleaving: Interleaving) -> None:
        self._inner = inner
        self._interleaving = interleaving

    def __getattr__(self, name: str) -> Any:
        result = getattr(self._inner, name)
        if not callable(result):
            return result

        def call(*arguments: Any, **options: Any) -> Any:
            self._interleaving.pause()
            return result(*arguments, **options)

        return call


class PausingObstore:
    """The module `obstore`, each of whose requests is a step, and whose objects have the times of
    the interleaving.
    """

    def __init__(self, interleaving: Interleaving) -> None:
        self._interleaving = interleaving
        self._times: dict[str, float] = {}

    def put(self, store: Any, path: str, data: Any, **options: Any) -> Any:
        self._interleaving.pause()
        done = obstore.put(store, path, data, **options)
        self._times[path] = self._interleaving.now
        return done

    def head(self, store: Any, path: str) -> Any:
        self._interleaving.pause()
        return self._timed(obstore.head(store, path))

    def list(self, store: Any, prefix: str) -> Any:
        self._interleaving.pause()
        for chunk in obstore.list(store, prefix):
            yield [self._timed(entry) for entry in chunk]

    def _timed(self, entry: Any) -> Any:
        return {**entry, "last_modified": _Moment(self._times[entry["path"]])}

    def __getattr__(self, name: str) -> Any:
        return getattr(Pausing(obstore, self._interleaving), name)


class _Moment(float):
    def timestamp(self) -> float:
        return float(self)
