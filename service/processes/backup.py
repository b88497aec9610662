"""Backup and restore of a service that keeps all in one folder: SQLite and a store of files.

The database is copied first, then the store's records, then its blobs: whoever refers to a blob
stores the blob first, so that what is copied refers to nothing that is missing.
"""

import os
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from artifacts.files import storage_errors
from service.errors import ServiceError
from service.processes.tidy import check
from service.settings import Settings, read_settings

DATABASE, RECORDS, BLOBS = "jobs.sqlite", "records", "blobs"
_PARTIAL = ".partial"


class NotEmbedded(ServiceError):
    """The settings name a database or a store elsewhere, or no service has used the folder."""

    code = "backup.not_embedded"


class RestoreRefused(ServiceError):
    """The folder to restore into has data, or that to restore from has none."""

    code = "backup.restore"


def back_up(data_dir: Path | None, folder: Path) -> dict[str, Any]:
    """Copy a service's data into the folder, beside the running service; a blob that an earlier
    backup has there is not copied again. The number of files and bytes that were copied. Raises
    NotEmbedded, StorageFailed.
    """
    settings = _embedded(data_dir)
    database, store = settings.data_dir / DATABASE, settings.data_dir / "store"
    if not database.is_file():
        raise NotEmbedded(
            f"{settings.data_dir} does not hold the data of a service",
            hint="name its folder with --data-dir",
        )
    with storage_errors(f"cannot write the backup {folder}"):
        folder.mkdir(parents=True, exist_ok=True)
        fresh, records = folder / (DATABASE + _PARTIAL), folder / (RECORDS + _PARTIAL)
        fresh.unlink(missing_ok=True)
        shutil.rmtree(records, ignore_errors=True)
        _copy_database(database, fresh)
        copied = list(_copy_files(store / RECORDS, records))
        copied += _copy_files(store / BLOBS, folder / BLOBS)
        # From here on the new records belong to the new database.
        shutil.rmtree(folder / RECORDS, ignore_errors=True)
        records.rename(folder / RECORDS)
        fresh.replace(folder / DATABASE)
        _prune(folder / BLOBS, store / BLOBS)
    return {"folder": str(folder), "files": 1 + len(copied), "bytes": sum(copied)}


def restore(folder: Path, data_dir: Path | None) -> dict[str, Any]:
    """Copy a backup into an empty folder of data, and check it, as a JSON document of
    `artifacts.checking`. Raises NotEmbedded, RestoreRefused, StorageFailed.
    """
    settings = _embedded(data_dir)
    database = settings.data_dir / DATABASE
    if not (folder / DATABASE).is_file():
        raise RestoreRefused(
            f"{folder} is not a backup", hint="give a folder that `relaxd backup` wrote"
        )
    if database.exists():
        raise RestoreRefused(
            f"{settings.data_dir} already holds the data of a service",
            hint="choose an empty folder with --data-dir",
        )
    with storage_errors(f"cannot write to {settings.data_dir}"):
        for part in (RECORDS, BLOBS):
            list(_copy_files(folder / part, settings.data_dir / "store" / part))
        # Last: a folder without a database is one that a service has not used.
        shutil.copy2(folder / DATABASE, database.with_name(DATABASE + _PARTIAL))
        database.with_name(DATABASE + _PARTIAL).replace(database)
    return check(data_dir)


def _embedded(data_dir: Path | None) -> Settings:
    settings = read_settings(**({} if data_dir is None else {"data_dir": data_dir.absolute()}))
    if settings.database_url is not None or settings.store_url is not None:
        raise NotEmbedded(
            "RELAXD_DATABASE_URL or RELAXD_STORE_URL is set: the data is not in one folder",
            hint="copy these with their own tools: docs/howto/run-the-service.md says in which "
            "order",
        )
    return settings


def _copy_database(source: Path, to: Path) -> None:
    with closing(sqlite3.connect(source)) as live, closing(sqlite3.connect(to)) as copy:
        live.backup(copy)


def _copy_files(source: Path, to: Path) -> Iterator[int]:
    """Copy the files below a folder that are not there; yields the bytes of each. One that a
    collection removes meanwhile is not needed.
    """
    to.mkdir(parents=True, exist_ok=True)
    for folder, _, names in os.walk(source):
        target = to / Path(folder).relative_to(source)
        target.mkdir(parents=True, exist_ok=True)
        for name in names:
            file, copy = Path(folder, name), target / name
            with suppress(FileNotFoundError):
                if copy.exists() and copy.stat().st_size == file.stat().st_size:
                    continue
                shutil.copy2(file, copy.with_name(name + _PARTIAL))
                copy.with_name(name + _PARTIAL).replace(copy)
                yield copy.stat().st_size


def _prune(copies: Path, source: Path) -> None:
    """Remove the copies of blobs that the store no longer has."""
    for folder, _, names in os.walk(copies):
        for name in names:
            if not (source / Path(folder).relative_to(copies) / name).exists():
                Path(folder, name).unlink()
