"""A browser's WebGPU checks a library's shaders: Dawn, from the npm package `webgpu`, where
node finds it (NODE_PATH).
"""

import json
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

from compiler.codegen.webgpu.section import NAME

_PROGRAM = Path(__file__).with_suffix(".mjs")


def shaders(library: bytes) -> dict[str, str]:
    """The WGSL of each kernel in a library, whose last section holds them."""
    table = json.loads(library[library.rindex(NAME.encode()) + len(NAME) :])
    return {shader["name"]: shader["code"] for shader in table["shaders"]}


@cache
def present() -> bool:
    """True if Dawn is here."""
    return shutil.which("node") is not None and _run().returncode == 0


def refuse(sources: dict[str, str]) -> dict[str, str]:
    """Errors of Dawn for shaders that it refuses, by kernel."""
    with tempfile.TemporaryDirectory() as folder:
        files = {str(Path(folder) / f"{name}.wgsl"): name for name in sources}
        for file, name in files.items():
            Path(file).write_text(sources[name])
        done = _run(*files)
    assert done.returncode == 0, done.stderr
    return {files[file]: what for file, what in json.loads(done.stdout).items()}


def _run(*files: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["node", str(_PROGRAM), *files], capture_output=True, text=True, timeout=120, check=False
    )
