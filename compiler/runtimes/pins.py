"""Which wheels TVM's runtime comes from, by platform: version and sha256 of each."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Wheel:
    """One wheel of the package index, and which of its libraries are kept."""

    package: str
    version: str
    sha256: str
    keep: tuple[str, ...]


@dataclass(frozen=True)
class Pin:
    """The runtime of one platform; `tag` is what `pip download --platform` takes, os and arch are a
    load contract's.
    """

    name: str
    os: str
    arch: str
    tag: str
    wheels: tuple[Wheel, ...]

    @property
    def libraries(self) -> tuple[str, ...]:
        """File names of every library, TVM's own and the function interface that a loader without
        Python needs.
        """
        return tuple(name for wheel in self.wheels for name in wheel.keep)


_TVM, _FFI = "0.27.0.post1", "0.1.15.post2"


IMPORT_LIBRARY = "tvm_ffi.lib"
"""What a DLL is linked against: Windows resolves no symbol at load time that was not bound to a
library.
"""


def _wheels(tvm: str, ffi: str, prefix: str, suffix: str) -> tuple[Wheel, ...]:
    runtime = (f"{prefix}tvm_runtime{suffix}", f"{prefix}tvm_runtime_extra{suffix}")
    interface = (f"{prefix}tvm_ffi{suffix}", *([IMPORT_LIBRARY] if suffix == ".dll" else []))
    return (Wheel("apache-tvm", _TVM, tvm, runtime), Wheel("apache-tvm-ffi", _FFI, ffi, interface))


PINS = (
    Pin(
        "linux-aarch64",
        os="linux",
        arch="aarch64",
        tag="manylinux_2_28_aarch64",
        wheels=_wheels(
            "4acfdb7653e4e1ba7a707bdf2833db72eb8fda7d04d99141f2a4e1da43171fb7",
            "13efa12e3b81add67e40a2b5453203421af55827bd9cecc1fac56efd6e614282",
            "lib",
            ".so",
        ),
    ),
    Pin(
        "macos-arm64",
        os="darwin",
        arch="aarch64",
        tag="macosx_11_0_arm64",
        wheels=_wheels(
            "d61102c6b039b889dd66a2cbd4058d0308e43b02a04d86981478674a0a5de2e9",
            "67667334a6db1f9f01cb1117632d13acb557a1e58f6ed3e3a447940c49484bd7",
            "lib",
            ".dylib",
        ),
    ),
    Pin(
        "windows-x86-64",
        os="win32",
        arch="x86_64",
        tag="win_amd64",
        wheels=_wheels(
            "de47a1dc36d2c5f634b8c63c7c03d3fc85fded4fa4891eac4b213c5354215d26",
            "5f0451b1a55ec6c0af51ba88e84bec39e61e4d9f959da8350a425d2bb92e33c2",
            "",
            ".dll",
        ),
    ),
)
