"""The action key of one build: the parts that decide its bytes."""

from collections.abc import Mapping

from compiler.targets import Target
from relaxd.contract.action import ActionKey
from relaxd.contract.request import CompileRequest


def action_key(
    model_digest: str, request: CompileRequest, target: Target, toolchain: Mapping[str, str]
) -> ActionKey:
    """The key of building the model of that digest for one target; `toolchain` is
    `toolchain.versions()`.
    """
    declared = request.to_json()
    described = target.to_json()
    del described["status"]
    options = declared.pop("options")
    # A dump lies beside the bundle and changes nothing in it.
    del declared["targets"], options["dump"]
    options["flavour"] = target.flavour(request.options.flavour)
    return ActionKey(
        {
            "model": model_digest,
            "request": declared,
            "target": described,
            "options": options,
            "pipeline": toolchain["pipeline"],
            "toolchain": {
                part: version for part, version in toolchain.items() if part != "pipeline"
            },
        }
    )
