"""Single kernels at the shapes of real models, against the peak of the processor."""
