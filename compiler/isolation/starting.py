"""Limits, command line and environment that a compile process is started with."""

import os
from dataclasses import dataclass
from pathlib import Path

from compiler.isolation import output
from compiler.isolation.messages import ChildJob, CompileJob
from compiler.toolchain import cache

_INHERITED = ("PATH", "LD_LIBRARY_PATH", "LANG", "LC_ALL", "TZ")


@dataclass(frozen=True)
class Limits:
    """Wall-clock seconds of the whole job; bytes of resident memory and number of all its processes
    together; bytes on disk of all it writes.

    unsandboxed_torchscript: let TorchScript run where the sandbox does not isolate files.
    """

    seconds: float = 3600.0
    memory_bytes: int = 16 << 30
    processes: int = 512
    disk_bytes: int = 64 << 30
    unsandboxed_torchscript: bool = False


def arguments(messages: int, parent: int, limits: Limits, group: Path | None) -> list[str]:
    """The options of the compile process's command line.

    messages: the descriptor that it writes them to; parent: the process that starts it.
    """
    options: dict[str, object] = {
        "messages": messages,
        "parent": parent,
        "memory-bytes": limits.memory_bytes,
        "file-bytes": limits.disk_bytes,
        "processes": 2 * limits.processes,
        "cache": cache.directory(),
        **({} if group is None else {"group": group}),
    }
    trusting = ["--unsandboxed-torchscript"] if limits.unsandboxed_torchscript else []
    return [
        word for name, value in options.items() for word in (f"--{name}", str(value))
    ] + trusting


def written_by(job: ChildJob) -> list[Path]:
    """The folders that a job fills, beside its scratch."""
    if not isinstance(job, CompileJob):
        return []
    return [output.partial_of(job), *([Path(job.dump)] if job.dump else [])]


def environment(scratch: Path) -> dict[str, str]:
    """That of a compile process, whose folder is `scratch`."""
    # What one build writes there must not reach the next.
    own_cache = cache.private_view(cache.directory(), scratch / "cache")
    return {**found_by(), **own_cache, "HOME": str(scratch), "TMPDIR": str(scratch)}


def found_by() -> dict[str, str]:
    """Nothing of ours but what finding programs and libraries takes: no credentials reach the
    compiler.
    """
    inherited = {name: os.environ[name] for name in _INHERITED if name in os.environ}
    root = Path(__file__).parents[2]
    return {
        "LANG": "C.UTF-8",
        **inherited,
        "PYTHONPATH": str(root),
        "PYTHONUNBUFFERED": "1",
        # numpy's sums depend on the number of threads, so folded weights would on the machine; and
        # a process of one thread is forked without surprises.
        "OPENBLAS_NUM_THREADS": "1",
    }
