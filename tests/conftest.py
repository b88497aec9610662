"""Of every test: torch stays out of this process, since tvm_ffi imports it (3 s, 230 MB) wherever it is installed."""

import sys

sys.modules.setdefault("torch", None)  # type: ignore[arg-type]
