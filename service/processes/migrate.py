"""`python -m service.processes.migrate`: brings the job database and its pools up to date, and
ends.
"""

import sys

from relaxd.errors import RelaxdError
from service.db.engine import Database
from service.db.pools import declare
from service.db.upgrade import upgrade
from service.pools import read_pools
from service.settings import read_settings


def main() -> int:
    """The exit status; 1 for a database that is away, or newer than this release."""
    try:
        settings = read_settings()
        settings.data_dir.mkdir(parents=True, exist_ok=True)
        db = Database(settings.database)
        try:
            upgrade(db)
            declare(db, read_pools(settings.pools))
        finally:
            db.close()
    except RelaxdError as error:
        print(f"relaxd migrate: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
