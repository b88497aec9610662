/* Threads for compiled code, in place of the runtime's own pool, which waits at the end of every
 * parallel loop for each of its threads, also for one that never got to run because another program
 * has its core.
 *
 * Here a helper is offered a task, and whoever leads takes back what no helper has begun and does
 * it itself: a loop ends when the work is done. Helpers that find nothing to do sleep soon, so that
 * the scheduler runs them at once when they are woken.
 *
 * What a helper has begun on a core that it shares cannot be taken back, and loops that take less
 * than the scheduler's turns wait for it longer than it helps. Where a helper was waited for more
 * than it computed, the leader does without it for a while, then for twice as long.
 *
 * Loaded by relaxd.loader.engines.threads, which says what each function is for. Another interface
 * takes another file name. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#ifdef RELAXD_STANDALONE
/* Code that needs no runtime: a task is given its number and that of the thread, 0 for the leader;
 * what goes wrong is a status. */
typedef struct {
  int32_t count;
} group;
typedef int (*tasks)(void *data, int task, int slot);
#define GROUP(count) {count}
#define RUN(run, task, slot, group, data) run(data, task, slot)
#define KEEP_ERROR(error) ((void)(error))
#define RAISE_ERROR(error) ((void)(error))
#else
/* What TVM calls TVMParallelGroupEnv and FTVMParallelLambda, and two functions of its function
 * interface. */
typedef struct {
  void *barrier;
  int32_t count;
} group;
typedef int (*tasks)(int task, group *group, void *data);
void TVMFFIErrorMoveFromRaised(void **error);
void TVMFFIErrorSetRaised(void *error);
#define GROUP(count) {NULL, count}
#define RUN(run, task, slot, group, data) run(task, group, data)
#define KEEP_ERROR(error) TVMFFIErrorMoveFromRaised(error)
#define RAISE_ERROR(error) TVMFFIErrorSetRaised(error)
#endif

enum { IDLE, OFFERED, TAKEN, DONE };
enum { LINE = 128, LOOKS_PER_CLOCK = 16, LOOKS_BEFORE_YIELD = 4096 };
/* Nanoseconds: of a trial, of doing without a helper, and between two trials, whose clocks take a
 * tenth of the time of short loops. A trial has ten turns of the scheduler; a helper that was good
 * for so long after its return starts with the shortest rest again. */
enum { TRIAL = 40000000, SHORTEST_REST = 64000000, LONGEST_REST = 512000000, BETWEEN = 256000000 };
enum { GOOD = 1000000000 };

typedef struct {
  /* The leader moves it from IDLE to OFFERED and back; a helper takes an offer and says when it is
   * done. The rest of the job is the helper's while it is TAKEN, the leader's at all other times.
   */
  _Alignas(LINE) _Atomic int state;
  tasks run;
  void *data;
  group group;
  int task, status, slot, timed;
  void *error;
  /* How long it computed tasks that were timed. */
  int64_t worked;
  /* From here on the leader's alone: whether the helper is on trial, and how long it was waited for
   * in that; when the next may begin; when it is offered tasks again, 0 where it is now; when it
   * last came back, and for how long it was away. */
  int tried, offered;
  int64_t waited, next, resting, returned, away;
  _Alignas(LINE) _Atomic int asleep;
  pthread_mutex_t lock;
  pthread_cond_t wake;
  int64_t patience;
  _Atomic int64_t id;
} helper;

typedef struct {
  int32_t count;
  /* Helpers on trial, and how long loops took since the first of them was: by the clock, and of the
   * leader's processor, of which it gives away what it waits where another program wants it. */
  int32_t trials;
  int64_t passed, computed;
  helper helpers[];
} team;

static _Thread_local team *led;
/* Since this thread took the lead: how many loops were shared out. */
static _Thread_local int32_t loops;

static inline void rest(void) {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("isb" ::: "memory");
#endif
}

