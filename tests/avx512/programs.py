"""Calls libraries of kernels on the emulated PC."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from compiler.runtimes import archives
from compiler.targets import Target
from compiler.toolchain.packages import folder_of
from compiler.verify.emulation import dynamic, program, tensors
from compiler.verify.emulation.pc import bochs
from compiler.verify.emulation.pc.bochs import Ended
from compiler.verify.emulation.tensors import Array

_OUTPUT_BYTES = 16 << 20


@dataclass(frozen=True)
class Driver:
    """A program that calls libraries, with the libraries that it loads itself."""

    program: Path
    libraries: tuple[Path, ...]

    @classmethod
    def build(cls, output: Path, target: Target) -> "Driver":
        """Link the program with TVM's runtime; raises LinkError."""
        runtime = folder_of("tvm") / "lib" / "libtvm_runtime.so"
        own = (program.interface_of(target), runtime)
        include = [f"-I{path}" for path in archives.include_folders()]
        dynamic.link([program.DRIVER], include, own, output, target)
        return cls(output, (*own, *dynamic.system_libraries(target)))

    def call(
        self, processor: str, library: Path, inputs: Sequence[Array], seconds: float
    ) -> tuple[Ended, list[Array]]:
        """Call the library's `main`: how the program ended, and the results where it ended well.

        seconds: of processor time that the emulator has.
        """
        folder = self.program.parent
        weights, arguments, results = (folder / name for name in ("weights", "inputs", "results"))
        tensors.write(weights, [])
        tensors.write(arguments, inputs)
        ended = bochs.run(
            processor,
            list(map(str, (self.program, library, weights, arguments, results))),
            [self.program, library, weights, arguments, *self.libraries],
            {results: _OUTPUT_BYTES},
            seconds=seconds,
        )
        return ended, tensors.read(results) if ended.status == 0 else []
