"""Explains a failed check of the compiled code: expected value, found value, dims of the call."""

import re
from collections.abc import Mapping

from relaxd.contract.dims.names import quote_name, with_names

_CHECK = re.compile(r"\{\{(?P<message>.*)\}\}", re.DOTALL)
_TENSOR = re.compile(
    r"\((?P<found>-?\d+) vs\. (?P<wanted>-?\d+)\).*match_cast, "
    r"ty=R\.Tensor\(\((?P<shape>.*?),?\), dtype=\"(?P<dtype>\w+)\"\)"
    r".*shape\[(?P<axis>\d+)\]",
    re.DOTALL,
)


_NO_MEMORY = "std::bad_alloc"
"""What the virtual machine says where there is none left."""


class Failed(Exception):
    """A library's error message of a call that failed, marked like the messages of the virtual
    machine's checks.
    """


def explain(error: str, dims: Mapping[str, int]) -> str:
    """The virtual machine's error in words, with the values of the dims; the error itself where it
    comes from no check.
    """
    check, tensor = _CHECK.search(error), _TENSOR.search(error)
    if check:
        message = check["message"]
    elif tensor:
        message = (
            f"a tensor that must be {tensor['dtype']}[{with_names(tensor['shape'])}] has "
            f"{tensor['found']} on axis {tensor['axis']}, "
            f"where {tensor['wanted']} is expected"
        )
    elif _NO_MEMORY in error:
        message = "out of memory"
    else:
        return error
    values = ", ".join(f"{quote_name(name)} = {value}" for name, value in dims.items())
    return f"{message}; in this call {values}" if values else message
