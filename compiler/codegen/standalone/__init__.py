"""Code that needs no runtime: kernels as plain functions, and a driver in C that calls them."""
