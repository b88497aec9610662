"""A compile process that does what the model's text says: JSON with `ledger` (file that gets a line
per compile) and `seconds` to take.
"""

import argparse
import json
import os
import sys
import time
from pathlib import Path

from compiler.isolation.messages import CompileJob, Log, StageStarted, Succeeded, job_from_json
from compiler.isolation.output import partial_of
from relaxd.contract.states import Stage
from tests.service.fakes import write_bundle


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--messages", type=int)
    parser.add_argument("--parent", type=int)
    options, _ = parser.parse_known_args()
    job = job_from_json(json.load(sys.stdin))
    assert isinstance(job, CompileJob)
    model = json.loads(Path(job.model).read_text())
    with os.fdopen(options.messages, "w", buffering=1) as messages:
        for event in (StageStarted(Stage.IMPORT), Log("compiling")):
            messages.write(json.dumps(event.to_json()) + "\n")
        with open(model["ledger"], "a") as ledger:
            ledger.write(f"{options.parent}\n")
        until = time.monotonic() + model["seconds"]
        while time.monotonic() < until and os.getppid() == options.parent:
            time.sleep(0.02)
        messages.write(
            json.dumps(Succeeded(write_bundle(job, partial_of(job)).to_json()).to_json()) + "\n"
        )


if __name__ == "__main__":
    main()
