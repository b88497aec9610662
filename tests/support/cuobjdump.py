"""NVIDIA's disassembler for CUDA machine code: `cuobjdump` from PATH or from its wheel
(nvidia-cuda-cuobjdump).
"""

import importlib.util
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

CUBIN = re.compile(rb"\x7fELF.{14}\xbe\x00", re.DOTALL)
"""How a cubin begins inside of a library."""


def command() -> list[str] | None:
    """How to call it, None where it is not installed; the wheel's file is not executable as pip
    unpacks it.
    """
    if result := shutil.which("cuobjdump"):
        return [result]
    spec = importlib.util.find_spec("nvidia")
    for root in map(Path, (spec.submodule_search_locations or ()) if spec else ()):
        for tool in root.glob("cu*/bin/cuobjdump"):
            tool.chmod(0o755)
            return [str(tool)]
    return None


def disassemble(cubin: bytes) -> tuple[set[str], set[str]]:
    """The architectures (`sm_80`) that it finds instructions (SASS) for, and the kernels that these
    make up.
    """
    tool = command()
    assert tool is not None
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernels.cubin"
        path.write_bytes(cubin)
        text = subprocess.run(
            [*tool, "-sass", str(path)], capture_output=True, text=True, check=True
        ).stdout
    kernels = {
        part.split()[0]
        for part in text.split("Function :")[1:]
        if re.search(r"/\*[0-9a-f]{4,}\*/\s+\S", part)
    }
    return set(re.findall(r"code for (sm_\w+)", text)), kernels
