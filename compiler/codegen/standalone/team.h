/* Threads of a WebAssembly module: helpers, each a worker in a call of `help`, in an instance of
 * its own over the same memory. It is part of the driver's source file.
 *
 * Whoever calls `run` leads, and may be a page, which must not wait: it offers tasks, takes back
 * what no helper has begun, does that itself, and looks until the rest is done. */
#define RD_TEAM
#define RD_LOAD(at) __atomic_load_n(at, __ATOMIC_SEQ_CST)

/* A helper moves its state from IDLE to ASLEEP, from OFFERED to TAKEN, and from there to DONE. All
 * other moves are the leader's: HELD while it writes an offer, AWAITED while it sleeps. */
enum { RD_IDLE, RD_ASLEEP, RD_HELD, RD_OFFERED, RD_TAKEN, RD_AWAITED, RD_DONE };
/* A look takes about a nanosecond: less than it takes to wake anyone, or between two kernels. */
enum { RD_HELPERS = 31, RD_LOOKS = 1 << 18, RD_LOOKS_FOR_RESULT = 1 << 16 };

typedef struct {
  _Alignas(64) int32_t state;
  relaxd_task *task;
  void *job;
  int index, status;
} rd_helper;

static rd_helper rd_team[RD_HELPERS];
static int32_t rd_helpers; /* that there are */
static int32_t rd_waits;   /* whether the leader may sleep */

/* Functions of their own: around these instructions the first compiler of V8 11.3 (node 20) loses
 * what a function holds in registers. */
static __attribute__((noinline)) void rd_sleep(int32_t *state, int32_t while_it_is) {
  __builtin_wasm_memory_atomic_wait32(state, while_it_is, -1);
}

static __attribute__((noinline)) void rd_wake(int32_t *state) {
  __builtin_wasm_memory_atomic_notify(state, 1);
}

static int rd_swap(int32_t *state, int32_t from, int32_t to) {
  return __atomic_compare_exchange_n(state, &from, to, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
}

static void rd_await_offer(int32_t *state) {
  for (int look = 0; look < RD_LOOKS; ++look)
    if (RD_LOAD(state) == RD_OFFERED) return;
  rd_swap(state, RD_IDLE, RD_ASLEEP);
  /* Returns at once where the state is another by now. */
  rd_sleep(state, RD_ASLEEP);
}

static void rd_finish(rd_helper *own, int status) {
  own->status = status;
  if (__atomic_exchange_n(&own->state, RD_DONE, __ATOMIC_SEQ_CST) == RD_AWAITED)
    rd_wake(&own->state);
}

/* Never returns. Whoever calls it again after a trap states by that that the task has failed. */
static void rd_help(rd_helper *own) {
  int32_t before = RD_LOAD(&own->state);
  if (before == RD_TAKEN || before == RD_AWAITED) rd_finish(own, RELAXD_KERNEL);
  for (;;) {
    rd_await_offer(&own->state);
    if (rd_swap(&own->state, RD_OFFERED, RD_TAKEN))
      rd_finish(own, own->task(own->job, own->index, own->index));
  }
}

/* 0 where the helper is still at a task of a run that a trap has ended. */
static int rd_offer(rd_helper *to, relaxd_task *task, void *job, int index) {
  int32_t before = RD_LOAD(&to->state);
  if (before == RD_TAKEN || before == RD_AWAITED || !rd_swap(&to->state, before, RD_HELD)) return 0;
  to->task = task;
  to->job = job;
  to->index = index;
  __atomic_store_n(&to->state, RD_OFFERED, __ATOMIC_SEQ_CST);
  if (before == RD_ASLEEP) rd_wake(&to->state);
  return 1;
}

static int rd_result_of(rd_helper *from) {
  for (int look = 0; RD_LOAD(&from->state) != RD_DONE;) {
    if (look < RD_LOOKS_FOR_RESULT || !rd_waits) {
      look += look < RD_LOOKS_FOR_RESULT;
      continue;
    }
    rd_swap(&from->state, RD_TAKEN, RD_AWAITED);
    rd_sleep(&from->state, RD_AWAITED);
  }
  __atomic_store_n(&from->state, RD_IDLE, __ATOMIC_SEQ_CST);
  return from->status;
}

/* The `parallel` of the module's own host; a helper's slot is the index of its task. */
static int rd_parallel(void *user, relaxd_task *task, void *job, int count) {
  int helpers = count - 1 < rd_helpers ? count - 1 : rd_helpers, status = 0;
  uint32_t offered = 0;
  (void)user;
  for (int i = 1; i <= helpers; ++i)
    if (rd_offer(&rd_team[i - 1], task, job, i)) offered |= (uint32_t)1 << i;
  for (int i = 0; i < count && status == 0; ++i)
    if ((offered >> i & 1) == 0) status = task(job, i, 0);
  for (int i = 1; i <= helpers; ++i) {
    rd_helper *helper = &rd_team[i - 1];
    int theirs = 0;
    if ((offered >> i & 1) == 0) continue;
    if (!rd_swap(&helper->state, RD_OFFERED, RD_IDLE)) theirs = rd_result_of(helper);
    else if (status == 0) theirs = task(job, i, 0);
    if (status == 0) status = theirs;
  }
  return status;
}
