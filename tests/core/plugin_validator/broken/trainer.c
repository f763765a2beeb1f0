/* A small correct trainer: a bigram model in the tensors of a llama model (only embedding and head are
 * trained), plain gradient descent. FAULT selects one fault. Linked once per row of ../broken_plugins.txt. */
#define KIND "trainer"
#include "report.h"

#include <math.h>

struct th_trainer_inst {
  const th_host* h;
  uint32_t vocab, hidden, layers, q, kv, wide, micro, accumulate, seq;
  uint64_t elements, steps;
  uint32_t optimizer;
  uint64_t saves, cancels;
  int ready;
  char loaded[9 * 16 + 3]; /* by tensor: load() has set it, so init() does not */
  float *w, *g, *logits;   /* [elements], [elements], [micro * seq * vocab] */
  char* hidden_heap;
  void* more[64];
};

/* Tensor `i` in the order of the checkpoint: name, shape and first element. Returns 0 if there is none. */
struct tensor_range {
  char name[96];
  uint32_t rank;
  uint64_t dim[2], at, count;
};
static int tensor(const th_trainer_inst* t, uint32_t i, struct tensor_range* p) {
  static const char* const names[9] = {"input_layernorm",  "self_attn.q_proj", "self_attn.k_proj",
                                       "self_attn.v_proj", "self_attn.o_proj", "post_attention_layernorm",
                                       "mlp.gate_proj",    "mlp.up_proj",      "mlp.down_proj"};
  const uint64_t h = t->hidden, dims[9][2] = {{h, 0}, {t->q, h},    {t->kv, h},   {t->kv, h},  {h, t->q},
                                              {h, 0}, {t->wide, h}, {t->wide, h}, {h, t->wide}};
  uint64_t at = 0;
  for (uint32_t k = 0; k <= i; ++k) {
    at += k ? p->count : 0;
    const uint32_t last = 9 * t->layers + 1;
    uint64_t rows = t->vocab, columns = h;
    if (k > last + 1) return 0;
    if (k == 0)
      snprintf(p->name, sizeof p->name, "model.embed_tokens.weight");
    else if (k == last)
      snprintf(p->name, sizeof p->name, "model.norm.weight"), rows = h, columns = 0;
    else if (k == last + 1)
      snprintf(p->name, sizeof p->name, FAULT == own_names ? "head.weight" : "lm_head.weight");
    else {
      snprintf(p->name, sizeof p->name, "model.layers.%u.%s.weight", (k - 1) / 9, names[(k - 1) % 9]);
      rows = dims[(k - 1) % 9][0], columns = dims[(k - 1) % 9][1];
    }
    p->rank = columns ? 2 : 1, p->dim[0] = rows, p->dim[1] = columns;
    p->count = rows * (columns ? columns : 1), p->at = at;
  }
  return 1;
}

static th_status probe(const th_host* h, uint32_t* devices, th_error* e) {
  (void)h;
  if (FAULT == probe_fails) return fail(e, TH_E_IO, "probe() failed");
  *devices = 1;
  return TH_OK;
}

static th_status trainable(const th_host* h, const th_model* m, const th_run* r, const void* out,
                           th_error* e) {
  const th_status ok = check_arguments(h, m, r, out, e);
  if (ok != TH_OK || FAULT == accepts_unknown_values) return ok;
  if (r->mode == TH_MODE_LORA && FAULT == lora_is_arg) return fail(e, TH_E_ARG, "LoRA is not supported");
  if (r->mode != TH_MODE_FULL || r->optimizer > TH_OPT_SGD_MOMENTUM || r->tensor_parallel > 1)
    return fail(e, TH_E_UNSUPPORTED, "only full training on one rank is supported");
  return TH_OK;
}

static th_status profile(const th_host* h, const th_model* m, const th_run* r, th_profile* p, th_error* e) {
  const th_status ok = trainable(h, m, r, (const void*)p, e);
  if (ok != TH_OK) return ok;
  p->alignment = 64, p->tier = TH_TIER_HOST, p->threads = 1;
  snprintf(p->trainer, sizeof p->trainer, FAULT == other_trainer ? "other" : "sample");
  return TH_OK;
}

static th_status plan(const th_host* h, const th_model* m, const th_run* r, th_mem_sink* sink,
                      th_mem_summary* summary, th_error* e) {
  const th_status ok = trainable(h, m, r, sink, e);
  if (ok != TH_OK) return ok;
  if (FAULT == plan_allocates) h->release(h, h->alloc(h, 4096, 64, TH_TIER_HOST, "plan"));
  struct report_call c = {
      h, m,    r, sink, summary, elements(m) * 4 + (FAULT == plan_exceeds_usage ? 64 : 0), logits_bytes(m, r),
      e, TH_OK};
  return send_report_from_thread(&c);
}

