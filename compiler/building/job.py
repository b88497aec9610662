"""The inputs and folders of one build, and the library that it made."""

from dataclasses import dataclass
from pathlib import Path

from compiler.isolation.level import Level
from compiler.isolation.messages import CompileJob
from compiler.isolation.stages import OnEvent
from compiler.isolation.step import Record
from compiler.quantize.plan import QuantizationPlan
from compiler.targets import Target
from compiler.verify.inputs.inputs import Signature
from relaxd.contract.bundle.manifest import Manifest
from relaxd.contract.options import Flavour
from relaxd.contract.request import CompileRequest


@dataclass(frozen=True)
class Compiled:
    """A library in the partial bundle: its manifest and signature, the notes of its kernels, the
    plan that it was quantized by, and the digest of the model without its weights, empty where it
    is no ONNX model.
    """

    manifest: Manifest
    signature: Signature
    kernels: list[Record]
    quantization: QuantizationPlan
    structure: str = ""


@dataclass(frozen=True)
class Build:
    """The inputs and folders of one build.

    partial: the bundle as it grows; scratch: a folder that is removed at the end of the build;
    more_points: as in `build`.
    """

    job: CompileJob
    request: CompileRequest
    target: Target
    partial: Path
    scratch: Path
    on_event: OnEvent
    more_points: bool
    sandbox: Level

    @property
    def flavour(self) -> Flavour:
        """The library's backend."""
        return self.target.flavour(self.request.options.flavour)
