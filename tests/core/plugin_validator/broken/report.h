/* The memory report of the broken estimators and trainers: weights, gradients and logits of a bigram model,
 * with the faults of reports. */
#ifndef BROKEN_REPORT_H
#define BROKEN_REPORT_H
#include "common.h"

static int calls;

/* a * b; UINT64_MAX if the product exceeds 62 bits. */
static inline uint64_t times(uint64_t a, uint64_t b) {
  if (FAULT == overflows) return a * b;
  return a == UINT64_MAX || b == UINT64_MAX || (a && b > (UINT64_MAX >> 2) / a) ? UINT64_MAX : a * b;
}

/* Elements of the model's tensors: embedding and head, and those of each layer. */
static inline uint64_t elements(const th_model* m) {
  const uint64_t q = times(m->heads, m->head_dim), kv = times(m->kv_heads, m->head_dim);
  const uint64_t per = times(m->hidden, 2 + 2 * q + 2 * kv + times(3, m->intermediate));
  const uint64_t ends = times(m->hidden, times(2, m->vocab) + 1), all = times(m->layers, per);
  if (FAULT == overflows) return ends + all;
  return ends == UINT64_MAX || all == UINT64_MAX || q >> 40 || kv >> 40 ? UINT64_MAX : ends + all;
}

static inline uint64_t logits_bytes(const th_model* m, const th_run* r) {
  uint64_t tokens = times(r->micro_batch, r->seq_len);
  if (FAULT == decreases_with_batch) tokens = 10000 / r->micro_batch * r->seq_len;
  if (FAULT == decreases_with_sequence) tokens = 10000 / r->seq_len * r->micro_batch;
  if (FAULT == decreases_with_layers) tokens = 100000 / m->layers;
  return times(times(tokens, m->vocab), 4);
}

/* Rejects invalid arguments, unknown families and unknown values. */
static inline th_status check_arguments(const th_host* h, const th_model* m, const th_run* r,
                                        const th_mem_sink* sink, th_error* e) {
  if (FAULT != null_crashes && (!h || !m || !r || !sink)) return fail(e, TH_E_ARG, "a null argument");
  if (FAULT == requires_equal_sizes && (m->struct_size != sizeof *m || r->struct_size != sizeof *r))
    return fail(e, TH_E_ARG, "struct_size differs");
  if (FAULT == copies_by_size && (m->struct_size > 1200 || r->struct_size > 1200))
    return fail(e, TH_E_ARG, "struct_size exceeds 1200 bytes");
  if (FAULT == aborts_on_odd_heads && m->heads && m->hidden > 40 && m->hidden % m->heads != 0) abort();
  if (!m->family || (strcmp(m->family, "llama") != 0 && FAULT != answers_foreign_families)) {
    if (FAULT == undocumented_code) return fail(e, -77, "an undocumented code");
    return fail(e, FAULT == unknown_family_internal ? TH_E_INTERNAL : TH_E_UNSUPPORTED, "unknown family");
  }
  if (!m->layers || !m->hidden || !m->vocab || !m->heads || !r->seq_len || !r->micro_batch)
    return fail(e, FAULT == degenerate_internal ? TH_E_INTERNAL : TH_E_ARG, "a dimension is 0");
  if (FAULT != accepts_unknown_values &&
      (r->optimizer == 0 || r->optimizer > TH_OPT_ADAMW_8BIT || r->mode == 0 || r->mode > TH_MODE_INFERENCE ||
       r->dt_weight > TH_DT_I4 || r->recompute > TH_RC_LAYERS))
    return fail(e, TH_E_UNSUPPORTED, "unknown optimizer, mode, type or recompute policy");
  if (elements(m) > (UINT64_MAX >> 6) || logits_bytes(m, r) == UINT64_MAX) {
    if (FAULT != overflows) return fail(e, TH_E_UNSUPPORTED, "the model exceeds 62 bits");
  }
  return TH_OK;
}

static uint32_t next_id; /* used only by shared_state */

struct report_progress {
  th_mem_sink* sink;
  uint32_t id;
  uint64_t sum;
  th_status status;
};

