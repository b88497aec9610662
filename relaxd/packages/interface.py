"""The inputs, outputs and dims of a model as values of templates, for every kind of package."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from relaxd.contract.bundle.manifest import Manifest
from relaxd.contract.dims.axis_forms import bound_dims, write_axis
from relaxd.contract.dims.dims import Dim
from relaxd.contract.dims.names import clean_comment
from relaxd.contract.dims.tensors import TensorSpec, storage_of
from relaxd.packages.languages import Language, to_word

Values = Mapping[str, Any]
"""Texts, and lists of rows of Values that a template repeats lines for."""


@dataclass(frozen=True)
class Interface:
    """The interface of one library, for one language."""

    manifest: Manifest
    language: Language

    @property
    def dims(self) -> tuple[Dim, ...]:
        """The dims that bind takes, in its order."""
        return bound_dims(self.manifest.inputs, self.manifest.dims)

    def values(self) -> dict[str, Any]:
        """The values of a template."""
        manifest = self.manifest
        names = unique_names([dim.name for dim in self.dims], self.language)
        fields = dict(zip((dim.name for dim in self.dims), names, strict=True))
        prefix = manifest.entry
        return {
            "prefix": prefix,
            "guard": prefix.upper(),
            "short": prefix.removeprefix("relaxd_"),
            "module": _unique([to_word(prefix.removeprefix("relaxd_"))], self.language.taken)[0],
            "lower": prefix.removeprefix("relaxd_").lower(),
            "name": clean_comment(manifest.name),
            "target": clean_comment(str(manifest.target.get("name", ""))),
            "dims": list(map(self._dim, self.dims, names, _constants(names))),
            "inputs": self._tensors(manifest.inputs, fields),
            "outputs": self._tensors(manifest.outputs, fields),
            "no_dims": [] if self.dims else [{}],
            "no_inputs": [] if manifest.inputs else [{}],
            "dim_count": len(self.dims),
            "input_count": len(manifest.inputs),
            "output_count": len(manifest.outputs),
            "weights": [{}] if manifest.weights_file in manifest.files else [],
            "embedded": [] if manifest.weights_file in manifest.files else [{}],
        }

    def _dim(self, dim: Dim, field: str, constant: str) -> Values:
        return {
            "dim": field,
            "constant": constant,
            "about": f"{clean_comment(dim.name)}: {clean_comment(dim.describe())}",
            "min": dim.min,
            "max": self.language.unbounded if dim.max is None else dim.max,
            "multiple": dim.multiple,
            "value": _favoured(dim),
        }

    def _tensors(self, specs: Iterable[TensorSpec], fields: Mapping[str, str]) -> list[Values]:
        specs = tuple(specs)
        names = unique_names([spec.name for spec in specs], self.language)
        pairs = enumerate(zip(specs, names, strict=True))
        return [self._tensor(spec, name, fields, i) for i, (spec, name) in pairs]

    def _tensor(self, spec: TensorSpec, name: str, fields: Mapping[str, str], i: int) -> Values:
        """`shape` is of inputs alone: an output may have extents that only a run knows."""
        language, state = self.language, self.manifest.state
        of_dim = {dim: language.dim.format(field) for dim, field in fields.items()}
        known = all(axis.dims <= fields.keys() for axis in spec.shape)
        axes = [write_axis(axis, of_dim, language.axes) for axis in spec.shape] if known else []
        written = state is not None and spec.name in {cache.input for cache in state.caches}
        return {
            "tensor": name,
            "index": i,
            "type": language.types[storage_of(spec.dtype)],
            "about": _about(spec, written),
            "rank": len(spec.shape),
            "shape": ", ".join(axes),
            "written": [{}] if written else [],
            "read": [] if written else [{}],
        }


def unique_names(names: Iterable[str], language: Language) -> list[str]:
    """The names as the language writes them, in order, none twice."""
    return _unique(map(language.spell, names), language.taken)


def _constants(names: Iterable[str]) -> list[str]:
    """The names in capitals, none twice."""
    return _unique(map(str.upper, names), ())


def _unique(words: Iterable[str], taken: Iterable[str]) -> list[str]:
    used, result = set(taken), []
    for word in words:
        while word in used:
            word += "_"
        used.add(word)
        result.append(word)
    return result


def _about(spec: TensorSpec, written: bool) -> str:
    stored = storage_of(spec.dtype)
    of_bytes = f", one element a byte as {stored}" if stored != spec.dtype else ""
    cache = ", a cache that a run also writes" if written else ""
    return f"{clean_comment(spec.name)}: {clean_comment(spec.text)}{of_bytes}{cache}"


def _favoured(dim: Dim) -> int:
    """The size that examples take: the favoured one, else the least that is not 0."""
    least = dim.lowest or dim.multiple
    return dim.opt or (least if dim.admits(least) else dim.lowest)
