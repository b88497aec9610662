"""Makes a library of scheduled kernels: bytecode for TVM's virtual machine, a driver in C that
needs no runtime, or a driver that launches shaders.
"""

import dataclasses
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import tvm

from compiler.bundle import files, weights
from compiler.bundle.weights import Layout
from compiler.codegen import generate
from compiler.codegen.custom_operators import compile_operators
from compiler.codegen.kernel_cache import KernelCache
from compiler.codegen.standalone import header as c_header
from compiler.codegen.standalone.kernels import Kernels, compile_apart, compile_kernels
from compiler.codegen.standalone.source import TEAM, WATCH, Signature, driver_source
from compiler.codegen.standalone.wrappers import wrappers
from compiler.codegen.webgpu import section, shaders
from compiler.codegen.webgpu.source import EXPORTS, device_source
from compiler.ir.graph.checks import messages_of
from compiler.ir.imported import Imported, Ranges
from compiler.link import header, library
from compiler.link.standalone import Parts, compiled_now, link_standalone
from compiler.passes import manager
from compiler.passes.pipelines import Interface, has_object_by_kernel
from compiler.runtimes import linking
from compiler.targets import ObjectFormat, Runtime, Target
from relaxd.contract.bundle.manifest import Manifest
from relaxd.contract.dims.axis_forms import identifier
from relaxd.contract.operators import CustomOperator
from relaxd.contract.options import Flavour

if TYPE_CHECKING:
    from compiler.passes.framework.observers import Observer

_LONGEST_NAME = 40
_LONGER_THAN_A_NUMBER = 9
"""The fewest bytes of a constant that is more than one number."""

KERNELS = "kernels"
"""Begins the symbols of kernels that are objects of their own, which libraries of any name link."""

NodesOfKernels = Mapping[str, Sequence[str]]
"""By kernel, the names of the model's nodes that it computes."""


@dataclass(frozen=True)
class Subject:
    """The parts of a library beside its module: the names of the model, its target, its inputs
    and outputs; embedded: whether it holds its weights; kernels: where some may be there already;
    operators: those that C code computes.
    """

    name: str
    digest: str
    target: Target
    imported: Imported
    embedded: bool = False
    kernels: KernelCache | None = None
    operators: tuple[CustomOperator, ...] = ()


class Backend(Protocol):
    """One backend; each step takes the result of the one before."""

    @property
    def takes_objects(self) -> bool:
        """True if a kernel whose object is there needs no loops."""

    @property
    def smallest_weight(self) -> int:
        """Bytes of a constant that goes into the file of weights, at least."""

    def lower(self, module: tvm.IRModule, ranges: Ranges, observers: "Sequence[Observer]") -> Any:
        """The rest of the passes, with the weights taken out; raises PassError."""

    def generate(
        self, lowered: Any, nodes: NodesOfKernels, observers: "Sequence[Observer]" = ()
    ) -> Any:
        """Machine code, not linked yet; nodes: for messages; raises CodegenError."""

    def link(self, code: Any, folder: Path, weights: Layout, written: Callable[[], Any]) -> None:
        """Writes the library, and what it needs beside it, into the bundle; raises LinkError.

        written: returns when the file of weights is there.
        """

    def describe(self, manifest: Manifest, folder: Path) -> Manifest:
        """The manifest with what a loader must know of the backend, and the header, if any."""


def backend_of(flavour: Flavour, subject: Subject) -> Backend:
    """Return the backend of that name."""
    if flavour is Flavour.VM:
        return VirtualMachine(subject)
    return WebGPU(subject) if subject.target.launches else Standalone(subject)


@dataclass(frozen=True)
class VirtualMachine:
    """Bytecode for TVM's virtual machine."""

    subject: Subject

    @property
    def _prefix(self) -> str:
        return header.prefix_of(self.subject.name, self.subject.digest)

    @property
    def _linked(self) -> bool:
        """True if the program that uses the library brings the runtime."""
        return self.subject.target.platform.runtime is Runtime.LINKED

    @property
    def takes_objects(self) -> bool:
        """Where each kernel is an object of its own."""
        return has_object_by_kernel(self.subject.target)

    @property
    def smallest_weight(self) -> int:
        """Those that are worth a place of their own."""
        return weights.SMALLEST

    def lower(self, module: tvm.IRModule, ranges: Ranges, observers: "Sequence[Observer]") -> Any:
        """Calls of the virtual machine."""
        interface = Interface(symbols=self._prefix)
        return manager.to_machine(module, self.subject.target, ranges, observers, interface)

    def generate(
        self, lowered: Any, nodes: NodesOfKernels, observers: "Sequence[Observer]" = ()
    ) -> Any:
        """The executable, and how the code of its device is embedded."""
        subject = self.subject
        executable = generate.generate(lowered, subject.target, subject.kernels, observers)
        return executable, generate.device_code(executable, subject.target)

    def link(self, code: Any, folder: Path, weights: Layout, written: Callable[[], Any]) -> None:
        """The library and TVM's runtime."""
        target = self.subject.target
        if target.platform.runtime is Runtime.BUNDLED:
            linking.warm_up(target)
        executable, pack = code
        with tempfile.TemporaryDirectory() as workspace:
            further = compile_operators(self.subject.operators, Path(workspace), target)
            library.link_library(executable, folder, target, pack, further)
        files.add_runtime(folder, target)
        files.add_licences(folder)

    def describe(self, manifest: Manifest, folder: Path) -> Manifest:
        """The manifest as it is; an archive gets a header."""
        if self._linked:
            header.write(folder, manifest, self._prefix)
        return manifest