static inline void send_entry(struct report_progress* at, const char* name, uint32_t component,
                              uint64_t bytes) {
  th_mem n = {0};
  if (FAULT == half_of_weights && component == TH_MEM_WEIGHTS) bytes /= 2;
  if (at->status != TH_OK && FAULT != ignores_sink) return;
  n.struct_size = sizeof n;
  n.id = ++at->id;
  if (FAULT == shared_state) usleep(30), n.id = ++next_id;
  n.parent = FAULT == late_parent ? n.id + 1 : 0;
  n.tier = TH_TIER_HOST;
  n.component = FAULT == unknown_component ? 99 : component;
  n.claim = FAULT == sum_claims_more ? TH_APPROXIMATION : TH_EXACT;
  n.flags = TH_MEM_HAS_AT_PEAK;
  n.bytes = n.lo = n.hi = n.bytes_at_peak = FAULT == reports_zero_bytes ? 0 : bytes;
  if (FAULT == inexact) n.hi += 1;
  n.name = FAULT == no_name ? NULL : name;
  at->sum += n.bytes;
  const th_status s = at->sink->node(at->sink, &n);
  static int refusals;
  if (s != TH_OK && FAULT == ignores_second_refusal && ++refusals > 1) return;
  if (at->status == TH_OK) at->status = s;
}

static inline th_status send_report(const th_host* h, const th_model* m, const th_run* r, th_mem_sink* sink,
                                    th_mem_summary* summary, uint64_t weights, uint64_t logits, th_error* e) {
  static struct report_progress shared;
  struct report_progress own, *at = FAULT == shared_static ? &shared : &own;
  *at = (struct report_progress){sink, 0, 0, TH_OK};
  (void)m, (void)r;
  next_id = 0;
  if (FAULT == prints_when_used) puts("printed by the plugin");
  send_entry(at, "weights", TH_MEM_WEIGHTS, weights);
  send_entry(at, "gradients", TH_MEM_GRADIENTS, weights);
  send_entry(at, "logits", TH_MEM_LOGITS, logits);
  if (FAULT == sgd_needs_more && r->optimizer == TH_OPT_SGD) send_entry(at, "more", TH_MEM_WORKSPACE, 64);
  if (FAULT == bf16_needs_more && r->dt_weight == TH_DT_BF16) send_entry(at, "more", TH_MEM_WORKSPACE, 64);
  if (FAULT == varying_report && r->micro_batch > 8 && r->accumulate > 1)
    send_entry(at, "more", TH_MEM_WORKSPACE, (uint64_t)++calls);
  if (FAULT == too_many_nodes)
    for (int i = 0; i < 10000; ++i) send_entry(at, "repeated", TH_MEM_WORKSPACE, 0);
  if (FAULT == ignores_sink) at->status = TH_OK;
  if (at->status == TH_OK)
    at->status = sink->note(sink, FAULT == control_character_note ? "\x1b[31mred" : "A bigram model.");
  if (FAULT == ignores_sink) at->status = TH_OK;
  if (at->status != TH_OK) return fail(e, at->status, "the host rejected the report");
  summary->claim = TH_EXACT;
  summary->digest = FAULT == varying_digest ? (uint64_t)++calls : 7;
  summary->tier_peak[TH_TIER_HOST] = at->sum + (FAULT == wrong_peak ? 64 : 0);
  summary->peak_phase[TH_TIER_HOST] = TH_PH_BACKWARD;
  if (FAULT == summary_past_size) ((volatile char*)summary)[sizeof *summary] = 1;
  if (FAULT == logs_null) h->log(h, TH_LOG_INFO, "report", NULL);
  if (FAULT == writes_input) ((th_run*)(size_t)r)->reserved = 1;
  if (FAULT == late_sink) kept_sink = sink;
  return TH_OK;
}

struct report_call {
  const th_host* h;
  const th_model* m;
  const th_run* r;
  th_mem_sink* sink;
  th_mem_summary* summary;
  uint64_t weights, logits;
  th_error* e;
  th_status status;
};
static void* run_report_call(void* arg) {
  struct report_call* c = arg;
  c->status = send_report(c->h, c->m, c->r, c->sink, c->summary, c->weights, c->logits, c->e);
  return NULL;
}
static void* wait_4_ms(void* arg) {
  (void)arg;
  usleep(4000);
  return NULL;
}

/* send_report(), from the thread that the fault selects. */
static inline th_status send_report_from_thread(struct report_call* c) {
  pthread_t t[4];
  if (FAULT == many_threads) {
    for (int i = 0; i < 4; ++i) pthread_create(&t[i], NULL, wait_4_ms, NULL);
    for (int i = 0; i < 4; ++i) pthread_join(t[i], NULL);
  }
  if (FAULT == other_thread) {
    pthread_create(&t[0], NULL, run_report_call, c);
    pthread_join(t[0], NULL);
  } else {
    run_report_call(c);
  }
  return c->status;
}
#endif
