"""Which attribute of the module a node reads or writes; without TVM."""

from typing import Any


def path_of(raw: Any) -> str | None:
    """The dotted path of the attribute that a node reads or writes, None where it is not the
    module's own.
    """
    source, path = next(iter(raw.inputs())), [raw.s("name")]
    while source.node().kind() == "prim::GetAttr":
        path.insert(0, source.node().s("name"))
        source = next(iter(source.node().inputs()))
    return ".".join(path) if source.node().kind() == "prim::Param" else None
