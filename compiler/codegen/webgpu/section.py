"""Custom sections of WebAssembly modules: data that engines hand to the page."""

NAME = "relaxd.webgpu"
"""The section that holds the shaders of a module, as JSON."""
_CUSTOM = b"\0"


def with_section(module: bytes, content: bytes, name: str = NAME) -> bytes:
    """The module with a section more."""
    spelled = name.encode()
    body = _number(len(spelled)) + spelled + content
    return module + _CUSTOM + _number(len(body)) + body


def _number(value: int) -> bytes:
    """LEB128, without a sign."""
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)
