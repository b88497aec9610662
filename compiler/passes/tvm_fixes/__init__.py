"""Repairs of what TVM 0.27 and its LLVM 22 get wrong, or leave to chance.

Each module's docstring ends with a paragraph `Upstream:`, which names the report, and when the
module can go. With a new version, take a module out of the pipeline and run its tests: where they
pass, the module has served.
"""
