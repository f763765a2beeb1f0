/* The memory report of the broken estimators and trainers: weights, gradients, moments, activations of a bigram model, exactly;
 * and the faults of such reports. */
#ifndef BROKEN_REPORT_H
#define BROKEN_REPORT_H
#include "common.h"

static int calls;

/* a * b, or UINT64_MAX where it leaves 62 bits. */
static inline uint64_t times(uint64_t a, uint64_t b) {
  if (FAULT == wraps) return a * b;
  return a == UINT64_MAX || b == UINT64_MAX || (a && b > (UINT64_MAX >> 2) / a) ? UINT64_MAX : a * b;
}

/* Elements of the model's tensors: embedding and head, and those of each layer. */
static inline uint64_t elements(const th_model* m) {
  const uint64_t q = times(m->heads, m->head_dim), kv = times(m->kv_heads, m->head_dim);
  const uint64_t per = times(m->hidden, 2 + 2 * q + 2 * kv + times(3, m->intermediate));
  const uint64_t ends = times(m->hidden, times(2, m->vocab) + 1), all = times(m->layers, per);
  if (FAULT == wraps) return ends + all;
  return ends == UINT64_MAX || all == UINT64_MAX || q >> 40 || kv >> 40 ? UINT64_MAX : ends + all;
}

static inline uint64_t logits_bytes(const th_model* m, const th_run* r) {
  uint64_t tokens = times(r->micro_batch, r->seq_len);
  if (FAULT == falls_with_batch) tokens = 10000 / r->micro_batch * r->seq_len;
  if (FAULT == falls_with_sequence) tokens = 10000 / r->seq_len * r->micro_batch;
  if (FAULT == falls_with_layers) tokens = 100000 / m->layers;
  return times(times(tokens, m->vocab), 4);
}

/* What the account refuses before it counts. */
static inline th_status acceptable(const th_host* h, const th_model* m, const th_run* r,
                                   const th_mem_sink* sink, th_error* e) {
  if (FAULT != null_crashes && (!h || !m || !r || !sink)) return refuse(e, TH_E_ARG, "a null argument");
  if (FAULT == exact_sizes && (m->struct_size != sizeof *m || r->struct_size != sizeof *r))
    return refuse(e, TH_E_ARG, "other headers");
  if (FAULT == copies_by_size && (m->struct_size > 1200 || r->struct_size > 1200))
    return refuse(e, TH_E_ARG, "too long for my copy");
  if (FAULT == aborts_on_shape && m->heads && m->hidden > 40 && m->hidden % m->heads != 0) abort();
  if (!m->family || strcmp(m->family, "llama") != 0) {
    if (FAULT == undocumented_code) return refuse(e, -77, "a code of its own");
    return refuse(e, FAULT == foreign_internal ? TH_E_INTERNAL : TH_E_UNSUPPORTED, "not a family of mine");
  }
  if (!m->layers || !m->hidden || !m->vocab || !m->heads || !r->seq_len || !r->micro_batch)
    return refuse(e, FAULT == degenerate_internal ? TH_E_INTERNAL : TH_E_ARG, "a dimension is 0");
  if (FAULT != unknown_words &&
      (r->optimizer == 0 || r->optimizer > TH_OPT_ADAMW_8BIT || r->mode == 0 || r->mode > TH_MODE_INFERENCE ||
       r->dt_weight > TH_DT_I4 || r->recompute > TH_RC_LAYERS))
    return refuse(e, TH_E_UNSUPPORTED, "a word that I do not know");
  if (elements(m) > (UINT64_MAX >> 6) || logits_bytes(m, r) == UINT64_MAX) {
    if (FAULT != wraps) return refuse(e, TH_E_UNSUPPORTED, "too large to count");
  }
  return TH_OK;
}

static uint32_t next_id; /* of shared_state alone */

struct emission {
  th_mem_sink* sink;
  uint32_t id;
  uint64_t sum;
  th_status status;
};

