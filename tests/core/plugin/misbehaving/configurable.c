/* A small estimator in C. A macro selects one fault; without a macro it is a correct plugin. How the host
 * handles each fault: ../load_test.cpp. */
#include <stddef.h>
#include <string.h>
#include <trainhost/trainhost.h>

#ifndef BROKEN_VERSION
#define BROKEN_VERSION "1"
#endif
#ifndef BROKEN_KIND
#define BROKEN_KIND "estimator"
#endif
#ifndef BROKEN_MAJOR
#define BROKEN_MAJOR TH_ABI_MAJOR
#endif
#ifndef BROKEN_MINOR
#define BROKEN_MINOR TH_ABI_MINOR
#endif
#ifndef BROKEN_SIZE
#define BROKEN_SIZE sizeof(th_plugin)
#endif
#ifndef BROKEN_TABLE_ID
#define BROKEN_TABLE_ID "sample"
#endif
#ifndef BROKEN_TABLE_VERSION
#define BROKEN_TABLE_VERSION BROKEN_VERSION
#endif
#ifndef BROKEN_GET
#define BROKEN_GET get
#endif
#ifndef BROKEN_ESTIMATE
#define BROKEN_ESTIMATE estimate
#endif
#ifndef BROKEN_ESTIMATOR_SIZE
#define BROKEN_ESTIMATOR_SIZE sizeof(th_estimator)
#endif
#ifndef BROKEN_MORE
#define BROKEN_MORE ""
#endif
#ifndef BROKEN_START
#define BROKEN_START 0
#endif

#define TEXT_OF(x) #x
#define TEXT(x) TEXT_OF(x)

#if defined(BROKEN_NO_MANIFEST)
#elif defined(BROKEN_EMPTY_MANIFEST)
TH_MANIFEST("");
#elif defined(BROKEN_BIG_MANIFEST)
__attribute__((section(".trainhost"), used)) static const char big_manifest[100000] = "id = \"sample\"\n";
#elif defined(BROKEN_MANIFEST)
TH_MANIFEST(TEXT(BROKEN_MANIFEST));
#else
TH_MANIFEST("id = \"sample\"\nversion = \"" BROKEN_VERSION "\"\nkind = \"" BROKEN_KIND
            "\"\n"
            "summary = \"a test plugin\"\nfamilies = [\"llama\"]\noptions = [\"do\"]\n" BROKEN_MORE "\n");
#endif

#ifdef BROKEN_UNDEFINED
int undefined_function(void);
#endif
#ifdef BROKEN_NEEDS_PROVIDER
const th_plugin* test_plugin_provided(void);
#endif

static int32_t match(const th_model* m, const th_run* r) {
  (void)r;
  return m->layers == 3 ? 7 : 0;
}

static th_status estimate(const th_host* h, const th_model* m, const th_run* r, const th_profile* p,
                          th_mem_sink* sink, th_mem_summary* summary, th_error* error) {
  th_mem node = {0};
  (void)h, (void)r, (void)p, (void)summary, (void)error;
  node.struct_size = sizeof node;
  node.id = 1;
  node.tier = TH_TIER_HOST;
  node.component = TH_MEM_WEIGHTS;
  node.claim = TH_EXACT;
  node.bytes = node.lo = node.hi = m->vocab * m->hidden * 4;
  node.name = "weights";
#ifdef BROKEN_UNDEFINED
  node.bytes += (uint64_t)undefined_function();
#endif
  return sink->node(sink, &node);
}

static const th_estimator table = {BROKEN_ESTIMATOR_SIZE, 0, match, BROKEN_ESTIMATE};

static const void* get(const char* id) {
#ifdef BROKEN_NO_INTERFACE
  (void)id;
  return NULL;
#else
  return strcmp(id, TH_ESTIMATOR_ID) == 0 ? &table : NULL;
#endif
}

static const th_host* host;
static th_status start_and_log(const th_host* h, th_error* error) {
  (void)error;
  host = h;
  h->log(h, TH_LOG_INFO, "start", "started");
  return TH_OK;
}
static void stop(void) {
  if (host) host->log(host, TH_LOG_INFO, "stop", "stopped");
}
static th_status fail(const th_host* h, th_error* error) {
  (void)h;
  strcpy(error->message, "the license has expired");
  strcpy(error->hint, "renew the license");
  return TH_E_UNAVAILABLE;
}
static th_status fail_with_number(const th_host* h, th_error* error) {
  (void)h;
  strcpy(error->message, "the tables cannot be written");
  strcpy(error->native_domain, "errno");
  error->native_code = 28;
  return TH_E_IO;
}
static th_status fail_as_bug(const th_host* h, th_error* error) {
  (void)h;
  strcpy(error->message, "a table is missing");
  return TH_E_INTERNAL;
}
static th_status start_once(const th_host* h, th_error* error) {
  static int starts;
  (void)h;
  if (starts++ == 0) return TH_OK;
  strcpy(error->message, "start() was called twice");
  return TH_E_STATE;
}
static th_status fail_silently(const th_host* h, th_error* error) {
  (void)h, (void)error;
  return TH_E_IO;
}

#ifdef BROKEN_EXTRA
BROKEN_EXTRA
#endif

/* References every function, so that no variant warns about unused ones. */
const void* test_plugin_keep(void);
const void* test_plugin_keep(void) {
  static const void* all[10];
  all[0] = (const void*)(size_t)get, all[1] = (const void*)(size_t)estimate,
  all[2] = (const void*)(size_t)fail;
  all[3] = (const void*)(size_t)fail_silently, all[4] = (const void*)(size_t)start_and_log;
  all[5] = (const void*)(size_t)stop, all[6] = &table, all[7] = (const void*)(size_t)start_once;
  all[8] = (const void*)(size_t)fail_with_number, all[9] = (const void*)(size_t)fail_as_bug;
  return all;
}

#ifdef BROKEN_NEEDS_PROVIDER
const void* test_plugin_call_provider(void);
const void* test_plugin_call_provider(void) { return test_plugin_provided(); }
static const th_plugin* (*volatile keep_dependency)(void) = test_plugin_provided;
#endif
TH_EXPORT const th_plugin* test_plugin_provided(void);

#if defined(BROKEN_DATA_ENTRY)
TH_EXPORT extern const int test_plugin_data_entry __asm__(TH_ENTRY_NAME);
const int test_plugin_data_entry = 42;
#elif !defined(BROKEN_NO_ENTRY)
const th_plugin* TH_ENTRY(void) {
  static const th_plugin plugin = {BROKEN_SIZE,          BROKEN_MAJOR, BROKEN_MINOR, BROKEN_TABLE_ID,
                                   BROKEN_TABLE_VERSION, BROKEN_START, stop,         BROKEN_GET};
#ifdef BROKEN_NULL_TABLE
  (void)plugin;
  return NULL;
#else
  return &plugin;
#endif
}
#ifndef BROKEN_NEEDS_PROVIDER
const th_plugin* test_plugin_provided(void) { return NULL; }
#endif
#endif
