"""Targets: the processor and device to generate code for, the format of the library, and the
requirements on a machine that loads it.
"""

import dataclasses
import json
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from compiler.errors import UnknownTarget
from compiler.targets.abi import Abi
from compiler.targets.caches import Caches
from relaxd.contract.bundle.manifest import LoadContract
from relaxd.contract.options import Flavour

GLIBC = "2.28"
ATOMICS = "atomics"
"""The feature of WebAssembly with which several instances of a module share one memory."""


class TargetStatus(StrEnum):
    """The proof that libraries work: run on such hardware, run under an emulator, or only compiled.

    UNVERIFIED is the status of a build whose request wanted no check.
    """

    EXECUTED = "executed"
    EMULATED = "emulated"
    COMPILED_ONLY = "compiled_only"
    UNVERIFIED = "unverified"


class ObjectFormat(StrEnum):
    """The format of object files and of what is linked from them."""

    ELF = "elf"
    MACHO = "macho"
    COFF = "coff"
    WASM = "wasm"


class Runtime(StrEnum):
    """How the code meets TVM's runtime.

    BUNDLED: a shared library, with the backend `vm` beside the runtime of TVM's wheel for that
    platform. LINKED: a static archive; where its backend is `vm` it registers itself as a
    system library, and the program that links it links the runtime in.
    NONE: TVM has no runtime there, and code has to do without: a WebAssembly module, or a static
    archive for a processor without an operating system.
    """

    BUNDLED = "bundled"
    LINKED = "linked"
    NONE = "none"


_SHARED = {
    ObjectFormat.ELF: ".so",
    ObjectFormat.MACHO: ".dylib",
    ObjectFormat.COFF: ".dll",
    ObjectFormat.WASM: ".wasm",
}

_FLAVOURS = {
    Runtime.BUNDLED: (Flavour.STANDALONE, Flavour.VM),
    # A program that links a library would have to build TVM's runtime for its platform first.
    Runtime.LINKED: (Flavour.STANDALONE, Flavour.VM),
    Runtime.NONE: (Flavour.STANDALONE,),
}

Option = str | int | bool
Options = tuple[tuple[str, Option], ...]


@dataclass(frozen=True)
class Platform:
    """The system that the host side of a target runs on.

    triple: LLVM's, of four parts except for Apple's; os: as `sys.platform` spells it; linker: the
    triple that `zig cc -target` takes; abi: what code keeps to there.
    libc: the least glibc, None where there is another C library; unseen: of a system whose
    libraries are emulated in programs for Linux, what that shows nothing of.
    """

    triple: str
    arch: str
    os: str
    object_format: ObjectFormat
    linker: str
    runtime: Runtime
    abi: Abi
    libc: str | None = None
    unseen: str | None = None

    @property
    def bare(self) -> bool:
        """True if there is no operating system, and so no heap and no files."""
        return self.os == "none"

    @property
    def archived(self) -> bool:
        """True if a library for this platform is an archive, which a program links."""
        return self.runtime is Runtime.LINKED or self.bare

    @property
    def library(self) -> str:
        """The file name of what is linked for this platform."""
        return "model.a" if self.archived else f"model{_SHARED[self.object_format]}"


@dataclass(frozen=True)
class Device:
    """The device that runs the kernels beside the host's processor.

    name: as the load contract names it (`cuda`, `opencl`, `metal`, `rocm`, `webgpu`); sm: NVIDIA's
    architecture (`sm_90`).
    options: attributes of TVM's target kind (`arch`, `max_num_threads`...); driver: the least
    driver version, None for any.
    toolkit: what compiles the kernels, as in `nvrtc 12.8`, None where TVM alone does; lacking: why
    this installation cannot.
    """

    name: str
    options: Options = ()
    sm: str | None = None
    driver: str | None = None
    toolkit: str | None = None
    lacking: str | None = None


