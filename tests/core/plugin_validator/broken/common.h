/* Shared by the broken estimators and trainers: manifest, start(), stop() and the entry, with their faults.
 */
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

static inline th_status fail(th_error* e, th_status code, const char* message) {
  if (!e && FAULT != null_error_crashes) return code;
  e->code = code;
  if (FAULT != no_message) snprintf(e->message, sizeof e->message, "%s", message);
  if (FAULT == unterminated) memset(e->message, 'x', sizeof e->message);
  if (FAULT == error_past_size) ((volatile char*)e)[sizeof *e + 3] = 1;
  if (FAULT == keeps_error) kept_error = e;
  return code;
}

static void* log_late(void* arg) {
  (void)arg;
  usleep(2000);
  host->log(host, TH_LOG_INFO, "late", "after stop()");
  return NULL;
}
static void* sleep_forever(void* arg) {
  (void)arg;
  while (1) pause();
  return NULL;
}
static void ignore_key(void* arg) { (void)arg; }
static pthread_key_t thread_key;
static void* start_memory;
static pthread_t late_thread;
static int late_thread_runs;

static void break_process(void) {
#if defined(__SSE2__)
  if (FAULT == fp_mode) _mm_setcsr(_mm_getcsr() | 0x8040);
#endif
  if (FAULT == signal_handler) signal(SIGUSR1, SIG_IGN);
  if (FAULT == locale) setlocale(LC_CTYPE, "C.UTF-8");
  if (FAULT == umask_changed) umask(0);
  if (FAULT == environment) setenv("TEST_PLUGIN", "1", 1);
  if (FAULT == closes_stdin) close(0);
  if (FAULT == prints) puts("printed by the plugin");
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
  if (FAULT == starts_once && starts > 1) return fail(e, TH_E_STATE, "start() a second time");
  if (FAULT == leaks_descriptor && open("/dev/null", O_RDONLY) < 0)
    return fail(e, TH_E_IO, "cannot open /dev/null");
  if (FAULT == leaks_heap) {
    char* volatile leaked = malloc(1024);
    if (leaked) leaked[0] = 1;
  }
  if (FAULT == keeps_host_memory && starts == 1) h->alloc(h, 64, 64, TH_TIER_HOST, "kept");
  if (FAULT == leaks_thread) {
    pthread_t t;
    pthread_create(&t, NULL, sleep_forever, NULL);
    pthread_detach(t);
  }
  if (FAULT == slow_start && starts == 1) usleep(1050000);
  if (FAULT == key_destructor) {
    if (starts == 1) pthread_key_create(&thread_key, ignore_key);
    pthread_setspecific(thread_key, &thread_key);
  }
  if (FAULT == start_needs_memory) {
    start_memory = h->alloc(h, 64, 64, TH_TIER_HOST, "needed");
    *(volatile char*)start_memory = 1;
  }
  if (FAULT == calls_after_stop && late_thread_runs) pthread_join(late_thread, NULL), late_thread_runs = 0;
  const char* mode = h->option(h, "mode");
  if (mode && strcmp(mode, "auto") != 0 && FAULT != ignores_option)
    return fail(e, TH_E_ARG, "plugin.sample.mode: expected auto");
  return TH_OK;
}

static void stop(void) {
  if (FAULT == calls_after_stop) late_thread_runs = pthread_create(&late_thread, NULL, log_late, NULL) == 0;
  if (start_memory) host->release(host, start_memory), start_memory = NULL;
  if (kept_error) kept_error->code = 1;
  if (kept_sink) kept_sink->note(kept_sink, "after the call");
  kept_error = NULL, kept_sink = NULL;
}

__attribute__((destructor)) static void abort_at_exit(void) {
  if (FAULT == crashes_at_exit) abort();
}

static const void* table_of(const char* id);

static const void* get(const char* id) {
  if (FAULT == no_interface) return NULL;
  return table_of(id);
}

#if defined(UNDEFINED_SYMBOL)
int undefined_function(void);
int (*volatile broken_undefined)(void) = undefined_function;
#endif
#if defined(EXPORTS_MORE)
TH_EXPORT int broken_helper(void);
int broken_helper(void) { return 1; }
#endif
#if defined(EXPORTS_UNIQUE)
__asm__(
    ".data\n.globl broken_unique\n.type broken_unique, @gnu_unique_object\n.size broken_unique, "
    "4\nbroken_unique: .long "
    "1\n.text\n");
#endif

#if defined(DATA_ENTRY)
TH_EXPORT extern const int broken_data_entry __asm__(TH_ENTRY_NAME);
const int broken_data_entry = 42;
const void* broken_references(void);
const void* broken_references(void) { return (const void*)((size_t)start + (size_t)stop + (size_t)get); }
#else
const th_plugin* TH_ENTRY(void) {
  static th_plugin plugin;
  plugin = (th_plugin){FAULT == short_table ? 24 : sizeof(th_plugin),
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
