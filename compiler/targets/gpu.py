"""Targets with a GPU beside the host's processor."""

from compiler.targets.target import Target

ENTRIES: tuple[Target, ...] = ()
