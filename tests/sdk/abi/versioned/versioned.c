/* One plugin, built with the headers of this minor version and of the next (../next_minor.cmake appends
 * fields, minor 2). It contains no code for version differences: it reads and writes all fields of its own
 * headers, as status.h R1 allows. With VERSIONED_TRAINER it is a trainer, otherwise an estimator. The results
 * that each host must see: ../minor_versions_test.cpp. */
#include <string.h>
#include <trainhost/trainhost.h>

#ifdef VERSIONED_TRAINER
#define KIND "trainer"
#else
#define KIND "estimator"
#endif
TH_MANIFEST("id = \"versioned\"\nversion = \"1\"\nkind = \"" KIND "\"\n");

/* Reports 100 bytes per sequence; the plugin of the next minor adds 1000 per next_minor_ranks, and
 * next_minor_budget of the host. */
static th_status report(const th_host* h, const th_run* r, th_mem_sink* sink) {
  th_mem entry;
  memset(&entry, 0, sizeof entry);
  entry.struct_size = sizeof entry;
  entry.id = 1;
  entry.tier = TH_TIER_HOST;
  entry.component = TH_MEM_WEIGHTS;
  entry.claim = TH_EXACT;
  entry.bytes = r->micro_batch * 100u;
#if TH_ABI_MINOR > 1
  entry.bytes += r->next_minor_ranks * 1000u + h->next_minor_budget;
  entry.next_minor_bytes = 5;
#endif
  entry.name = h->abi_minor > 1 ? "host of the next minor" : "host of this minor";
  return sink->node(sink, &entry);
}

#ifdef VERSIONED_TRAINER
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
#if TH_ABI_MINOR > 1
  out->joules = 500;
#endif
  return TH_OK;
}
static th_status save(th_trainer_inst* i, uint32_t scope, th_tensor_sink* sink, th_error* e) {
  (void)i, (void)scope, (void)sink, (void)e;
  return TH_OK;
}
static void destroy(th_trainer_inst* i) { (void)i; }
#if TH_ABI_MINOR > 1
static th_status next_minor(th_trainer_inst* i, uint64_t* value) {
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
#if TH_ABI_MINOR > 1
                                 ,
                                 next_minor
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
      sizeof(th_plugin), TH_ABI_MAJOR, TH_ABI_MINOR, "versioned", "1", NULL, NULL, get};
  return &plugin;
}
