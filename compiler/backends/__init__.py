"""How a compiled model is driven: by TVM's virtual machine, by C of its own, by WebGPU."""
