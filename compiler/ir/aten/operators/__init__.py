"""The operators by family; importing this package fills the registry."""

import importlib
import pkgutil

FAMILIES = tuple(module.name for module in pkgutil.iter_modules(__path__))

for _family in FAMILIES:
    importlib.import_module(f"{__name__}.{_family}")
