"""One garbage collection in this process, on the data that a service's settings name."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

from service.bootstrap import build
from service.observability import logs
from service.settings import read_settings
from service.usecases import collecting


def collect(data_dir: Path | None, *, dry_run: bool) -> dict[str, Any]:
    """The report as a JSON document; safe beside a running service. Raises as
    `service.bootstrap.build` and `collecting.run`.
    """
    settings = read_settings(**({} if data_dir is None else {"data_dir": data_dir.absolute()}))
    logs.configure("WARNING", settings.secrets())
    services = build(settings)
    try:
        return asdict(collecting.run(services.core, dry_run=dry_run))
    finally:
        services.close()
