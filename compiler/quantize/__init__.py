"""Which weights and operands a build quantizes, with which scales, and at what cost in accuracy."""