static int64_t by(clockid_t clock) {
  struct timespec time;
  clock_gettime(clock, &time);
  return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

static int64_t now(void) { return by(CLOCK_MONOTONIC); }

static void await_offer(helper *own) {
  int64_t end = now() + own->patience;
  do {
    for (int look = 0; look < LOOKS_PER_CLOCK; ++look) {
      if (atomic_load_explicit(&own->state, memory_order_acquire) == OFFERED) return;
      rest();
    }
  } while (now() < end);
  pthread_mutex_lock(&own->lock);
  /* Told before the last look: an offer made after that look finds the helper asleep. Both are
   * sequentially consistent. */
  atomic_store(&own->asleep, 1);
  while (atomic_load(&own->state) != OFFERED) pthread_cond_wait(&own->wake, &own->lock);
  atomic_store(&own->asleep, 0);
  pthread_mutex_unlock(&own->lock);
}

static void *help(void *argument) {
  helper *own = argument;
  atomic_store(&own->id, (int64_t)syscall(SYS_gettid));
  for (;;) {
    int offered = OFFERED;
    await_offer(own);
    if (!atomic_compare_exchange_strong(&own->state, &offered, TAKEN)) continue;
    int64_t started = own->timed ? by(CLOCK_THREAD_CPUTIME_ID) : 0;
    own->status = RUN(own->run, own->task, own->slot, &own->group, own->data);
    if (own->timed) own->worked += by(CLOCK_THREAD_CPUTIME_ID) - started;
    if (own->status != 0) KEEP_ERROR(&own->error);
    atomic_store_explicit(&own->state, DONE, memory_order_release);
  }
  return NULL;
}

static void offer(helper *to, tasks run, void *data, int32_t count, int task) {
  to->run = run;
  to->data = data;
  to->group = (group)GROUP(count);
  to->task = task;
  to->timed = to->tried;
  to->status = 0;
  to->error = NULL;
  atomic_store(&to->state, OFFERED);
  if (atomic_load(&to->asleep)) {
    pthread_mutex_lock(&to->lock);
    pthread_cond_signal(&to->wake);
    pthread_mutex_unlock(&to->lock);
  }
}

/* 1 where the helper had not begun, and will not. */
static int take_back(helper *from) {
  int offered = OFFERED;
  return atomic_compare_exchange_strong(&from->state, &offered, IDLE);
}

static void begin_trial(team *own, helper *late) {
  if (own->trials++ == 0) own->passed = own->computed = 0;
  late->tried = 1;
  late->worked = late->waited = 0;
}

static int result_of(team *own, helper *from) {
  int64_t started = from->tried ? now() : 0;
  int look = 0;
  for (; atomic_load_explicit(&from->state, memory_order_acquire) != DONE; ++look) {
    if (look < LOOKS_BEFORE_YIELD) {
      rest();
    } else {
      sched_yield();
    }
  }
  if (from->tried) {
    from->waited += now() - started;
  } else if (look > LOOKS_BEFORE_YIELD && now() >= from->next) {
    begin_trial(own, from);
  }
  atomic_store_explicit(&from->state, IDLE, memory_order_relaxed);
  if (from->error != NULL) RAISE_ERROR(from->error);
  return from->status;
}

/* Whether the helper is offered a task. */
static int is_welcome(team *own, helper *to) {
  int64_t time;
  if (to->resting == 0 && (!to->tried || to->worked + to->waited < TRIAL)) return 1;
  time = now();
  if (to->resting != 0) {
    if (time < to->resting) return 0;
    to->resting = 0;
    to->returned = time;
    return 1;
  }
  to->tried = 0;
  --own->trials;
  to->next = time + BETWEEN;
  /* A leader that shares its own core as well would have had little of the time that it waited. */
  if (own->computed * 10 < own->passed * 9 || to->waited < to->worked) return 1;
  to->next = 0;
  to->away = time - to->returned > GOOD ? SHORTEST_REST : to->away * 2;
  if (to->away > LONGEST_REST) to->away = LONGEST_REST;
  to->resting = time + to->away;
  return 0;
}

/* run(task, ...) for every task below `count`, or one for each thread of the team where it is 0. On
 * a thread that leads no team, or within such a task, all of them on that thread.
 *
 * Static: a process may load both forms of this file, and a call through an exported name would
 * reach whichever came first. */
static int launch(tasks run, void *data, int32_t count) {
  team *own = led;
  int32_t helpers = own == NULL ? 0 : own->count;
  group whole = GROUP(count > 0 ? count : helpers + 1);
  int32_t offered = helpers < whole.count - 1 ? helpers : whole.count - 1;
  int status = 0;
  if (offered > 0) ++loops;
  led = NULL;
  for (int i = 0; i < offered; ++i) {
    helper *to = &own->helpers[i];
    to->offered = is_welcome(own, to);
    if (to->offered) offer(to, run, data, whole.count, i + 1);
  }
  int timed = own != NULL && own->trials > 0;
  int64_t began = timed ? now() : 0, before = timed ? by(CLOCK_THREAD_CPUTIME_ID) : 0;
  for (int task = 0; task < whole.count && status == 0; task = task == 0 ? offered + 1 : task + 1)
    status = RUN(run, task, 0, &whole, data);
  for (int i = 0; i < offered; ++i) {
    int theirs;
    if (own->helpers[i].offered && !take_back(&own->helpers[i])) {
      theirs = result_of(own, &own->helpers[i]);
    } else {
      theirs = status == 0 ? RUN(run, i + 1, 0, &whole, data) : 0;
    }
    if (status == 0) status = theirs;
  }
  if (timed) {
    own->passed += now() - began;
    own->computed += by(CLOCK_THREAD_CPUTIME_ID) - before;
  }
  led = own;
  return status;
}

#ifdef RELAXD_STANDALONE
/* The `parallel` of a host. */
int relaxd_parallel(void *user, tasks run, void *data, int count) {
  (void)user;
  return launch(run, data, count);
}
#else
/* TVMBackendParallelLaunch. */
int relaxd_launch(tasks run, void *data, int32_t count) { return launch(run, data, count); }
#endif

static int start(helper *own, int64_t patience) {
  pthread_t thread;
  pthread_attr_t attributes;
  own->patience = patience;
  if (pthread_mutex_init(&own->lock, NULL) != 0 || pthread_cond_init(&own->wake, NULL) != 0)
    return -1;
  if (pthread_attr_init(&attributes) != 0 ||
      pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED) != 0)
    return -1;
  if (pthread_create(&thread, &attributes, help, own) != 0) return -1;
  pthread_setname_np(thread, "relaxd helper");
  pthread_attr_destroy(&attributes);
  while (atomic_load(&own->id) == 0) sched_yield();
  return 0;
}

/* A team with so many helpers, whose kernel ids it gives in `ids`; they look for work for
 * `patience` nanoseconds before they sleep. NULL where the system gives no more threads: those that
 * were started sleep for good. */
team *relaxd_team(int32_t helpers, int64_t patience, int64_t *ids) {
  size_t size = sizeof(team) + (size_t)helpers * sizeof(helper);
  team *made = aligned_alloc(LINE, (size + LINE - 1) / LINE * LINE);
  sigset_t all, before;
  int status = 0;
  if (made == NULL) return NULL;
  __builtin_memset(made, 0, size);
  made->count = helpers;
  /* Signals are for the program's own threads. */
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  for (int i = 0; i < helpers && status == 0; ++i) {
    made->helpers[i].slot = i + 1;
    status = start(&made->helpers[i], patience);
    ids[i] = atomic_load(&made->helpers[i].id);
  }
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  return status == 0 ? made : NULL;
}

/* From here on this thread leads that team, or none. */
void relaxd_lead(team *own) {
  led = own;
  loops = 0;
}

/* From here on this thread leads no team; how many loops it shared out since it led one. */
int32_t relaxd_leave(void) {
  led = NULL;
  return loops;
}
