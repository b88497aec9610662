"""`python -m service.workers`: one worker process, set up by RELAXD_ environment variables."""

import argparse
import sys

from relaxd.errors import RelaxdError
from service.settings import read_settings
from service.workers.main import run_worker


def main() -> int:
    """The worker's exit status."""
    parser = argparse.ArgumentParser(prog="python -m service.workers", description=__doc__)
    parser.add_argument("--concurrency", type=int, default=1, help="builds at a time")
    parser.add_argument(
        "--parent",
        type=int,
        help="end when the process of this id, which must be our parent, is gone",
    )
    options = parser.parse_args()
    try:
        return run_worker(read_settings(), options.concurrency, parent=options.parent)
    except RelaxdError as error:
        print(f"relaxd worker: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
