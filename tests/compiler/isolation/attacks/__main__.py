"""`python -m tests.compiler.isolation.attacks SPEC` prints the outcome of every attack as JSON."""

import json
import os
import sys
from pathlib import Path

from compiler.isolation import sandbox
from compiler.isolation.linux.privileges import Shares
from compiler.isolation.linux.visible_paths import find_paths
from tests.compiler.isolation.attacks import ATTACKS, NARROWED, Scene


def outcome(name: str, scene: Scene) -> str:
    """`succeeded`, or what the attempt ended with."""
    reader, writer = os.pipe()
    if not (child := os.fork()):
        try:
            result = "succeeded" if (ATTACKS | NARROWED)[name](scene) else "came to nothing"
        except BaseException as error:
            result = f"{type(error).__name__}: {error}"[:300]
        os.write(writer, result.encode())
        os._exit(0)
    os.close(writer)
    status = os.waitpid(child, 0)[1]
    with open(reader, "rb") as stream:
        return stream.read().decode() or f"ended with {status}"


def main() -> None:
    spec = json.loads(sys.argv[1])
    scene = Scene(spec)
    (scene.inside / "spare").mkdir()
    readable = (scene.model, scene.cache, *(Path(path) for path in scene.models.values()))
    root = Path(__file__).parents[4]
    confinement = sandbox.confine(
        os.getppid(),
        find_paths((*readable, root / "tests"), (scene.inside,)),
        Shares(memory_bytes=8 << 30, file_bytes=1 << 24),
        scene.inside / "spare",
    )
    os.chdir(scene.inside)
    if spec.get("narrowed"):
        # As the tasks of verification and profiling are, in a folder of their own.
        (scene.inside / "task").mkdir()
        sandbox.confine_further((scene.inside / "task",))
    import torch

    torch.set_num_threads(1)
    outcomes = {}
    for name in spec.get("only", ATTACKS):
        if spec.get("restore"):
            scene.restore()
        outcomes[name] = outcome(name, scene)
    layers = [layer.value for layer in confinement.layers]
    print(json.dumps({"layers": layers, "level": confinement.level, "outcomes": outcomes}))


if __name__ == "__main__":
    main()
