"""The machine that loads: processor, devices, cores, pages, and whether a bundle can run on it."""
