"""Libraries that need no runtime, beside those on TVM's virtual machine and beside peers."""
