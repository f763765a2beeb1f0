/* A small correct estimator of a bigram model; FAULT selects one fault. Built once per row of
 * ../broken_plugins.txt. */
#define KIND "estimator"
#include "report.h"

static int32_t match(const th_model* m, const th_run* r) {
  static int moods;
  if (FAULT != match_null_crashes && (!m || !r)) return 0;
  if (FAULT == slow_match) usleep(1500);
  if (FAULT == match_reads) {
    char byte;
    const int file = open("/dev/zero", O_RDONLY);
    if (file >= 0 && read(file, &byte, 1) == 1) close(file);
  }
  if (FAULT == no_match || r->micro_batch == 0 || !m->family || strcmp(m->family, "llama") != 0) return 0;
  if (FAULT == moody_match) return 500 + (++moods & 1);
  return FAULT == score_2000 ? 2000 : 500;
}

static th_status estimate(const th_host* h, const th_model* m, const th_run* r, const th_profile* p,
                          th_mem_sink* sink, th_mem_summary* summary, th_error* e) {
  const th_status ok = acceptable(h, m, r, sink, e);
  if (ok != TH_OK) return ok;
  if (FAULT == no_profile && p) return refuse(e, TH_E_INTERNAL, "no idea what a profile is");
  if (FAULT == leaks_by_call) {
    char* volatile lost = malloc(100);
    if (lost) lost[0] = 1;
  }
  static int asked;
  if (FAULT == leaks_seldom && ++asked > 600 && asked % 8 == 0) {
    char* volatile lost = malloc(1024);
    if (lost) lost[0] = 1;
  }
  if (FAULT == leaks_descriptor_by_call) {
    const int lost = open("/dev/null", O_RDONLY);
    (void)lost;
  }
  struct account_call c = {h, m, r, sink, summary, elements(m) * 4, logits_bytes(m, r), e, TH_OK};
  return give_account(&c);
}

static const th_estimator tables[2] = {
    {FAULT == short_interface ? 8 : sizeof(th_estimator), 0, match, FAULT == null_slot ? 0 : estimate},
    {sizeof(th_estimator), 0, match, estimate}};

static const void* table_of(const char* id) {
  if (FAULT == any_interface) return &tables[0];
  if (strcmp(id, TH_ESTIMATOR_ID) != 0) return NULL;
  return &tables[FAULT == moving_table && starts > 0 ? starts & 1 : 0];
}
