/* What the broken estimators and trainers share: manifest, start and stop, the entry, and the faults of
 * those. */
#ifndef BROKEN_COMMON_H
#define BROKEN_COMMON_H
#define _GNU_SOURCE
#include <fcntl.h>
#include <locale.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <trainhost/trainhost.h>
#include <unistd.h>
#if defined(__SSE2__)
#include <xmmintrin.h>
#endif

#include "faults.h"

#if defined(NO_MANIFEST)
#elif defined(NOT_TOML)
TH_MANIFEST("no toml =");
#elif defined(NO_ID)
TH_MANIFEST("version = \"1\"\nkind = \"" KIND "\"\nsummary = \"a test plugin\"\n");
#elif defined(NO_SUMMARY)
TH_MANIFEST("id = \"sample\"\nversion = \"1\"\nkind = \"" KIND
            "\"\nfamilies = [\"llama\"]\noptions = [\"mode\"]\n");
#else
TH_MANIFEST("id = \"sample\"\nversion = \"1\"\nkind = \"" KIND
            "\"\nsummary = \"a test plugin\"\n"
            "families = [\"llama\"]\noptions = [\"mode\"]\n");
#endif

static const th_host* host;
static th_error* kept_error;
static th_mem_sink* kept_sink;
static int starts;

static inline th_status refuse(th_error* e, th_status code, const char* message) {
  if (!e && FAULT != null_error_crashes) return code;
  e->code = code;
  if (FAULT != no_message) snprintf(e->message, sizeof e->message, "%s", message);
  if (FAULT == unterminated) memset(e->message, 'x', sizeof e->message);
  if (FAULT == error_past_size) ((volatile char*)e)[sizeof *e + 3] = 1;
  if (FAULT == keeps_error) kept_error = e;
  return code;
}

static void* wait_then_call(void* arg) {
  (void)arg;
  usleep(2000);
  host->log(host, TH_LOG_INFO, "late", "too late");
  return NULL;
}
static void* sleep_on(void* arg) {
  (void)arg;
  while (1) pause();
  return NULL;
}
static void key_ends(void* arg) { (void)arg; }
static pthread_key_t thread_key;
static void* needed;
static pthread_t late_thread;
static int late;

static void break_process(void) {
#if defined(__SSE2__)
  if (FAULT == fp_mode) _mm_setcsr(_mm_getcsr() | 0x8040);
#endif
  if (FAULT == signal_handler) signal(SIGUSR1, SIG_IGN);
  if (FAULT == locale) setlocale(LC_CTYPE, "C.UTF-8");
  if (FAULT == umask_changed) umask(0);
  if (FAULT == environment) setenv("TEST_PLUGIN", "1", 1);
  if (FAULT == closes_stdin) close(0);
  if (FAULT == prints) puts("hello from the plugin");
  if (FAULT == resource_limit) {
    struct rlimit l;
    getrlimit(RLIMIT_STACK, &l);
    l.rlim_cur = 1 << 20;
    setrlimit(RLIMIT_STACK, &l);
  }
}

static th_status start(const th_host* h, th_error* e) {
  host = h;
  ++starts;
  break_process();
  if (FAULT == fails_silently) return TH_E_IO;
  if (FAULT == starts_once && starts > 1) return refuse(e, TH_E_STATE, "once is enough");
  if (FAULT == leaks_descriptor && open("/dev/null", O_RDONLY) < 0) return refuse(e, TH_E_IO, "no null");
  if (FAULT == leaks_heap) {
    char* volatile lost = malloc(1024);
    if (lost) lost[0] = 1;
  }
  if (FAULT == keeps_host_memory && starts == 1) h->alloc(h, 64, 64, TH_TIER_HOST, "kept");
  if (FAULT == leaks_thread) {
    pthread_t t;
    pthread_create(&t, NULL, sleep_on, NULL);
    pthread_detach(t);
  }
  if (FAULT == slow_start && starts == 1) usleep(1050000);
  if (FAULT == key_destructor) {
    if (starts == 1) pthread_key_create(&thread_key, key_ends);
    pthread_setspecific(thread_key, &thread_key);
  }
  if (FAULT == start_needs_memory) {
    needed = h->alloc(h, 64, 64, TH_TIER_HOST, "needed");
    *(volatile char*)needed = 1;
  }
  if (FAULT == calls_after_stop && late) pthread_join(late_thread, NULL), late = 0;
  const char* mode = h->option(h, "mode");
  if (mode && strcmp(mode, "auto") != 0 && FAULT != ignores_option)
    return refuse(e, TH_E_ARG, "plugin.sample.mode: expected auto");
  return TH_OK;
}

static void stop(void) {
  if (FAULT == calls_after_stop) late = pthread_create(&late_thread, NULL, wait_then_call, NULL) == 0;
  if (needed) host->release(host, needed), needed = NULL;
  if (kept_error) kept_error->code = 1;
  if (kept_sink) kept_sink->note(kept_sink, "by the way");
  kept_error = NULL, kept_sink = NULL;
}

__attribute__((destructor)) static void at_exit(void) {
  if (FAULT == crashes_at_exit) abort();
}

static const void* table_of(const char* id);

static const void* get(const char* id) {
  if (FAULT == no_interface) return NULL;
  return table_of(id);
}

#if defined(UNDEFINED_SYMBOL)
int nobody_defines_this(void);
int (*volatile broken_undefined)(void) = nobody_defines_this;
#endif
#if defined(EXPORTS_MORE)
TH_EXPORT int broken_helper(void);
int broken_helper(void) { return 1; }
#endif
#if defined(EXPORTS_UNIQUE)
__asm__(
    ".data\n.globl broken_unique\n.type broken_unique, @gnu_unique_object\n.size broken_unique, 4\nbroken_unique: .long "
    "1\n.text\n");
#endif

#if defined(DATA_ENTRY)
TH_EXPORT extern const int broken_data_entry __asm__(TH_ENTRY_NAME);
const int broken_data_entry = 42;
const void* broken_used(void);
const void* broken_used(void) { return (const void*)((size_t)start + (size_t)stop + (size_t)get); }
#else
const th_plugin* TH_ENTRY(void) {
  static const th_plugin plugin = {FAULT == short_table ? 24 : sizeof(th_plugin),
                                   FAULT == major_2 ? 2 : TH_ABI_MAJOR,
                                   TH_ABI_MINOR,
                                   FAULT == other_id ? "other" : "sample",
                                   FAULT == other_version ? "9" : "1",
                                   start,
                                   FAULT == start_without_stop ? 0 : stop,
                                   get};
  return FAULT == null_table ? NULL : &plugin;
}
#endif
#endif