@dataclass(frozen=True)
class _Code:
    """A planned module, and the code of its kernels; nodes: what each computes of the model."""

    module: tvm.IRModule
    kernels: Kernels
    nodes: NodesOfKernels


@dataclass(frozen=True)
class Standalone:
    """Plain C functions, called by a driver in C."""

    subject: Subject

    @property
    def _prefix(self) -> str:
        return f"relaxd_{identifier(self.subject.name)[:_LONGEST_NAME] or 'model'}"

    @property
    def takes_objects(self) -> bool:
        """Where each kernel is an object of its own."""
        return has_object_by_kernel(self.subject.target)

    @property
    def smallest_weight(self) -> int:
        """Whatever is more than a number, where the object of a driver is kept: that of a model
        with other weights is the same then.
        """
        return _LONGER_THAN_A_NUMBER if self.takes_objects else weights.SMALLEST

    def lower(self, module: tvm.IRModule, ranges: Ranges, observers: "Sequence[Observer]") -> Any:
        """A module whose memory is planned."""
        return manager.to_plan(module, self.subject.target, ranges, observers)

    def generate(
        self, lowered: Any, nodes: NodesOfKernels, observers: "Sequence[Observer]" = ()
    ) -> Any:
        """The code of the kernels."""
        target = self.subject.target
        if self.takes_objects:
            kernels = compile_apart(lowered, target, KERNELS, self.subject.kernels, observers)
        else:
            kernels = compile_kernels(lowered, target, self._prefix, target.threads, observers)
        return _Code(lowered, kernels, nodes)

    def link(self, code: Any, folder: Path, weights: Layout, written: Callable[[], Any]) -> None:
        """The library, its header, and threads where a loader of ours brings them."""
        target, file = self.subject.target, folder / files.WEIGHTS
        signature = self._signature(weights.bytes)
        offsets = [weight.offset for weight in weights.table]
        messages = messages_of(code.module)
        wasm = target.platform.object_format is ObjectFormat.WASM
        team = wasm and target.threads
        # Other targets have no loader that would listen.
        watch = target.platform.runtime is Runtime.BUNDLED
        source, included = driver_source(
            code.module,
            code.kernels.table,
            signature,
            self._prefix,
            offsets,
            messages,
            symbols=KERNELS if self.takes_objects else None,
            heap=not target.platform.bare,
            nodes=code.nodes,
            team=team,
            watch=watch,
        )
        text = c_header.header_text(
            signature, self._prefix, target.name, allocator=wasm, team=team, watch=watch
        )
        if target.platform.runtime is Runtime.BUNDLED:
            linking.warm_up(target)
        with tempfile.TemporaryDirectory() as workspace:
            objects = [Path(workspace, f"{index}.o") for index in range(len(code.kernels.objects))]
            for path, content in zip(objects, code.kernels.objects, strict=True):
                path.write_bytes(content)
            objects += compile_operators(self.subject.operators, Path(workspace), target)
            embedded = file if signature.embedded else None
            if embedded is not None:
                written()
            exports = (TEAM if team else ()) + (WATCH if watch else ())
            parts = Parts(self._prefix, source, text, objects, embedded, exports, included)
            kernels = self.subject.kernels
            link_standalone(parts, folder, target, kernels.compiled_c if kernels else compiled_now)
        if signature.embedded:
            file.unlink()
        system = target.platform.os
        for name, wrapper in wrappers(signature, self._prefix, target.name, system).items():
            (folder / name).write_text(wrapper, encoding="utf-8")
        files.add_helpers(folder, target)
        files.add_licences(folder)

    def _signature(self, size: int) -> Signature:
        imported = self.subject.imported
        return Signature(
            self.subject.name,
            imported.inputs,
            imported.outputs,
            imported.dims,
            size,
            embedded=self.subject.embedded and size > 0,
            written=frozenset(c.input for c in imported.in_place.state.caches)
            if imported.in_place
            else frozenset(),
        )

    def describe(self, manifest: Manifest, folder: Path) -> Manifest:
        """Without a runtime, and with the prefix of its functions; weights that the library holds
        are no business of a loader's.
        """
        return dataclasses.replace(
            manifest,
            weights=() if self.subject.embedded else manifest.weights,
            flavour=Flavour.STANDALONE,
            entry=self._prefix,
            load=dataclasses.replace(manifest.load, runtime={}),
        )


@dataclass(frozen=True)
class WebGPU(Standalone):
    """Shaders, launched by a driver in C."""

    @property
    def smallest_weight(self) -> int:
        """Every one: its caller uploads weights, and nothing else."""
        return 0

    def generate(
        self, lowered: Any, nodes: NodesOfKernels, observers: "Sequence[Observer]" = ()
    ) -> Any:
        """The shaders, and what of each tensor program runs beside them."""
        return lowered, shaders.split(lowered, self.subject.target, observers), nodes

    def link(self, code: Any, folder: Path, weights: Layout, written: Callable[[], Any]) -> None:
        """The module, with the shaders in a section of it. Its caller uploads the weights."""
        (module, split, nodes), target = code, self.subject.target
        signature = self._signature(0)
        messages = messages_of(module)
        source = device_source(module, split, signature, self._prefix, messages, nodes)
        text = c_header.header_text(signature, self._prefix, target.name, allocator=True)
        linking.warm_up(target)
        parts = Parts(self._prefix, source.driver, text, [], exports=EXPORTS)
        linked = link_standalone(parts, folder, target)
        linked.write_bytes(section.with_section(linked.read_bytes(), source.table))
        # Tensors are numbers of a page's buffers: no program in C could call it.
        (folder / "model.h").unlink()
        files.add_licences(folder)
