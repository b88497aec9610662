"""The programs and libraries that builds call: zig, CUDA's compilers, their versions and caches."""
