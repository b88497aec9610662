"""Attributes of tensor programs by which passes and code generation know each other's work."""

FAMILY = "relaxd.family"
"""The kernel family that wrote the loops."""

OBJECT = "relaxd.object"
"""The attribute of a kernel that an earlier build compiled, and whose loops are not here: the key
of its object."""

FUNCTION = "relaxd.function"
"""The attribute of a C function: how it is called, as JSON."""
