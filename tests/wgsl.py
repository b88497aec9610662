"""What a browser's WebGPU says of a library's shaders: Dawn, from the npm package `webgpu`, where
node finds it (NODE_PATH).
"""

import json
import re
import shutil
import struct
import subprocess
import tempfile
from functools import cache
from pathlib import Path

_PROGRAM = Path(__file__).with_suffix(".mjs")
_ENTRY = re.compile(rb"@compute[^{]*?fn (\w+)\(")
_LONGEST = 1 << 20


def shaders(library: bytes) -> dict[str, str]:
    """The WGSL of each kernel in a library; TVM writes a text after its length."""
    found = {}
    for entry in _ENTRY.finditer(library):
        begin = library.rindex(b"//----", 0, entry.start())
        begin = library.rindex(b"//----", 0, begin)
        (length,) = struct.unpack_from("<Q", library, begin - 8)
        assert entry.end() - begin < length < _LONGEST, (
            "TVM writes shaders in another way than it did"
        )
        found[entry[1].decode()] = library[begin : begin + length].decode()
    return found


@cache
def present() -> bool:
    """Whether Dawn is here."""
    return shutil.which("node") is not None and _run().returncode == 0


def refused(sources: dict[str, str]) -> dict[str, str]:
    """What Dawn says of the shaders that it does not take, by kernel."""
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
