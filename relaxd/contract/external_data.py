"""The files in which an ONNX model keeps its weights, read of its bytes: the client and the API's
image have no library of ONNX's.
"""

import mmap
from collections.abc import Iterator, Mapping
from itertools import islice

from relaxd.errors import DeclarationError

START = b"\x08"
"""ONNX models begin with the field `ir_version`."""
_KEY = b"location"
_Kind = Mapping[int, str]
_KINDS: Mapping[str, _Kind] = {
    "model": {7: "graph", 25: "function"},
    "graph": {1: "node", 5: "tensor", 15: "sparse"},
    "function": {7: "node", 11: "attribute"},
    "node": {5: "attribute"},
    "attribute": {5: "tensor", 6: "graph", 10: "tensor", 11: "graph", 22: "sparse", 23: "sparse"},
    "sparse": {1: "tensor", 2: "tensor"},
}
"""Which fields of a message lead to tensors, by number, as onnx.proto has them."""
_TENSOR_ENTRY, _TENSOR_LOCATION, _EXTERNAL = 13, 14, 1
MOST_FIELDS = 4_000_000
"""Of all messages that are looked into; reading so many takes seconds."""


def external_locations(data: "bytes | mmap.mmap | memoryview") -> list[str]:
    """The locations that the model's tensors name, each once, sorted; of a model that is cut short,
    those before the cut. Locations that are not UTF-8 have escapes. Raises DeclarationError for a
    model of more than MOST_FIELDS fields.
    """
    if not isinstance(data, memoryview) and data.find(_KEY) < 0:
        return []
    locations, left = set(), MOST_FIELDS
    waiting = [("model", 0, len(data))]
    while waiting:
        kind, start, stop = waiting.pop()
        for number, first, last in fields_of(data, start, stop):
            left -= 1
            if left < 0:
                raise DeclarationError(
                    f"the model has more than {MOST_FIELDS} fields", field="model"
                )
            inner = _KINDS[kind].get(number)
            if inner == "tensor" and last is not None:
                locations.add(_location(data, first, last))
            elif inner is not None and last is not None:
                waiting.append((inner, first, last))
    return sorted(location for location in locations if location is not None)


def _location(data: "bytes | mmap.mmap | memoryview", start: int, stop: int) -> str | None:
    """The location of a tensor, an empty text where it lacks one; None for a tensor whose numbers
    are in the model.
    """
    is_external, location = False, ""
    for number, first, last in islice(fields_of(data, start, stop), MOST_FIELDS // 64):
        if number == _TENSOR_LOCATION and last is None:
            is_external = first == _EXTERNAL
        elif number == _TENSOR_ENTRY and last is not None:
            fields = islice(fields_of(data, first, last), 8)
            entry = {n: bytes(data[a:b]) for n, a, b in fields if b is not None}
            if entry.get(1) == _KEY:
                location = entry.get(2, b"").decode("utf-8", "backslashreplace")
    return location if is_external else None


def fields_of(
    data: "bytes | mmap.mmap | memoryview", position: int, stop: int
) -> Iterator[tuple[int, int, int | None]]:
    """The number of each field of a message of protobuf with its span, or with its value and None;
    ends at what is malformed.
    """
    while position < stop:
        tag, position = read_varint(data, position, stop)
        wire = tag & 7
        if wire == 0:
            value, position = read_varint(data, position, stop)
            yield tag >> 3, value, None
        elif wire == 2:
            size, position = read_varint(data, position, stop)
            if position + size > stop:
                return
            yield tag >> 3, position, position + size
            position += size
        elif wire in (1, 5):
            position += 8 if wire == 1 else 4
        else:
            return


def read_varint(
    data: "bytes | mmap.mmap | memoryview", position: int, stop: int
) -> tuple[int, int]:
    """A number of protobuf and the position behind it, beyond `stop` for one that is cut short."""
    value = shift = 0
    while position < stop and shift < 64:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
    return 0, stop + 1
