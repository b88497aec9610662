/* Answers a line on its input with a line on its output, by llama.cpp: see engines.py.
   Arguments: a GGUF file, threads, tokens of a sequence at most. */
#include <llama.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static struct llama_model *model;
static struct llama_context *context;
static int threads, capacity, entries, filled;
static struct llama_batch batch;

static double now(clockid_t clock) {
  struct timespec time;
  clock_gettime(clock, &time);
  return time.tv_sec + 1e-9 * time.tv_nsec;
}

static void fail(const char *what) {
  fprintf(stderr, "llama.cpp: %s\n", what);
  exit(1);
}

static void quiet(enum ggml_log_level level, const char *text, void *data) {
  (void)data;
  if (level == GGML_LOG_LEVEL_ERROR) fputs(text, stderr);
}

/* A context for so many sequences, all of them empty. */
static void begin(int wanted) {
  if (wanted != entries) {
    if (context) llama_free(context);
    struct llama_context_params params = llama_context_default_params();
    params.n_ctx = capacity * wanted;
    params.n_batch = params.n_ubatch = 512;
    params.n_seq_max = wanted;
    params.n_threads = params.n_threads_batch = threads;
    params.no_perf = true;
    context = llama_init_from_model(model, params);
    if (!context) fail("no context");
    entries = wanted;
  }
  llama_memory_clear(llama_get_memory(context), false);
  filled = 0;
}

static void add(int token, int place, int entry, int wants) {
  int i = batch.n_tokens++;
  batch.token[i] = token;
  batch.pos[i] = place;
  batch.n_seq_id[i] = 1;
  batch.seq_id[i][0] = entry;
  batch.logits[i] = wants;
}

static void compute(void) {
  if (llama_decode(context, batch)) fail("llama_decode failed");
  llama_synchronize(context);
  batch.n_tokens = 0;
}

/* Token `place` of every text. */
static int token_at(int place) { return 10 + place * 37 % 1000; }

static void prompt(int entry, int tokens) {
  for (int i = 0; i < tokens; i++) {
    add(token_at(i), i, entry, i == tokens - 1);
    if (batch.n_tokens == 512 || i == tokens - 1) compute();
  }
}

static void answer(double wall, double cpu) { printf("%.9f %.9f\n", wall, cpu); }

static void prefill(int tokens) {
  begin(1);
  double wall = now(CLOCK_MONOTONIC), cpu = now(CLOCK_PROCESS_CPUTIME_ID);
  prompt(0, tokens);
  answer(now(CLOCK_MONOTONIC) - wall, now(CLOCK_PROCESS_CPUTIME_ID) - cpu);
}

static void decode(int past, int wanted, int steps) {
  if (wanted != entries || filled != past) {
    begin(wanted);
    for (int i = 0; i < wanted; i++) prompt(i, past);
  }
  double wall = now(CLOCK_MONOTONIC), cpu = now(CLOCK_PROCESS_CPUTIME_ID);
  for (int step = 0; step < steps; step++) {
    for (int i = 0; i < wanted; i++) add(token_at(past + step), past + step, i, 1);
    compute();
  }
  wall = now(CLOCK_MONOTONIC) - wall, cpu = now(CLOCK_PROCESS_CPUTIME_ID) - cpu;
  for (int i = 0; i < wanted; i++) llama_memory_seq_rm(llama_get_memory(context), i, past, -1);
  filled = past;
  answer(wall / steps, cpu / steps);
}

static void logits(int tokens) {
  begin(1);
  prompt(0, tokens);
  const float *found = llama_get_logits_ith(context, -1);
  for (int i = 0; i < 256; i++) printf("%.9g ", found[i]);
  printf("\n");
}

/* `PATH FIRST TOKEN...`: writes the logits behind each token from FIRST on to the file. */
static void scores(char *line) {
  const char *path = strtok(line, " \n");
  int first = atoi(strtok(NULL, " \n")), tokens = 0;
  begin(1);
  for (char *word; (word = strtok(NULL, " \n")); tokens++)
    add(atoi(word), tokens, 0, tokens >= first);
  compute();
  FILE *file = fopen(path, "wb");
  if (!file) fail("no file for scores");
  size_t words = llama_vocab_n_tokens(llama_model_get_vocab(model));
  for (int i = first; i < tokens; i++)
    fwrite(llama_get_logits_ith(context, i), sizeof(float), words, file);
  if (fclose(file)) fail("the scores cannot be written");
  printf("%d\n", tokens - first);
}

static void peak(void) {
  char line[256];
  FILE *status = fopen("/proc/self/status", "r");
  while (status && fgets(line, sizeof line, status))
    if (!strncmp(line, "VmHWM:", 6)) printf("%ld\n", atol(line + 6));
  if (status) fclose(status);
}

int main(int count, char **arguments) {
  if (count != 4) fail("a file, threads and tokens are needed");
  llama_log_set(quiet, NULL);
  llama_backend_init();
  model = llama_model_load_from_file(arguments[1], llama_model_default_params());
  if (!model) fail("the file cannot be read");
  threads = atoi(arguments[2]), capacity = atoi(arguments[3]);
  batch = llama_batch_init(512, 0, 1);
  printf("ready\n");
  fflush(stdout);
  char line[8192];
  int first, second, third;
  while (fgets(line, sizeof line, stdin)) {
    if (sscanf(line, "prefill %d", &first) == 1) prefill(first);
    else if (sscanf(line, "decode %d %d %d", &first, &second, &third) == 3)
      decode(first, second, third);
    else if (sscanf(line, "logits %d", &first) == 1) logits(first);
    else if (!strncmp(line, "scores ", 7)) scores(line + 7);
    else if (!strncmp(line, "peak", 4)) peak();
    else fail("an unknown request");
    fflush(stdout);
  }
  return 0;
}
