"""Adapters of an engine by name: loaded, used by completions, and dropped, from any thread."""

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from relaxd.contract.adapter_files.adapter import LowRank, Shape, fit
from relaxd.contract.adapter_files.reading import read_adapter
from relaxd.errors import AdapterError, AdapterInUseError, UnknownAdapterError

if TYPE_CHECKING:
    from relaxd.llm.generation import Generation
    from relaxd.loader.adapters import AdapterStacks

_LONGEST_NAME = 256


@dataclass(eq=False)
class LoadedAdapter:
    """An adapter in the slot `number`; key: no other adapter of the engine ever has it; users:
    completions that may not have ended.
    """

    name: str
    path: Path
    number: int
    key: int
    users: list["Generation"] = field(default_factory=list)

    @property
    def in_use(self) -> int:
        """The number of completions that have not ended."""
        self.users = [generation for generation in self.users if generation.finish is None]
        return len(self.users)


class LoadedAdapters:
    """The adapters in an engine's slots."""

    def __init__(self, stacks: "AdapterStacks") -> None:
        self.stacks = stacks
        self._lock = threading.Lock()
        self._loaded: dict[str, LoadedAdapter] = {}
        self._keys = count(1)

    def __iter__(self) -> Iterator[LoadedAdapter]:
        with self._lock:
            return iter(list(self._loaded.values()))

    def __contains__(self, name: object) -> bool:
        with self._lock:
            return name in self._loaded

    def load(self, name: str, path: Path) -> LoadedAdapter:
        """Read an adapter into a free slot; raises AdapterError, and then nothing changes."""
        if not name or len(name) > _LONGEST_NAME or not name.isprintable():
            raise AdapterError(
                f"the name of an adapter has 1 to {_LONGEST_NAME} characters",
                reason="name",
                hint="choose another name",
            )
        changes = self._read(path)
        with self._lock:
            self._check_name(name)
            adapter = LoadedAdapter(name, path, self._free(), next(self._keys))
            self.stacks.write(
                adapter.number, {key: (change.down, change.up) for key, change in changes.items()}
            )
            self._loaded[name] = adapter
        return adapter

    def unload(self, name: str) -> None:
        """Free the slot of an adapter; raises AdapterError where completions use it."""
        with self._lock:
            adapter = self._get(name)
            if users := adapter.in_use:
                raise AdapterInUseError(
                    f"{users} completions use the adapter {name!r}",
                    hint="try again once they have ended, or cancel them",
                    field="lora_name",
                )
            del self._loaded[name]

    def lease(self, name: str, generation: "Generation") -> LoadedAdapter:
        """Keep an adapter until a completion has ended; raises AdapterError for an unknown one."""
        with self._lock:
            adapter = self._get(name)
            # The list must not grow with every completion.
            adapter.users = [each for each in adapter.users if each.finish is None]
            adapter.users.append(generation)
        return adapter

    def _read(self, path: Path) -> dict[tuple[int, str], LowRank]:
        """The changes of an adapter in the form of this model."""
        described, stacks = self.stacks.described, self.stacks
        widths = {
            name: stacks.inputs[module.up].shape[2] for (_, name), module in stacks.modules.items()
        }
        shape = Shape(widths, described.heads, described.groups, described.neighbours)
        return fit(read_adapter(path), shape)

    def _get(self, name: str) -> LoadedAdapter:
        adapter = self._loaded.get(name)
        if adapter is None:
            raise UnknownAdapterError(
                f"there is no adapter {name[:100]!r}",
                hint="load it first; /v1/models lists those that are loaded",
                field="model",
            )
        return adapter

    def _check_name(self, name: str) -> None:
        if name in self._loaded:
            raise AdapterError(
                f"there is an adapter {name!r} already",
                reason="name",
                hint="drop it first, or choose another name",
                field="lora_name",
            )

    def _free(self) -> int:
        """The first slot without an adapter."""
        taken = {adapter.number for adapter in self._loaded.values()}
        free = set(range(1, self.stacks.count + 1)) - taken
        if not free:
            raise AdapterError(
                f"all {self.stacks.count} slots for adapters are taken",
                reason="full",
                hint="drop one, or start with more (--max-loras)",
            )
        return min(free)
