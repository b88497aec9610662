"""Attempts of hostile code, each in a process of its own behind the sandbox."""

from tests.compiler.isolation.attacks import files, network, processes, system
from tests.compiler.isolation.attacks.narrowed import NARROWED
from tests.compiler.isolation.attacks.scene import ATTACKS, SECRET, Scene

__all__ = ["ATTACKS", "NARROWED", "SECRET", "Scene", "files", "network", "processes", "system"]
