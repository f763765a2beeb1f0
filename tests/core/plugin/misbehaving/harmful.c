/* The correct plugin of configurable.c with harmful code that runs when the library is loaded (HARMFUL_LOAD)
 * or started (HARMFUL_START). The host loads these plugins only in a child process: ../trial_load_test.cpp.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <locale.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#ifdef HARMFUL_START
#define BROKEN_START harmful_start
#endif
#define BROKEN_EXTRA                                                  \
  static void harm(void);                                             \
  static th_status harmful_start(const th_host* h, th_error* error) { \
    (void)h, (void)error;                                             \
    harm();                                                           \
    return TH_OK;                                                     \
  }                                                                   \
  const void* keep_harmful_start(void);                               \
  const void* keep_harmful_start(void) { return (const void*)(size_t)harmful_start; }
#include "configurable.c"

static void hang(void) {
  for (volatile int forever = 1; forever;) {
  }
}
static void* idle(void* p) {
  pause();
  return p;
}
static void handler(int n) { (void)n; }

/* References, so that no variant warns about unused functions. */
static void* (*volatile keep_idle)(void*) = idle;
static void (*volatile keep_handler)(int) = handler;
static void (*volatile keep_hang)(void) = hang;

static void fork_and_wait(int own_session) {
  if (fork() != 0) return;
  if (own_session) setsid();
  for (;;) pause();
}
static void (*volatile keep_fork)(int) = fork_and_wait;

static void print_1_gib(void) {
  static char buffer[1 << 20];
  for (int i = 0; i < 1024; ++i)
    if (write(1, buffer, sizeof buffer) < 0) return;
}
static void (*volatile keep_print)(void) = print_1_gib;

static void close_many(void) {
  for (int fd = 0; fd < 10; ++fd) close(fd);
}
static void (*volatile keep_close)(void) = close_many;

static void lower_limit(void) {
  struct rlimit l = {16, 16};
  setrlimit(RLIMIT_NOFILE, &l);
}
static void (*volatile keep_limit)(void) = lower_limit;

static void start_thread(void) {
  pthread_t t;
  pthread_create(&t, 0, idle, 0);
}
static void (*volatile keep_start_thread)(void) = start_thread;

#ifdef HARMFUL_LOAD
__attribute__((constructor))
#endif
static void
harm(void) {
  HARM;
}
