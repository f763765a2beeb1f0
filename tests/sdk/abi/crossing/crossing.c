/* One plugin built with today's headers and with tomorrow's (../tomorrow.cmake adds a field here and there,
 * minor 1). It negotiates nothing: it reads and writes its own headers' fields as they stand, as status.h R1
 * says it may. With CROSSING_TRAINER a trainer, else an estimator. What each host must see:
 * ../crossing_test.cpp. */
#include <string.h>
#include <trainhost/trainhost.h>

#ifdef CROSSING_TRAINER
#define KIND "trainer"
#else
#define KIND "estimator"
#endif
TH_MANIFEST("id = \"crossing\"\nversion = \"1\"\nkind = \"" KIND "\"\n");

/* 100 a sequence; tomorrow's plugin adds 1000 for each of tomorrow's ranks, and what tomorrow's host allows.
 */
static th_status report(const th_host* h, const th_run* r, th_mem_sink* sink) {
  th_mem leaf;
  memset(&leaf, 0, sizeof leaf);
  leaf.struct_size = sizeof leaf;
  leaf.id = 1;
  leaf.tier = TH_TIER_HOST;
  leaf.component = TH_MEM_WEIGHTS;
  leaf.claim = TH_EXACT;
  leaf.bytes = r->micro_batch * 100u;
#if TH_ABI_MINOR > 0
  leaf.bytes += r->tomorrow_ranks * 1000u + h->tomorrow_budget;
  leaf.tomorrow_bytes = 5;
#endif
  leaf.name = h->abi_minor > 0 ? "tomorrow's host" : "today's host";
  return sink->node(sink, &leaf);
}

#ifdef CROSSING_TRAINER
static th_status probe(const th_host* h, uint32_t* devices, th_error* e) {
  (void)h, (void)e;
  *devices = 1;
  return TH_OK;
}
static th_status profile(const th_host* h, const th_model* m, const th_run* r, th_profile* p, th_error* e) {
  (void)h, (void)m, (void)r, (void)e;
  p->alignment = 64;
  return TH_OK;
}
static th_status plan(const th_host* h, const th_model* m, const th_run* r, th_mem_sink* sink,
                      th_mem_summary* s, th_error* e) {
  (void)m, (void)s, (void)e;
  return report(h, r, sink);
}
static th_status create(const th_host* h, int32_t device, const th_model* m, const th_run* r,
                        th_trainer_inst** i, th_error* e) {
  static int one;
  (void)h, (void)device, (void)m, (void)r, (void)e;
  *i = (th_trainer_inst*)(void*)&one;
  return TH_OK;
}
static th_status load(th_trainer_inst* i, uint32_t scope, const th_tensor* t, th_error* e) {
  (void)i, (void)scope, (void)t, (void)e;
  return TH_OK;
}
static th_status init(th_trainer_inst* i, uint64_t seed, th_error* e) {
  (void)i, (void)seed, (void)e;
  return TH_OK;
}
static th_status step(th_trainer_inst* i, const th_step* s, th_step_out* out, th_error* e) {
  (void)i, (void)e;
  out->loss = s->lr;
#if TH_ABI_MINOR > 0
  out->joules = 500;
#endif
  return TH_OK;
}
static th_status save(th_trainer_inst* i, uint32_t scope, th_tensor_sink* sink, th_error* e) {
  (void)i, (void)scope, (void)sink, (void)e;
  return TH_OK;
}
static void destroy(th_trainer_inst* i) { (void)i; }
#if TH_ABI_MINOR > 0
static th_status tomorrow(th_trainer_inst* i, uint64_t* value) {
  (void)i;
  *value = 9;
  return TH_OK;
}
#endif
static const th_trainer table = {sizeof(th_trainer),
                                 0,
                                 probe,
                                 profile,
                                 plan,
                                 create,
                                 load,
                                 init,
                                 step,
                                 save,
                                 NULL,
                                 NULL,
                                 NULL,
                                 destroy
#if TH_ABI_MINOR > 0
                                 ,
                                 tomorrow
#endif
};
#define TABLE_ID TH_TRAINER_ID
#else
static int32_t match(const th_model* m, const th_run* r) {
  (void)m, (void)r;
  return 7;
}
static th_status estimate(const th_host* h, const th_model* m, const th_run* r, const th_profile* p,
                          th_mem_sink* sink, th_mem_summary* s, th_error* e) {
  (void)m, (void)p, (void)s, (void)e;
  return report(h, r, sink);
}
static const th_estimator table = {sizeof(th_estimator), 0, match, estimate};
#define TABLE_ID TH_ESTIMATOR_ID
#endif

static const void* get(const char* id) { return strcmp(id, TABLE_ID) == 0 ? &table : NULL; }

const th_plugin* TH_ENTRY(void) {
  static const th_plugin plugin = {
      sizeof(th_plugin), TH_ABI_MAJOR, TH_ABI_MINOR, "crossing", "1", NULL, NULL, get};
  return &plugin;
}
