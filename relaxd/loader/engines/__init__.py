"""Engines that run a library: TVM's virtual machine, or ctypes and a context."""
