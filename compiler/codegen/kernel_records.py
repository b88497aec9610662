"""Records that code generation leaves for later builds about a kernel: the note that its scheduling
left, and the key of its object.
"""

import json
from dataclasses import asdict

from compiler.passes.cpu.recall import StoredKernel
from compiler.passes.framework.kernel_notes import KernelNote


def encode(kernel: StoredKernel) -> bytes:
    """The record, as an object is kept."""
    return json.dumps(asdict(kernel)).encode()


def decode(content: bytes) -> StoredKernel | None:
    """The kernel of a record, None for what is none."""
    try:
        document = json.loads(content)
        note = document["note"]
        declined = {str(family): str(reason) for family, reason in note["declined"].items()}
        return StoredKernel(
            KernelNote(str(note["family"]), str(note["tile"]), declined), str(document["object"])
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
