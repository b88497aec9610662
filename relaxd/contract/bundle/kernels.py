"""A bundle's kernels.json: the names, families, tiles and nodes of the library's kernels."""

from collections.abc import Mapping
from typing import Any

from relaxd.contract.documents import known_keys, mapping, sequence

FILENAME = "kernels.json"
_KEYS = frozenset({"kernels"})


def kernels_of(document: Any) -> list[Mapping[str, Any]]:
    """The kernels of the document; raises BundleError."""
    known_keys(mapping(document, FILENAME), _KEYS, FILENAME)
    return [mapping(kernel, "a kernel") for kernel in sequence(document["kernels"], "kernels")]