@dataclass(frozen=True)
class Target:
    """A processor, with a device beside it or not, to compile for.

    kind: TVM's target kind, of the device where there is one; cpu, features: LLVM's spelling
    (`+avx2`).
    isa: the same features as Linux spells them in /proc/cpuinfo: what the code may use, and what a
    loader can check.
    vector_bits, vector_registers: width (0 without vectors) and count of the vector registers;
    caches: sizes in bytes.
    llvm: further options of TVM's llvm target (`mfloat-abi`). emulator: `qemu-user` arguments that
    give such a processor, or the one of an emulated PC.
    resolved: for `native`, the entry it comes from; for a raw target, None.
    """

    name: str
    kind: str
    platform: Platform
    cpu: str
    features: tuple[str, ...]
    isa: tuple[str, ...]
    vector_bits: int
    vector_registers: int
    caches: Caches
    status: TargetStatus
    fma: bool = True
    llvm: Options = ()
    emulator: tuple[str, ...] | None = None
    device: Device | None = None
    resolved: str | None = None
    raw: bool = False

    @property
    def triple(self) -> str:
        """LLVM's name of the host platform."""
        return self.platform.triple

    @property
    def arch(self) -> str:
        """The host's architecture, as Linux spells it."""
        return self.platform.arch

    @property
    def capability(self) -> str:
        """The capability that a worker must offer to compile for this: the entry's name, or any raw
        target of the kind.
        """
        return f"raw-{self.kind}" if self.raw else self.name

    @property
    def load(self) -> LoadContract:
        """The requirements on a machine; the bundle adds the runtime's version."""
        base = LoadContract(
            arch=self.arch, os=self.platform.os, isa=self.isa, libc=self.platform.libc
        )
        if self.device is None:
            return base
        return dataclasses.replace(
            base, device=self.device.name, sm=self.device.sm, driver=self.device.driver
        )

    @property
    def threads(self) -> bool:
        """True if code for it may share out loops among threads."""
        if self.platform.object_format is ObjectFormat.WASM:
            return ATOMICS in self.isa
        return not self.platform.bare

    @property
    def launches(self) -> bool:
        """True if a library for it has no runtime that launches its device's kernels."""
        return self.device is not None and self.platform.runtime is Runtime.NONE

    @property
    def flavours(self) -> tuple[Flavour, ...]:
        """The backends of a library for it, the default first."""
        if self.device is not None and not self.launches:
            return (Flavour.VM,)
        return _FLAVOURS[self.platform.runtime]

    def flavour(self, wanted: Flavour | None) -> Flavour:
        """A library's backend, as a request wants it or by default; raises UnknownTarget where the
        target has no such backend.
        """
        own = self.flavours[0]
        if wanted is None:
            return own
        if wanted not in self.flavours:
            raise UnknownTarget(
                f"target {self.name!r} has no backend {wanted.value!r}",
                reason="flavour",
                field="options.flavour",
                hint=f"leave `--flavour` out for {own.value!r}, or build for another target",
            )
        return wanted

    def embeds(self, wanted: bool | None, flavour: Flavour) -> bool:
        """True if a library of this backend holds its weights, as a request wants it or by default;
        raises UnknownTarget where the backend has no such libraries.
        """
        if wanted and flavour is not Flavour.STANDALONE:
            raise UnknownTarget(
                f"a library for the backend {flavour.value!r} cannot hold its weights",
                reason="embed_weights",
                field="options.embed_weights",
                hint="add `--flavour standalone`, or leave embed_weights out",
            )
        if wanted and self.launches:
            raise UnknownTarget(
                f"a library for {self.name} cannot hold its weights: its page uploads them",
                reason="embed_weights",
                field="options.embed_weights",
                hint="leave embed_weights out",
            )
        return self.platform.bare if wanted is None else wanted

    def to_tvm(self) -> dict[str, Any]:
        """The target as TVM's JSON; one with a device carries its host."""
        host = {
            "kind": "llvm",
            "mtriple": self.triple,
            "mcpu": self.cpu,
            "mattr": list(self.features),
            **dict(self.llvm),
        }
        if self.device is None:
            return host
        return {"kind": self.kind, **dict(self.device.options), "host": host}

    def to_json(self) -> dict[str, Any]:
        """The manifest's `target` and the action key's part."""
        document: dict[str, Any] = json.loads(json.dumps(asdict(self)))
        document["llvm"] = dict(self.llvm)
        # The same for all libraries of a platform, and nothing that decides their bytes.
        del document["platform"]["abi"], document["platform"]["unseen"]
        if self.device is not None:
            document["device"]["options"] = dict(self.device.options)
        return document | {"triple": self.triple, "arch": self.arch}

    def to_list(self) -> dict[str, Any]:
        """The document of a list of targets: `to_json`, and the backends that a request may ask
        for, the default first.
        """
        return {**self.to_json(), "flavours": [flavour.value for flavour in self.flavours]}