static th_trainer_inst* last_stepped; /* used only by shared_steps */
static uint64_t failed_allocations;   /* used only by oom_changes_init */

static void destroy(th_trainer_inst* t) {
  if (last_stepped == t) last_stepped = NULL;
  const int forgets =
      (FAULT == budget_leaks && !t->logits) || (FAULT == middle_alloc_leaks && !t->g && t->logits);
  if (!forgets) t->h->release(t->h, t->w);
  t->h->release(t->h, t->g);
  if (FAULT != destroy_leaks) t->h->release(t->h, t->logits);
  for (int i = 0; i < 64; ++i) t->h->release(t->h, t->more[i]);
  free(t->hidden_heap);
  free(t);
}

static th_status create(const th_host* h, int32_t device, const th_model* m, const th_run* r,
                        th_trainer_inst** out, th_error* e) {
  if (FAULT == create_leaks) h->alloc(h, 64, 64, TH_TIER_HOST, "early");
  const th_status ok = trainable(h, m, r, (const void*)out, e);
  if (ok != TH_OK) return ok;
  if (device != 0 && FAULT != any_device) return fail(e, TH_E_ARG, "the only device is 0");
  th_trainer_inst* t = calloc(1, sizeof *t);
  if (FAULT == leaks_per_instance) {
    char* volatile leaked = malloc(200);
    if (leaked) leaked[0] = 1;
  }
  if (FAULT == leaks_descriptor_per_instance && open("/dev/null", O_RDONLY) < 0)
    return fail(e, TH_E_IO, "no null");
  if (!t) return fail(e, TH_E_HOST_OOM, "out of memory");
  t->h = h, t->vocab = (uint32_t)m->vocab, t->hidden = m->hidden, t->layers = m->layers,
  t->q = m->heads * m->head_dim;
  t->kv = m->kv_heads * m->head_dim, t->wide = m->intermediate, t->micro = r->micro_batch,
  t->seq = r->seq_len;
  t->accumulate = r->accumulate, t->optimizer = r->optimizer, t->elements = elements(m);
  t->w = h->alloc(h, t->elements * 4, 64, TH_TIER_HOST, "weights");
  t->g = h->alloc(h, t->elements * 4, 64, TH_TIER_HOST, "gradients");
  t->logits = h->alloc(h, (uint64_t)t->micro * t->seq * t->vocab * 4, 64, TH_TIER_HOST, "logits");
  if (FAULT == unreported_memory && (t->hidden_heap = malloc(16 << 20))) memset(t->hidden_heap, 1, 16 << 20);
  if (!t->w || !t->g || !t->logits) {
    ++failed_allocations;
    destroy(t);
    if (FAULT == oom_is_internal) return fail(e, TH_E_INTERNAL, "malloc() failed");
    return fail(e, TH_E_HOST_OOM, "the host is out of memory");
  }
  *out = t;
  return TH_OK;
}

static th_status load(th_trainer_inst* t, uint32_t scope, const th_tensor* p, th_error* e) {
  struct tensor_range at;
  if (scope != TH_SCOPE_WEIGHTS) return fail(e, TH_E_ARG, "only weights are supported");
  for (uint32_t i = 0; tensor(t, i, &at); ++i) {
    if (strcmp(at.name, p->name) != 0) continue;
    if (p->rank != at.rank || p->dim[0] != at.dim[0] || (at.rank == 2 && p->dim[1] != at.dim[1]) ||
        (p->dtype != TH_DT_F32 && FAULT != any_tensor) || p->first > at.count ||
        p->count > at.count - p->first)
      return fail(e, TH_E_ARG, "shape or type differs");
    if (FAULT == ignores_pieces && p->count != at.count && p->first != 0) return TH_OK;
    const float* from = p->data;
    for (uint64_t k = 0; k < p->count && FAULT != load_forgets; ++k) {
      float* to = t->w + at.at + p->first + k;
      *to = FAULT == load_adds && t->loaded[i] && p->count == at.count ? *to + from[k] : from[k];
    }
    t->loaded[i] = 1;
    t->ready |= 2;
    return TH_OK;
  }
  return fail(e, TH_E_ARG, "no such tensor");
}

static th_status init(th_trainer_inst* t, uint64_t seed, th_error* e) {
  if (FAULT == oom_changes_init) seed += failed_allocations;
  uint64_t x = (FAULT == same_seed ? 1 : seed) * 0x9e3779b97f4a7c15u + 1;
  if (t->ready & 1 && FAULT != accepts_second_init) return fail(e, TH_E_STATE, "init() a second time");
  struct tensor_range at;
  for (uint32_t i = 0; tensor(t, i, &at); ++i)
    for (uint64_t k = 0; k < at.count; ++k) {
      x ^= x << 13, x ^= x >> 7, x ^= x << 17;
      const int kept = t->loaded[i] || (FAULT == init_fills_nothing && t->ready & 2);
      if (!kept) t->w[at.at + k] = ((float)(x >> 40) / (1 << 24) - 0.5f) * 0.2f;
    }
  t->ready |= 1;
  return TH_OK;
}

