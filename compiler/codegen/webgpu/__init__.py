"""Libraries for browsers whose kernels run on WebGPU: shaders, and a driver that launches them."""
