"""Texts of an ONNX model: one that is no UTF-8 reaches Python as bytes, which nothing expects."""

from google.protobuf.descriptor import FieldDescriptor  # type: ignore[import-untyped]
from google.protobuf.message import Message  # type: ignore[import-untyped]

from compiler.errors import LoadError


def check_texts(message: Message) -> None:
    """Raise LoadError for a text of the message, or of one in it, that is no UTF-8."""
    for field, value in message.ListFields():
        if field.type not in (FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_MESSAGE):
            continue
        for part in [value] if isinstance(value, (str, bytes, Message)) else value:
            if isinstance(part, Message):
                check_texts(part)
            elif isinstance(part, bytes):
                raise LoadError(
                    f"{message.DESCRIPTOR.name}.{field.name} is {part[:100]!r}, "
                    "which is not valid UTF-8",
                    reason="not_utf8",
                    field="model",
                    hint="give the model names in UTF-8, as ONNX asks for, and export it again",
                )