/* Loss of one position, and its gradient: logits = head . embedding[token]. */
static double position(th_trainer_inst* t, int32_t token, int32_t target, float scale, float* l) {
  const uint32_t H = t->hidden, V = t->vocab;
  const uint64_t head = t->elements - (uint64_t)V * H;
  const float* x = t->w + (uint64_t)token * H;
  double most = -1e30, sum = 0;
  for (uint32_t v = 0; v < V; ++v) {
    l[v] = 0;
    for (uint32_t h = 0; h < H; ++h) l[v] += t->w[head + (uint64_t)v * H + h] * x[h];
    if (l[v] > most) most = l[v];
  }
  for (uint32_t v = 0; v < V; ++v) sum += exp(l[v] - most);
  const double loss = log(sum) + most - l[target];
  for (uint32_t v = 0; v < V; ++v) {
    const float d = scale * ((float)(exp(l[v] - most) / sum) - (v == (uint32_t)target));
    for (uint32_t h = 0; h < H; ++h) {
      t->g[head + (uint64_t)v * H + h] += d * x[h];
      if (FAULT != no_embedding_gradient)
        t->g[(uint64_t)token * H + h] += d * t->w[head + (uint64_t)v * H + h];
    }
  }
  return loss;
}

static th_status step(th_trainer_inst* t, const th_step* s, th_step_out* out, th_error* e) {
  const int evaluate = (s->flags & TH_STEP_EVALUATE) != 0;
  const uint64_t n = (uint64_t)s->batch * s->seq;
  uint64_t counted = 0;
  double loss = 0, norm = 0, rate = s->lr * (t->optimizer == TH_OPT_SGD ? 1 : 10);
  static int all_steps, running;
  if (!(t->ready & 1) && FAULT != no_state_checks)
    return fail(e, TH_E_STATE, "step() or save() before init()");
  if (s->seq != t->seq || (evaluate ? s->batch > t->micro : s->batch != t->micro * t->accumulate))
    return fail(e, TH_E_ARG, "the batch size differs from the run");
  if (t->h->cancelled(t->h) && FAULT != ignores_cancel) {
    ++t->cancels;
    return fail(e, TH_E_CANCELLED, "cancelled");
  }
  if (FAULT == odd_sequence_fails && t->seq % 2 == 1)
    return fail(e, TH_E_INTERNAL, "the sequence length is odd");
  if (FAULT == one_at_a_time) {
    const int others = __atomic_fetch_add(&running, 1, __ATOMIC_SEQ_CST);
    usleep(5000);
    __atomic_fetch_sub(&running, 1, __ATOMIC_SEQ_CST);
    if (others) return fail(e, TH_E_STATE, "another step() is running");
  }
  if (FAULT == fails_second_step && s->step_index == 1)
    return fail(e, TH_E_INTERNAL, "the second step fails");
  for (uint64_t i = 0; i < n; ++i) {
    const int bad = s->tokens[i] < 0 || s->tokens[i] >= (int32_t)t->vocab ||
                    (s->targets[i] != -100 && (s->targets[i] < 0 || s->targets[i] >= (int32_t)t->vocab));
    if (bad && FAULT == rejected_step_changes_weights) t->w[0] += 1;
    if (bad && FAULT == any_token && s->tokens[i] >= 0) return TH_OK;
    if (bad) return fail(e, TH_E_ARG, "a token outside the vocabulary");
    counted += s->targets[i] != -100;
  }
  memset(t->g, 0, t->elements * 4);
  const uint64_t micro = (uint64_t)t->micro * t->seq;
  int half = 0;
  for (uint64_t i = 0; i < n; ++i) {
    if (i % micro == 0 && i > 0 && FAULT != polls_once && FAULT != ignores_cancel && t->h->cancelled(t->h)) {
      if (FAULT != cancel_keeps_half) return fail(e, TH_E_CANCELLED, "cancelled");
      half = 1;
      break;
    }
    float scale = 1.0f / (float)counted;
    if (FAULT == mean_of_means && !evaluate) {
      uint64_t here = 0;
      for (uint64_t k = i / micro * micro; k < i / micro * micro + micro && k < n; ++k)
        here += s->targets[k] != -100;
      scale = (float)micro / (float)(here ? here * n : 1);
    }
    const int32_t target = s->targets[i] == -100 && FAULT == ignored_as_zero ? 0 : s->targets[i];
    if (target != -100) loss += position(t, s->tokens[i], target, scale, t->logits) * scale;
  }
  for (uint64_t i = 0; i < t->elements; ++i) norm += (double)t->g[i] * t->g[i];
  if (FAULT != accepts_nan && !(isfinite(loss) && isfinite(norm))) {
    if (FAULT == nan_step_applies) t->w[t->elements - 1] += 1;
    return fail(e, TH_E_NONFINITE, "the loss is not finite");
  }
  if (FAULT == varying_weights && !evaluate) rate *= 1 + 1e-5 * ++all_steps;
  if (FAULT == shared_steps && last_stepped && last_stepped != t) rate *= 1.01;
  if (!evaluate) last_stepped = t;
  if (FAULT == save_changes_training) rate *= 1 + 0.01 * (double)t->saves;
  if (FAULT == rate_depends_on_own_steps) rate /= 1 + 0.1 * (double)t->steps;
  if (FAULT == rate_depends_on_cancels && t->cancels > 2) rate *= 1.01;
  for (uint64_t i = 0; i < t->elements; ++i)
    if (!evaluate || FAULT == evaluation_trains)
      t->w[i] -= (FAULT == loss_increases ? -1.f : 1.f) * (float)(rate + evaluate) * t->g[i];
  if (half) return fail(e, TH_E_CANCELLED, "cancelled");
  if (FAULT == allocates_late && t->steps == 100)
    t->more[0] = t->h->alloc(t->h, 64, 64, TH_TIER_HOST, "more");
  if (FAULT == leaks_per_step && t->steps > 50) {
    char* volatile leaked = malloc(1024);
    if (leaked) leaked[0] = 1;
  }
  if (FAULT == allocates_per_step && t->steps < 64)
    t->more[t->steps] = t->h->alloc(t->h, 64, 64, TH_TIER_HOST, "more");
  t->steps += !evaluate;
  out->loss = FAULT == loss_is_sum ? loss * (double)counted : loss;
  out->grad_norm = evaluate ? 0 : sqrt(norm) * (FAULT == double_norm ? 2 : 1);
  out->tokens_counted = FAULT == counts_all ? n : counted;
  return TH_OK;
}

