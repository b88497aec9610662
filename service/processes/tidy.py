"""One garbage collection in this process, on the data that a service's settings name."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

from service.bootstrap import build
from service.observability import logs
from service.settings import Settings
from service.usecases import collecting


def collect(data_dir: Path | None, *, dry_run: bool) -> dict[str, Any]:
    """The report as a JSON document; safe beside a running service. Raises as
    `service.bootstrap.build` and `collecting.run`.
    """
    settings = Settings() if data_dir is None else Settings(data_dir=data_dir.absolute())
    logs.configure("WARNING")
    services = build(settings)
    try:
        return asdict(collecting.run(services.core, dry_run=dry_run))
    finally:
        services.close()
