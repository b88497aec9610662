"""The action key of one build: the parts that decide its bytes."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from compiler.targets import Target
from relaxd.contract.action import ActionKey
from relaxd.contract.request import CompileRequest


@dataclass(frozen=True)
class Description:
    """The part of a target in the keys of its builds: its document, and its backends, the default
    first.
    """

    document: Mapping[str, Any]
    flavours: tuple[str, ...]

    @classmethod
    def of(cls, target: Target) -> "Description":
        """The description of a resolved target."""
        document = target.to_json()
        del document["status"]
        return cls(document, tuple(target.flavours))

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> "Description":
        """The description that `to_json` wrote."""
        return cls(document["document"], tuple(document["flavours"]))

    def to_json(self) -> dict[str, Any]:
        """For another process."""
        return {"document": dict(self.document), "flavours": list(self.flavours)}


def action_key(
    model_digest: str, request: CompileRequest, target: Target, toolchain: Mapping[str, str]
) -> ActionKey:
    """The key of building the model of that digest for one target; `toolchain` is
    `toolchain.versions()`. Raises UnknownTarget for a backend that the target has not.
    """
    flavour = target.flavour(request.options.flavour)
    return key_of(model_digest, request, Description.of(target), flavour, toolchain)


def key_of(
    model_digest: str,
    request: CompileRequest,
    target: Description,
    flavour: str,
    toolchain: Mapping[str, str],
) -> ActionKey:
    """`action_key`, of a target that may be another machine's."""
    declared = request.to_json()
    options = declared.pop("options")
    # A dump lies beside the bundle and changes nothing in it.
    del declared["targets"], options["dump"]
    options["flavour"] = flavour
    return ActionKey(
        {
            "model": model_digest,
            "request": declared,
            "target": dict(target.document),
            "options": options,
            "pipeline": toolchain["pipeline"],
            "toolchain": {
                part: version for part, version in toolchain.items() if part != "pipeline"
            },
        }
    )
