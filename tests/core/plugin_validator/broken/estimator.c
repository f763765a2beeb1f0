/* A small correct estimator of a bigram model; FAULT selects one fault. Linked once per row of
 * ../broken_plugins.txt. */
#define KIND "estimator"
#include "report.h"

static int32_t match(const th_model* m, const th_run* r) {
  static int match_calls;
  if (FAULT != match_null_crashes && (!m || !r)) return 0;
  if (FAULT == slow_match) usleep(1500);
  if (FAULT == match_reads) {
    char byte;
    const int file = open("/dev/zero", O_RDONLY);
    if (file >= 0 && read(file, &byte, 1) == 1) close(file);
  }
  if (FAULT == no_match || r->micro_batch == 0 || !m->family ||
      (strcmp(m->family, "llama") != 0 && FAULT != claims_every_family))
    return 0;
  if (FAULT == varying_match) return 500 + (++match_calls & 1);
  return FAULT == score_2000 ? 2000 : 500;
}

static th_status estimate(const th_host* h, const th_model* m, const th_run* r, const th_profile* p,
                          th_mem_sink* sink, th_mem_summary* summary, th_error* e) {
  const th_status ok = check_arguments(h, m, r, sink, e);
  if (ok != TH_OK) return ok;
  if (FAULT == no_profile && p) return fail(e, TH_E_INTERNAL, "profiles are not supported");
  if (FAULT == leaks_per_call) {
    char* volatile leaked = malloc(100);
    if (leaked) leaked[0] = 1;
  }
  static int calls_so_far;
  if (FAULT == leaks_rarely && ++calls_so_far > 600 && calls_so_far % 8 == 0) {
    char* volatile leaked = malloc(1024);
    if (leaked) leaked[0] = 1;
  }
  if (FAULT == leaks_descriptor_per_call) {
    const int leaked = open("/dev/null", O_RDONLY);
    (void)leaked;
  }
  struct report_call c = {h, m, r, sink, summary, elements(m) * 4, logits_bytes(m, r), e, TH_OK};
  return send_report_from_thread(&c);
}

static const void* table_of(const char* id) {
  static th_estimator tables[2];
  tables[0] = tables[1] = (th_estimator){sizeof(th_estimator), 0, match, estimate};
  if (FAULT == short_interface) tables[0].struct_size = 8;
  if (FAULT == null_slot) tables[0].estimate = 0;
  if (FAULT == any_interface) return &tables[0];
  if (strcmp(id, TH_ESTIMATOR_ID) != 0) return NULL;
  return &tables[FAULT == moving_table && starts > 0 ? starts & 1 : 0];
}
