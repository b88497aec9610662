/* Rounds the weights of a GGUF file as llama.cpp does it. Arguments: the file, the file to write,
   F32 or Q4_0. */
#include <llama.h>
#include <stdio.h>
#include <string.h>

static void quiet(enum ggml_log_level level, const char *text, void *data) {
  (void)data;
  if (level == GGML_LOG_LEVEL_ERROR) fputs(text, stderr);
}

int main(int count, char **arguments) {
  if (count != 4) return 2;
  llama_log_set(quiet, NULL);
  llama_backend_init();
  struct llama_model_quantize_params params = llama_model_quantize_default_params();
  params.ftype = strcmp(arguments[3], "F32") ? LLAMA_FTYPE_MOSTLY_Q4_0 : LLAMA_FTYPE_ALL_F32;
  params.allow_requantize = true;
  return (int)llama_model_quantize(arguments[1], arguments[2], &params);
}
