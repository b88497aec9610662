"""Machine code and virtual machine code from a lowered module."""
