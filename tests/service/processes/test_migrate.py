"""The migration as a process of its own."""

import os
import subprocess
import sys
from pathlib import Path

from service.db.engine import Database
from service.db.upgrade import upgrade

ROOT = Path(__file__).parents[3]


def migrate(**settings: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "service.processes.migrate"],
        env={**os.environ, **settings},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_tables_are_there_afterwards(tmp_path: Path) -> None:
    done = migrate(RELAXD_DATA_DIR=str(tmp_path))
    assert (done.returncode, done.stderr) == (0, "")
    db = Database(f"sqlite:///{tmp_path / 'jobs.sqlite'}")
    with db.read() as connection:
        query = "SELECT count(*) FROM counters WHERE name = 'ended_cached'"
        assert connection.exec_driver_sql(query).scalar_one() == 1
    upgrade(db)
    db.close()


def test_a_database_that_is_away_is_named(tmp_path: Path) -> None:
    away = f"sqlite:///{tmp_path / 'no' / 'jobs.sqlite'}"
    done = migrate(RELAXD_DATA_DIR=str(tmp_path), RELAXD_DATABASE_URL=away)
    assert done.returncode == 1
    assert done.stderr.startswith("relaxd migrate: ")
    assert "Traceback" not in done.stderr
