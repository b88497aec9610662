"""Load a bundle and run it; needs numpy, and apache-tvm-ffi for TVM's virtual machine."""
