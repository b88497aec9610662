"""A CUDA device made of the processor: a driver, a runtime and an nvcc that bundles for CUDA are
built with and run on.

It finds much of what a GPU refuses or computes wrongly: barriers that are missing, that not all
threads reach, or that they reach at different lines; vectors at unaligned addresses; grids and
blocks too large or empty; host memory given to kernels and device memory read by the host; memory
used after it was freed or never written; work that a captured graph must not have. It knows
nothing of NVIDIA's compiler and machine code, of races between blocks or within a warp, of
asynchronous work, or of time.
"""
