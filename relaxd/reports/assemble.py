"""Puts a build's report together from the documents of its bundle and its profiles."""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from relaxd.contract.bundle.manifest import Manifest
from relaxd.contract.bundle.profile import KernelTime, KernelTimes, Profile
from relaxd.contract.bundle.report import (
    DimReport,
    Kernel,
    Memory,
    NumericsReport,
    QuantizedReport,
    Report,
    Sizes,
    StoredReport,
    StringsReport,
    TargetReport,
    Tensor,
)
from relaxd.contract.bundle.strings import Strings
from relaxd.contract.bundle.weights import StoredWeights
from relaxd.contract.dims.dims import Dim
from relaxd.contract.dims.tensors import TensorSpec
from relaxd.contract.narrow import QuantizedLayers
from relaxd.contract.typed import read_typed
from relaxd.reports.sentences import sentences


def assemble(
    manifest: Manifest,
    numerics: Mapping[str, Any] | None,
    kernels: Sequence[Mapping[str, Any]],
    profiles: Sequence[Profile],
    digest: str | None = None,
) -> Report:
    """numerics, kernels: the bundle's own documents. Raises BundleError for a malformed one."""
    notes = tuple(read_typed(Kernel, kernel, "a kernel") for kernel in kernels)
    named = tuple(_with_notes(profile, notes) for profile in profiles)
    key = manifest.action_key
    parts = key.get("parts", {})
    dims = tuple(
        _dim(dim, (numerics or {}).get("verified_up_to", {}), named) for dim in manifest.dims
    )
    compared = read_typed(NumericsReport, numerics or {}, "numerics.json")
    return Report(
        manifest.name,
        _target(manifest),
        digest=digest,
        inputs=tuple(map(_tensor, manifest.inputs)),
        outputs=tuple(map(_tensor, manifest.outputs)),
        dims=dims,
        sizes=_sizes(manifest),
        memory=read_typed(Memory, manifest.memory, "memory"),
        stored=None if manifest.stored is None else _stored(manifest.stored),
        narrow=None if manifest.narrow is None else _quantized(manifest.narrow),
        strings=None if manifest.strings is None else _strings(manifest.strings),
        numerics=compared,
        kernels=notes,
        profiles=named,
        sentences=sentences(dims, compared, named),
        model=parts.get("model"),
        action_key=key.get("digest"),
        options=dict(parts.get("options", {})),
        toolchain=dict(manifest.toolchain),
        sandbox=manifest.builder.get("sandbox"),
    )


def _target(manifest: Manifest) -> TargetReport:
    load, target = manifest.load, manifest.target
    return TargetReport(
        str(target.get("name", "")), load.arch, load.os, load.device, load.isa, target.get("status")
    )


def _strings(strings: Strings) -> StringsReport:
    return StringsReport(
        tuple(map(_tensor, strings.inputs)),
        tuple(map(_tensor, strings.outputs)),
        strings.encoded,
        strings.decoded,
        strings.packages,
    )


def _tensor(spec: TensorSpec) -> Tensor:
    return Tensor(spec.name, spec.dtype, tuple(axis.text for axis in spec.shape))


def _dim(dim: Dim, verified: Mapping[str, int], profiles: Iterable[Profile]) -> DimReport:
    measured = [
        point.dims[dim.name]
        for profile in profiles
        for point in profile.points
        if dim.name in point.dims
    ]
    return DimReport(
        dim.name,
        dim.min,
        dim.max,
        dim.multiple,
        dim.opt,
        verified.get(dim.name),
        max(measured, default=None),
    )


def _stored(weights: StoredWeights) -> StoredReport:
    layers = weights.layers.values()
    return StoredReport(
        weights.form.value,
        weights.block,
        len(layers),
        sum(layer.bytes for layer in layers),
        sum(layer.before for layer in layers),
        dict(weights.kept),
        weights.calibration.value,
        {
            name: layer.nearest
            for name, layer in weights.layers.items()
            if layer.nearest is not None
        },
    )


def _quantized(report: QuantizedLayers) -> QuantizedReport:
    return QuantizedReport(
        report.form.value, len(report.layers), dict(report.kept), len(report.bfloat16)
    )


def _sizes(manifest: Manifest) -> Sizes:
    files = {name: entry.size for name, entry in sorted(manifest.files.items())}
    runtime = sum(
        size
        for name, size in files.items()
        if name != manifest.library and name.endswith((".so", ".dll", ".dylib"))
    )
    return Sizes(
        sum(files.values()),
        files.get(manifest.library, 0),
        files.get(manifest.weights_file, 0),
        runtime,
        files,
    )


def _with_notes(profile: Profile, kernels: Iterable[Kernel]) -> Profile:
    """Adds to each timed kernel what the bundle knows of it."""
    if profile.operators is None:
        return profile
    notes = {kernel.name: kernel for kernel in kernels}
    rows = tuple(_named(row, notes.get(row.name)) for row in profile.operators.rows)
    operators: KernelTimes = dataclasses.replace(profile.operators, rows=rows)
    return dataclasses.replace(profile, operators=operators)


def _named(row: KernelTime, note: Kernel | None) -> KernelTime:
    """Functions of the virtual machine have no note."""
    if note is None:
        return row
    return dataclasses.replace(row, family=note.family, tile=note.tile, nodes=note.nodes)
