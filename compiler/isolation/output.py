"""The folder in which a bundle grows, and what is checked of it before it counts as one."""

import contextlib
import dataclasses
import json
import os
import shutil
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from compiler.errors import CompileCrashed, CompileError, LoadError
from compiler.isolation.messages import ChildJob, CompileJob
from compiler.toolchain.objects import KernelObjects
from relaxd.contract.bundle.manifest import FILENAME


def partial_of(job: CompileJob) -> Path:
    """Where the bundle grows until it is complete: beside the output, so that a rename publishes
    it.
    """
    output = Path(job.output)
    return output.with_name(f".{output.name}.partial")


def begin(job: CompileJob) -> None:
    """Make empty folders for the bundle and the dump; raises LoadError where the output holds
    anything, or nothing can be written there.
    """
    output, partial = Path(job.output), partial_of(job)
    try:
        if output.exists():
            if not output.is_dir() or any(output.iterdir()):
                raise LoadError(
                    f"the output {output.name!r} is not an empty directory",
                    reason="output_in_use",
                    hint="choose another output",
                )
            output.rmdir()
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        if job.dump:
            Path(job.dump).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise LoadError(
            f"the output {output.name!r} cannot be written: {error.strerror}",
            reason="output_unwritable",
            hint="choose another output",
        ) from error


def deliver(job: CompileJob) -> None:
    """Publish the bundle that is complete, by a rename."""
    partial_of(job).rename(job.output)


def discard(job: CompileJob) -> None:
    """Remove what a build left unfinished."""
    shutil.rmtree(partial_of(job), ignore_errors=True)


def check(job: CompileJob, manifest: dict[str, Any]) -> None:
    """Raise CompileCrashed unless the bundle and the dump hold plain files alone, and the bundle's
    manifest is the one that was reported.

    An ended process wrote them that may have done more than compile. Whoever reads them is not
    confined: a link would lead to files of that reader, a pipe would stop it.
    """
    partial = partial_of(job)
    for folder in (partial, *([Path(job.dump)] if job.dump else [])):
        _check_plain(folder)
    try:
        written = json.loads((partial / FILENAME).read_bytes())
    except (OSError, ValueError) as error:
        raise _odd(f"it left no manifest: {error}") from error
    if written != manifest:
        raise _odd("it reported another manifest than it left")


def within(job: ChildJob, scratch: Path, kernels: KernelObjects | None) -> ChildJob:
    """The job for the confined process: it only reads the kernels of earlier builds, and leaves its
    own in the scratch folder. So does its reproducer grow there: it is replaced by renames, and is
    there only if the build failed.
    """
    if not isinstance(job, CompileJob):
        return job
    if kernels is not None:
        earlier, fresh = str(kernels.objects.folder), str(kernels_in(scratch))
        job = dataclasses.replace(job, kernels=earlier, fresh_kernels=fresh)
    if not job.reproducer:
        return job
    folder = scratch / "reproducer"
    folder.mkdir()
    return dataclasses.replace(job, reproducer=str(folder / Path(job.reproducer).name))


def kernels_in(scratch: Path) -> Path:
    """Where a build leaves the kernels that it compiled."""
    return scratch / "kernels"


def take_over(folders: Iterable[Path]) -> None:
    """Own what is in the folders, which a process that has ended may have written as another user
    (`namespaces.become_other_user`).
    """
    if os.geteuid():
        return
    for top in folders:
        for root, inner, files in os.walk(top):
            for name in ("", *inner, *files):
                with contextlib.suppress(OSError):
                    os.chown(os.path.join(root, name), 0, os.getegid(), follow_symlinks=False)


def with_reproducer(error: CompileError, job: ChildJob, inner: ChildJob) -> CompileError:
    """The error of a process that has ended, naming the job's reproducer, which then is there, if
    the process left one.
    """
    if not (isinstance(job, CompileJob) and isinstance(inner, CompileJob)):
        return error
    if not (job.reproducer and inner.reproducer and Path(inner.reproducer).is_dir()):
        return error
    _check_plain(Path(inner.reproducer))
    shutil.copytree(inner.reproducer, job.reproducer)
    if "reproducer" not in error.failure.details:
        return error
    details = {**error.failure.details, "reproducer": job.reproducer}
    return CompileError.from_failure(dataclasses.replace(error.failure, details=details))


def _check_plain(folder: Path) -> None:
    for root, folders, files in os.walk(folder):
        for name in (*folders, *files):
            status = os.lstat(os.path.join(root, name))
            plain = stat.S_ISREG(status.st_mode) and status.st_nlink == 1
            if not (plain or stat.S_ISDIR(status.st_mode)):
                raise _odd(f"it left {name!r}, which is not a regular file")


def _odd(what: str) -> CompileCrashed:
    return CompileCrashed(f"the compile process broke its rules: {what}", reason="crashed")
