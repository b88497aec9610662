"""One garbage collection or check in this process, on the data that a service's settings name."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from artifacts import checking
from service.bootstrap import Services, build
from service.observability import logs
from service.settings import read_settings
from service.usecases.store import collecting


def collect(data_dir: Path | None, *, dry_run: bool) -> dict[str, Any]:
    """The report as a JSON document; safe beside a running service. Raises as
    `service.bootstrap.build` and `collecting.run`.
    """
    with _opened(data_dir) as services:
        return asdict(collecting.run(services.core, dry_run=dry_run))


def check(data_dir: Path | None) -> dict[str, Any]:
    """Check the store with `artifacts.checking`, by all that the database needs of it, as a JSON
    document; safe beside a running service. Raises as `service.bootstrap.build`, StorageFailed.
    """
    with _opened(data_dir) as services:
        core = services.core
        return asdict(checking.check(core.store, lambda: collecting.roots(core)))


@contextmanager
def _opened(data_dir: Path | None) -> Iterator[Services]:
    settings = read_settings(**({} if data_dir is None else {"data_dir": data_dir.absolute()}))
    logs.configure("WARNING", settings.secrets())
    services = build(settings)
    try:
        yield services
    finally:
        services.close()
