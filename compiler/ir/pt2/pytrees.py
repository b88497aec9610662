"""Names of what a program returns, from the structure that the file keeps of it."""

import json
from typing import Any

from compiler.errors import LoadError

_LISTS = ("builtins.tuple", "builtins.list", "collections.namedtuple", "collections.deque")
_DICTS = ("builtins.dict", "collections.OrderedDict", "collections.defaultdict")


def names_of(spec: Any) -> list[str]:
    """The name of each tensor returned, as TorchScript programs have them too: `output`,
    `output_0` in a tuple or list, the key in a dict; raises LoadError for a structure that is
    neither.
    """
    version, tree = spec
    if version != 1:
        raise LoadError(
            f"the outputs are described in version {version} of torch's pytrees, known is 1",
            reason="pt2_version",
            field="model",
            hint="save the program again with torch.export.save of torch 2.8 to 2.13",
        )
    return [
        f"output{suffix}" if suffix[:1] in ("", "_") else suffix for suffix in _suffixes(tree, "")
    ]


def _suffixes(tree: Any, suffix: str) -> list[str]:
    kind, children = tree["type"], tree["children_spec"]
    if kind is None:
        return [suffix]
    keys = _keys(kind, tree["context"], len(children))
    parts = [(f"{suffix}_{key}" if suffix or isinstance(key, int) else str(key)) for key in keys]
    return [
        name for part, child in zip(parts, children, strict=True) for name in _suffixes(child, part)
    ]


def _keys(kind: str, context: str, count: int) -> list[Any]:
    if kind in _DICTS:
        content = json.loads(context)
        if kind == "collections.defaultdict":
            content = content["dict_context"]
        return [str(key) for key in content]
    fields = _fields(kind, context)
    return fields if fields is not None else list(range(count))


def _fields(kind: str, context: str) -> list[str] | None:
    """The fields of a dataclass, such as the outputs of transformers' models are."""
    if kind in _LISTS:
        return None
    try:
        content = json.loads(context)
    except ValueError:
        return None
    if isinstance(content, list) and content and isinstance(content[0], list):
        content = content[0]
    texts = isinstance(content, list) and all(isinstance(item, str) for item in content)
    return content if texts else None
