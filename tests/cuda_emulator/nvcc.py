"""The command line of nvcc, as far as builds use it: CUDA sources to kernels for the emulator, in
the shape of a cubin.
"""

import re
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

_HERE = Path(__file__).parent
_KERNEL = re.compile(
    r'^extern "C" __global__ void (?:__launch_bounds__\((\d+)\) )?(\w+)\(([^;{]*)\) \{(.*?)^\}',
    re.MULTILINE | re.DOTALL,
)
_WAITS = re.compile(r"__syncthreads|__shfl|__activemask")
_MOST_THREADS = 1024
_FLAGS = (
    "-c",
    "-fPIC",
    "-std=c++17",
    "-ffp-contract=off",
    # The compiler driver's own choice of sanitizers makes the code several times as long.
    "-fno-sanitize=all",
    "-fsanitize=alignment",
    "-fsanitize-minimal-runtime",
)
_ZIG = (sys.executable, "-m", "ziglang")
_FLAGS_AT, _ABI_AT, _MACHINE_AT, _CUDA, _CUDA_ABI = 48, 8, 18, 190, 8

_BEFORE = "#include <cuda.h>\n"
_AFTER = """
/* None where no kernel of the module has shared memory. */
extern "C" char __start_emulated_shared[] __attribute__((weak, visibility("hidden")));
extern "C" char __stop_emulated_shared[] __attribute__((weak, visibility("hidden")));
extern "C" struct context emulated_context = {__start_emulated_shared, __stop_emulated_shared};
extern "C" void __ubsan_handle_type_mismatch_minimal() { emulated_context.misaligned(); }
"""


def main(arguments: Sequence[str]) -> int:
    """Exit status as the compiler's."""
    if "--version" in arguments:
        print("Cuda compilation tools, of the emulator, V13.0.0")
        return 0
    output, source = Path(arguments[arguments.index("-o") + 1]), Path(arguments[-1])
    (architecture,) = (
        argument.removeprefix("-arch=sm_")
        for argument in arguments
        if argument.startswith("-arch=")
    )
    with tempfile.TemporaryDirectory() as folder:
        text, unit, library = (Path(folder) / f"kernels.{end}" for end in ("cc", "o", "so"))
        text.write_text(translate(source.read_text()))
        compiler = (*_ZIG, "c++", "-target", "x86_64-linux-gnu.2.28", *_FLAGS, "-w")
        done = subprocess.run(
            [*compiler, f"-I{_HERE / 'include'}", "-o", str(unit), str(text)], check=False
        )
        if done.returncode == 0:
            # The linker alone: its driver would build a C library's parts for a cold cache.
            linker = (*_ZIG, "ld.lld", "-shared")
            done = subprocess.run([*linker, "-o", str(library), str(unit)], check=False)
        if done.returncode == 0:
            output.write_bytes(disguise(library.read_bytes(), int(architecture)))
    return done.returncode


def translate(source: str) -> str:
    """The sources with a record of each kernel, by which the driver finds and calls it."""
    source = source.replace("__shared__ alignas(64)", "alignas(64) __shared__")
    return "\n".join((_BEFORE, source, *_records(source), _AFTER))


def _records(source: str) -> Iterator[str]:
    for threads, name, parameters, body in _KERNEL.findall(source):
        types = [
            parameter.rpartition(" ")[0].replace("__restrict__", "")
            for parameter in parameters.split(", ")
            if parameter
        ]
        values = ", ".join(f"*({kind}*)arguments[{index}]" for index, kind in enumerate(types))
        sizes = ", ".join([*(f"sizeof({kind})" for kind in types), "0"])
        pointers = ", ".join([*(str(int(kind.rstrip().endswith("*"))) for kind in types), "0"])
        waits = int(bool(_WAITS.search(body)))
        yield f"""
static void call_{name}(void** arguments) {{ {name}({values}); }}
static const unsigned char sizes_{name}[] = {{{sizes}}};
static const unsigned char pointers_{name}[] = {{{pointers}}};
extern "C" const struct kernel emulated_{name} = {{
  "{name}", call_{name}, {threads or _MOST_THREADS}, {waits}, {len(types)},
  sizes_{name}, pointers_{name},
}};"""


def disguise(library: bytes, architecture: int) -> bytes:
    """A library whose header says that it is machine code for `sm_<architecture>`; the emulated
    driver takes that back.
    """
    content = bytearray(library)
    struct.pack_into("<H", content, _MACHINE_AT, _CUDA)
    struct.pack_into("<I", content, _FLAGS_AT, architecture << 8)
    content[_ABI_AT] = _CUDA_ABI
    return bytes(content)