struct save_call {
  th_trainer_inst* t;
  uint32_t scope;
  th_tensor_sink* sink;
  th_error* e;
  th_status status;
};
static th_status save_tensors(th_trainer_inst* t, uint32_t scope, th_tensor_sink* sink, th_error* e) {
  struct tensor_range at;
  if (!(t->ready & 1) && FAULT != no_state_checks)
    return fail(e, TH_E_STATE, "step() or save() before init()");
  if (scope != TH_SCOPE_WEIGHTS && FAULT != any_scope)
    return fail(e, TH_E_UNSUPPORTED, "only weights are supported");
  for (uint32_t i = 0; tensor(t, i, &at); ++i) {
    th_tensor p = {0};
    p.struct_size = sizeof p, p.dtype = TH_DT_F32, p.rank = at.rank, p.dim[0] = at.dim[0],
    p.dim[1] = at.dim[1];
    p.name = at.name, p.data = t->w + at.at, p.count = FAULT == saves_half ? at.count / 2 : at.count;
    const th_status s = sink->tensor(sink, &p);
    static int refusals;
    const int ignored =
        FAULT == save_ignores_sink || (FAULT == save_ignores_second_refusal && s != TH_OK && ++refusals > 1);
    if (s != TH_OK && !ignored) return fail(e, s, "the sink failed");
  }
  ++t->saves;
  return TH_OK;
}
static void* run_save_call(void* arg) {
  struct save_call* c = arg;
  c->status = save_tensors(c->t, c->scope, c->sink, c->e);
  return NULL;
}
static th_status save(th_trainer_inst* t, uint32_t scope, th_tensor_sink* sink, th_error* e) {
  struct save_call c = {t, scope, sink, e, TH_OK};
  if (FAULT == save_other_thread) {
    pthread_t thread;
    pthread_create(&thread, NULL, run_save_call, &c);
    pthread_join(thread, NULL);
  } else {
    run_save_call(&c);
  }
  return c.status;
}

static th_status counters(th_trainer_inst* t, th_counters* c, th_error* e) {
  (void)e;
  if (FAULT == counts_without_bytes) c->h2d_count = t->steps;
  c->launches = FAULT == counters_decrease ? 100 - t->steps : t->steps;
  return TH_OK;
}

static const char* info(th_trainer_inst* t, const char* key) {
  (void)t;
  return FAULT == answers_unknown_keys || strcmp(key, "kernel_set") == 0 ? "plain C" : NULL;
}

static const th_trainer table = {
    sizeof(th_trainer), 0, probe, profile, plan, create, load, init, step, save, counters, info, 0, destroy};

static const void* table_of(const char* id) { return strcmp(id, TH_TRAINER_ID) == 0 ? &table : NULL; }