static inline void leaf(struct emission* at, const char* name, uint32_t component, uint64_t bytes) {
  th_mem n = {0};
  if (FAULT == half_the_weights && component == TH_MEM_WEIGHTS) bytes /= 2;
  if (at->status != TH_OK && FAULT != ignores_sink) return;
  n.struct_size = sizeof n;
  n.id = ++at->id;
  if (FAULT == shared_state) usleep(30), n.id = ++next_id;
  n.parent = FAULT == late_parent ? n.id + 1 : 0;
  n.tier = TH_TIER_HOST;
  n.component = FAULT == unknown_component ? 99 : component;
  n.claim = FAULT == too_sure ? TH_APPROXIMATION : TH_EXACT;
  n.flags = TH_MEM_HAS_AT_PEAK;
  n.bytes = n.lo = n.hi = n.bytes_at_peak = FAULT == takes_nothing ? 0 : bytes;
  if (FAULT == inexact) n.hi += 1;
  n.name = FAULT == nameless ? NULL : name;
  at->sum += n.bytes;
  const th_status s = at->sink->node(at->sink, &n);
  if (at->status == TH_OK) at->status = s;
}

static inline th_status account(const th_host* h, const th_model* m, const th_run* r, th_mem_sink* sink,
                                th_mem_summary* summary, uint64_t weights, uint64_t logits, th_error* e) {
  struct emission at = {sink, 0, 0, TH_OK};
  (void)m, (void)r;
  next_id = 0;
  leaf(&at, "weights", TH_MEM_WEIGHTS, weights);
  leaf(&at, "gradients", TH_MEM_GRADIENTS, weights);
  leaf(&at, "logits", TH_MEM_LOGITS, logits);
  if (FAULT == sgd_takes_more && r->optimizer == TH_OPT_SGD) leaf(&at, "more", TH_MEM_WORKSPACE, 64);
  if (FAULT == bf16_takes_more && r->dt_weight == TH_DT_BF16) leaf(&at, "more", TH_MEM_WORKSPACE, 64);
  if (FAULT == moody_shape && r->micro_batch > 8 && r->accumulate > 1)
    leaf(&at, "more", TH_MEM_WORKSPACE, (uint64_t)++calls);
  if (FAULT == endless)
    for (int i = 0; i < 10000; ++i) leaf(&at, "and so on", TH_MEM_WORKSPACE, 0);
  if (FAULT == ignores_sink) at.status = TH_OK;
  if (at.status == TH_OK)
    at.status = sink->note(sink, FAULT == dirty_note ? "\x1b[31mred" : "A bigram model.");
  if (FAULT == ignores_sink) at.status = TH_OK;
  if (at.status != TH_OK) return refuse(e, at.status, "the host refused the report");
  summary->claim = TH_EXACT;
  summary->digest = FAULT == moody_digest ? (uint64_t)++calls : 7;
  summary->tier_peak[TH_TIER_HOST] = at.sum + (FAULT == wrong_peak ? 64 : 0);
  summary->peak_phase[TH_TIER_HOST] = TH_PH_BACKWARD;
  if (FAULT == summary_past_size) ((volatile char*)summary)[sizeof *summary] = 1;
  if (FAULT == logs_null) h->log(h, TH_LOG_INFO, "report", NULL);
  if (FAULT == writes_input) ((th_run*)(size_t)r)->reserved = 1;
  if (FAULT == late_sink) kept_sink = sink;
  return TH_OK;
}

struct account_call {
  const th_host* h;
  const th_model* m;
  const th_run* r;
  th_mem_sink* sink;
  th_mem_summary* summary;
  uint64_t weights, logits;
  th_error* e;
  th_status status;
};
static void* account_there(void* arg) {
  struct account_call* c = arg;
  c->status = account(c->h, c->m, c->r, c->sink, c->summary, c->weights, c->logits, c->e);
  return NULL;
}
static void* busy(void* arg) {
  (void)arg;
  usleep(4000);
  return NULL;
}

/* account(), from the thread that the fault says. */
static inline th_status give_account(struct account_call* c) {
  pthread_t t[4];
  if (FAULT == many_threads) {
    for (int i = 0; i < 4; ++i) pthread_create(&t[i], NULL, busy, NULL);
    for (int i = 0; i < 4; ++i) pthread_join(t[i], NULL);
  }
  if (FAULT == foreign_thread) {
    pthread_create(&t[0], NULL, account_there, c);
    pthread_join(t[0], NULL);
  } else {
    account_there(c);
  }
  return c->status;
}
#endif
