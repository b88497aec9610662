"""Rows about signed bundles."""

import random

from relaxd.provenance.checking import check_folder
from relaxd.provenance.envelope import seal
from relaxd.provenance.errors import TrustError
from relaxd.provenance.keys import signer_of
from tests.robustness.row import Outcome, Row, Run
from tests.support.signing import MANIFEST, key_pair, mutate, statement, write

REPORTED = 20


def mutations(run: Run) -> Outcome:
    """Change a signed folder in one place, and check it."""
    draw, keys = random.Random(run.seed), key_pair(run.folder / "ours")
    envelope = seal(statement(), signer_of(keys / "key.pem"))
    wrong: list[str] = []
    verified = 0
    for number in range(run.count):
        folder = write(run.folder / str(number), envelope)
        check_folder(folder, keys / "key.pub", MANIFEST)
        mutation = mutate(folder, draw)
        try:
            check_folder(folder, keys / "key.pub", MANIFEST)
        except TrustError as error:
            if error.part not in mutation.parts:
                wrong.append(f"{mutation.done}: the error names {error.part}")
        else:
            verified += 1
            wrong.append(f"{mutation.done}: it was accepted")
    counts = {"verified": verified, "named wrongly": len(wrong) - verified}
    return Outcome(not wrong, counts, "\n".join(wrong[:REPORTED]))


ROWS = (
    Row(
        "signed-mutations",
        "no change to a signed bundle is accepted, and each error names the part that was changed",
        1000,
        mutations,
    ),
)
