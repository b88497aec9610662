"""The process whose CUDA device is the emulator: `python -m tests.cuda_emulator.inside
FOLDER` builds the model that `asked.json` names and writes its outputs beside that.
"""

import ctypes
import json
import sys
from pathlib import Path

sys.modules.setdefault("torch", None)

import numpy as np  # noqa: E402

import relaxd  # noqa: E402
from compiler import compile_model  # noqa: E402
from tests.cuda_emulator.machine import DRIVER  # noqa: E402


def main(folder: Path) -> None:
    asked = json.loads((folder / "asked.json").read_text())
    bundle = folder / "bundle"
    if not bundle.exists():
        compile_model(Path(asked["model"]), output=bundle, **asked["request"])
    model, driver = relaxd.load(bundle), ctypes.CDLL(DRIVER)
    for index in range(asked["feeds"]):
        feed = dict(np.load(folder / f"feed-{index}.npz"))
        outputs = model.run({spec.name: feed[spec.name] for spec in model.inputs})
        np.savez(folder / f"outputs-{index}.npz", **outputs)
    reported = {
        "launches": driver.cuda_emulator_launches(),
        "replays": driver.cuda_emulator_replays(),
    }
    (folder / "told.json").write_text(json.dumps(reported))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
