/* What TVM opens as CUDA's runtime: its functions are those of the emulated driver, which comes with it. */
int cuInit(unsigned flags);
int cuda_emulator_runtime(void) { return cuInit(0); }
