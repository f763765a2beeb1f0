/* @NAME@: a trainer in plain C11. It trains a bigram model, logits = head x embedding of the last token, in
 * f32 on one thread. The layers are loaded and saved unchanged. Put your network into run_batch(). Tensors:
 * tensors.h. */
#include <math.h>
#include <stdlib.h>
#include <time.h>

#include "tensors.h"

TH_MANIFEST(
    "id = \"@NAME@\"\n"
    "version = \"0.1.0\"\n"
    "kind = \"trainer\"\n"
    "summary = \"bigrams, on one thread\"\n"
    "priority = -10\n");

/* Four blocks of memory, allocated in create(): parameters, moments (as many as the optimizer has), gradients
 * of the trained tables (embedding and head), one row of logits. plan() reports the same sizes. */
struct th_trainer_inst {
  const th_host* host;
  th_run run;
  tensor_list tensors;
  uint64_t V, H, table; /* table: elements of the embedding, and of the head */
  int tied, moments, ready;
  float *w, *m, *g, *logits;
};

static th_status fail(th_error* e, th_status code, const char* message) {
  if (e != NULL) {
    e->code = code;
    snprintf(e->message, sizeof e->message, "%s", message);
  }
  return code;
}

static int count_moments(const th_run* r) {
  return r->optimizer == TH_OPT_ADAMW          ? 2
         : r->optimizer == TH_OPT_SGD_MOMENTUM ? 1
         : r->optimizer == TH_OPT_SGD          ? 0
                                               : -1;
}

/* Reason why the run is not supported, so that the host can try another trainer; NULL if it is supported. */
static const char* unsupported_reason(const th_model* m, const th_run* r) {
  if (m->vocab == 0 || m->hidden == 0 || m->layers == 0 || m->heads == 0 || m->kv_heads == 0 ||
      m->head_dim == 0 || m->intermediate == 0)
    return "a dimension of the model is 0";
  /* Within these limits no size exceeds 63 bits, and the list of tensors stays short. */
  if (m->vocab >> 31 || m->hidden >> 18 || m->layers > 10000 || m->heads >> 12 || m->kv_heads >> 12 ||
      m->head_dim >> 12 || m->intermediate >> 22)
    return "the model is too large for @NAME@";
  if (r->micro_batch == 0 || r->seq_len == 0 || r->accumulate == 0) return "the run has no tokens";
  if (r->mode != TH_MODE_FULL) return "@NAME@ supports only full training";
  if (r->dt_weight != TH_DT_F32 || r->dt_compute != TH_DT_F32) return "@NAME@ supports only fp32";
  if (count_moments(r) < 0) return "@NAME@ supports adamw, sgd and sgd-momentum";
  if (r->recompute != TH_RC_NONE) return "@NAME@ keeps no activations, so recompute is not supported";
  return NULL;
}

static th_status probe(const th_host* h, uint32_t* devices, th_error* e) {
  (void)h, (void)e;
  *devices = 1;
  return TH_OK;
}

static th_status profile(const th_host* h, const th_model* m, const th_run* r, th_profile* p, th_error* e) {
  (void)h;
  if (m == NULL || r == NULL || p == NULL) return fail(e, TH_E_ARG, "model, run or profile is null");
  p->alignment = 64;
  p->threads = 1;
  p->tier = TH_TIER_HOST;
  snprintf(p->trainer, sizeof p->trainer, "@NAME@");
  return TH_OK;
}

static th_status send_entry(th_mem_sink* sink, uint32_t id, const char* name, uint32_t component,
                            uint64_t bytes, const char* formula) {
  th_mem n;
  memset(&n, 0, sizeof n);
  n.struct_size = sizeof n;
  n.id = id;
  n.tier = TH_TIER_HOST;
  n.component = component;
  n.claim = TH_EXACT;
  n.bytes = n.lo = n.hi = bytes;
  n.name = name;
  n.formula = formula;
  return sink->node(sink, &n);
}

static th_status plan(const th_host* h, const th_model* m, const th_run* r, th_mem_sink* sink,
                      th_mem_summary* summary, th_error* e) {
  tensor_list l = {NULL, 0, 0};
  uint64_t trained;
  th_status s;
  (void)h;
  if (m == NULL || r == NULL || sink == NULL) return fail(e, TH_E_ARG, "model, run or sink is null");
  if (unsupported_reason(m, r) != NULL) return fail(e, TH_E_UNSUPPORTED, unsupported_reason(m, r));
  trained = m->vocab * m->hidden * (m->flags & TH_MODEL_TIED_EMBEDDINGS ? 1 : 2);
  list_tensors(&l, m);
  if ((s = send_entry(sink, 1, "weights", TH_MEM_WEIGHTS, l.elements * 4, "P*4")) != TH_OK) return s;
  if ((s = send_entry(sink, 2, "gradients", TH_MEM_GRADIENTS, trained * 4, "2*V*H*4")) != TH_OK) return s;
  if ((s = send_entry(sink, 3, "moments", TH_MEM_OPTIMIZER_STATE, l.elements * 4 * (uint64_t)count_moments(r),
                      "moments*P*4")) != TH_OK)
    return s;
  if ((s = send_entry(sink, 4, "logits", TH_MEM_LOGITS, m->vocab * 4, "V*4")) != TH_OK) return s;
  if (summary != NULL) {
    summary->claim = TH_EXACT;
    summary->tier_peak[TH_TIER_HOST] =
        4 * (l.elements * (1 + (uint64_t)count_moments(r)) + trained + m->vocab);
    summary->peak_phase[TH_TIER_HOST] = TH_PH_UPDATE;
  }
  return sink->note != NULL ? sink->note(sink, "Only embedding and head are trained.") : TH_OK;
}

static void destroy(th_trainer_inst* t) {
  if (t == NULL) return;
  t->host->release(t->host, t->w);
  t->host->release(t->host, t->m);
  t->host->release(t->host, t->g);
  t->host->release(t->host, t->logits);
  free(t->tensors.item);
  free(t);
}

/* Allocates n floats with the host's allocator; on failure adds the missing bytes to *missing. */
static float* alloc_floats(const th_host* h, uint64_t n, const char* tag, uint64_t* missing) {
  float* p = n == 0 ? NULL : h->alloc(h, n * sizeof(float), 64, TH_TIER_HOST, tag);
  if (n != 0 && p == NULL) *missing += n * sizeof(float);
  return p;
}

static th_status create(const th_host* h, int32_t device, const th_model* m, const th_run* r,
                        th_trainer_inst** out, th_error* e) {
  th_trainer_inst* t;
  uint64_t missing = 0;
  if (h == NULL || m == NULL || r == NULL || out == NULL)
    return fail(e, TH_E_ARG, "host, model, run or instance is null");
  *out = NULL;
  if (device != 0) return fail(e, TH_E_ARG, "the only device is 0");
  if (unsupported_reason(m, r) != NULL) return fail(e, TH_E_UNSUPPORTED, unsupported_reason(m, r));
  if ((t = calloc(1, sizeof *t)) == NULL) return fail(e, TH_E_HOST_OOM, "cannot allocate the instance");
  t->host = h;
  t->run = *r;
  t->V = m->vocab;
  t->H = m->hidden;
  t->table = t->V * t->H;
  t->tied = (m->flags & TH_MODEL_TIED_EMBEDDINGS) != 0;
  t->moments = count_moments(r);
  list_tensors(&t->tensors, m);
  t->tensors.item = calloc(t->tensors.count, sizeof(tensor));
  if (t->tensors.item != NULL)
    list_tensors(&t->tensors, m);
  else
    missing += t->tensors.count * sizeof(tensor);
  t->w = alloc_floats(h, t->tensors.elements, "weights", &missing);
  t->m = alloc_floats(h, t->tensors.elements * (uint64_t)t->moments, "moments", &missing);
  t->g = alloc_floats(h, t->table * (t->tied ? 1 : 2), "gradients", &missing);
  t->logits = alloc_floats(h, t->V, "logits", &missing);
  if (missing != 0) {
    destroy(t);
    if (e != NULL) e->bytes_needed = missing;
    return fail(e, TH_E_HOST_OOM, "cannot allocate parameters and optimizer state");
  }
  *out = t;
  return TH_OK;
}

/* Memory block of a scope; NULL if the run does not have it. */
static float* block_of_scope(th_trainer_inst* t, uint32_t scope) {
  if (scope == TH_SCOPE_WEIGHTS) return t->w;
  if (scope == TH_SCOPE_MOMENT1 && t->moments >= 1) return t->m;
  if (scope == TH_SCOPE_MOMENT2 && t->moments >= 2) return t->m + t->tensors.elements;
  return NULL;
}

static th_status load(th_trainer_inst* t, uint32_t scope, const th_tensor* in, th_error* e) {
  float* to = t == NULL ? NULL : block_of_scope(t, scope);
  uint64_t i;
  if (t == NULL || in == NULL || in->name == NULL)
    return fail(e, TH_E_ARG, "instance, tensor or its name is null");
  if (to == NULL) return fail(e, TH_E_ARG, "the run has no tensors of this scope");
  if (in->dtype != TH_DT_F32) return fail(e, TH_E_ARG, "the tensor type is not f32");
  for (i = 0; i < t->tensors.count; ++i) {
    tensor* k = &t->tensors.item[i];
    uint64_t elements = k->dim[0] * (k->rank == 2 ? k->dim[1] : 1);
    if (strcmp(k->name, in->name) != 0) continue;
    if (in->rank != k->rank || in->dim[0] != k->dim[0] || (k->rank == 2 && in->dim[1] != k->dim[1]))
      return fail(e, TH_E_ARG, "the tensor has a wrong shape");
    if (in->first > elements || in->count > elements - in->first)
      return fail(e, TH_E_ARG, "the part is outside of its tensor");
    if (in->count != 0) memcpy(to + k->offset + in->first, in->data, in->count * sizeof(float));
    if (scope == TH_SCOPE_WEIGHTS) k->loaded = 1;
    return TH_OK;
  }
  return fail(e, TH_E_ARG, "the model has no tensor of this name");
}

/* Uniform random number in [0, 1) from a counter (splitmix64), independent of the order of calls. */
static double uniform_random(uint64_t seed, uint64_t n) {
  uint64_t z = seed + (n + 1) * 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return (double)((z ^ (z >> 31)) >> 11) / 9007199254740992.0;
}

/* Initial values: matrices uniform with standard deviation 0.02, norms 1, biases 0. */
static th_status init(th_trainer_inst* t, uint64_t seed, th_error* e) {
  uint64_t i, j;
  if (t == NULL) return fail(e, TH_E_ARG, "the instance is null");
  if (t->ready) return fail(e, TH_E_STATE, "init() was already called");
  for (i = 0; i < t->tensors.count; ++i) {
    const tensor* k = &t->tensors.item[i];
    uint64_t elements = k->dim[0] * (k->rank == 2 ? k->dim[1] : 1);
    for (j = 0; !k->loaded && j < elements; ++j)
      t->w[k->offset + j] = k->rank == 2
                                ? (float)(0.02 * 3.4641016 * (uniform_random(seed, k->offset + j) - 0.5))
                            : strstr(k->name, "bias") != NULL ? 0
                                                              : 1;
  }
  t->ready = 1;
  return TH_OK;
}

/* Computes the mean loss over the counted targets and, if `train`, adds the gradients. logits[v] = head[v] .
 * x with x = embedding[token]; the gradient of a logit is (p - 1[v is the target]) / counted. */
static th_status run_batch(th_trainer_inst* t, const th_step* s, int train, double* loss, uint64_t* counted,
                           th_error* e) {
  float *E = t->w, *W = t->tied ? E : t->w + t->tensors.elements - t->table, *gE = t->g,
        *gW = t->tied ? gE : t->g + t->table;
  uint64_t n = (uint64_t)s->batch * s->seq, i, v, h;
  *loss = 0;
  *counted = 0;
  for (i = 0; i < n; ++i) {
    if (s->tokens[i] < 0 || (uint64_t)s->tokens[i] >= t->V)
      return fail(e, TH_E_ARG, "a token is outside the vocabulary");
    if (s->targets[i] != -100 && (s->targets[i] < 0 || (uint64_t)s->targets[i] >= t->V))
      return fail(e, TH_E_ARG, "a target is outside the vocabulary");
    *counted += s->targets[i] != -100;
  }
  for (i = 0; i < n; ++i) {
    const float* x = E + (uint64_t)s->tokens[i] * t->H;
    float *gx = gE + (uint64_t)s->tokens[i] * t->H, top = -INFINITY;
    double sum = 0;
    if (i % 64 == 0 && t->host->cancelled(t->host)) return fail(e, TH_E_CANCELLED, "cancelled");
    if (s->targets[i] == -100) continue;
    for (v = 0; v < t->V; ++v) {
      float z = 0;
      for (h = 0; h < t->H; ++h) z += W[v * t->H + h] * x[h];
      t->logits[v] = z;
      if (z > top) top = z;
    }
    for (v = 0; v < t->V; ++v) sum += exp(t->logits[v] - top);
    *loss += log(sum) + top - t->logits[s->targets[i]];
    for (v = 0; train && v < t->V; ++v) {
      float d = (float)((exp(t->logits[v] - top) / sum - (v == (uint64_t)s->targets[i])) / (double)*counted);
      for (h = 0; h < t->H; ++h) {
        float w = W[v * t->H + h];
        gW[v * t->H + h] += d * x[h];
        gx[h] += d * w;
      }
    }
  }
  if (*counted != 0) *loss /= (double)*counted;
  return TH_OK;
}

/* Updates the table of n parameters at `offset`; g: its gradients, which are multiplied by clip. Weight decay
 * is decoupled from the moments. */
static void update_table(th_trainer_inst* t, uint64_t offset, const float* g, uint64_t n, double clip,
                         const th_step* s) {
  const th_run* r = &t->run;
  double step = (double)s->step_index + 1, c1 = 1 - pow(r->beta1, step), c2 = 1 - pow(r->beta2, step);
  float *w = t->w + offset, *m1 = t->moments >= 1 ? t->m + offset : NULL,
        *m2 = t->moments >= 2 ? t->m + t->tensors.elements + offset : NULL;
  uint64_t i;
  for (i = 0; i < n; ++i) {
    double d = g[i] * clip;
    if (m1 != NULL && m2 == NULL) d = m1[i] = (float)(r->beta1 * m1[i] + d);
    if (m2 != NULL) {
      m1[i] = (float)(r->beta1 * m1[i] + (1 - r->beta1) * d);
      m2[i] = (float)(r->beta2 * m2[i] + (1 - r->beta2) * d * d);
      d = m1[i] / c1 / (sqrt(m2[i] / c2) + r->eps);
    }
    w[i] -= (float)(s->lr * (d + r->weight_decay * w[i]));
  }
}

static th_status step(th_trainer_inst* t, const th_step* s, th_step_out* out, th_error* e) {
  uint64_t trained, i;
  int train;
  struct timespec start, end;
  double squares = 0;
  th_status status;
  if (t == NULL || s == NULL || out == NULL) return fail(e, TH_E_ARG, "instance, step or its result is null");
  trained = t->table * (t->tied ? 1 : 2);
  train = (s->flags & TH_STEP_EVALUATE) == 0;
  if (!t->ready) return fail(e, TH_E_STATE, "init() was not called");
  if (s->seq != t->run.seq_len || s->batch == 0 ||
      s->batch > (train ? t->run.micro_batch * t->run.accumulate : t->run.micro_batch) ||
      (train && s->batch != t->run.micro_batch * t->run.accumulate) || s->tokens == NULL ||
      s->targets == NULL)
    return fail(e, TH_E_ARG, "the batch does not match the run");
  timespec_get(&start, TIME_UTC);
  if (train) memset(t->g, 0, trained * sizeof(float));
  if ((status = run_batch(t, s, train, &out->loss, &out->tokens_counted, e)) != TH_OK) return status;
  for (i = 0; train && i < trained; ++i) squares += (double)t->g[i] * t->g[i];
  out->grad_norm = sqrt(squares);
  if (!isfinite(out->loss) || !isfinite(out->grad_norm))
    return fail(e, TH_E_NONFINITE, "the loss or its gradient is not finite");
  if (train) {
    double clip = t->run.clip_norm > 0 ? fmin(1, t->run.clip_norm / (out->grad_norm + 1e-6)) : 1;
    update_table(t, 0, t->g, t->table, clip, s);
    if (!t->tied) update_table(t, t->tensors.elements - t->table, t->g + t->table, t->table, clip, s);
  }
  timespec_get(&end, TIME_UTC);
  out->wall_ns = (uint64_t)((end.tv_sec - start.tv_sec) * 1000000000LL + end.tv_nsec - start.tv_nsec);
  return TH_OK;
}

static th_status save(th_trainer_inst* t, uint32_t scope, th_tensor_sink* sink, th_error* e) {
  float* from = t == NULL ? NULL : block_of_scope(t, scope);
  th_status s = TH_OK;
  uint64_t i;
  if (t == NULL || sink == NULL) return fail(e, TH_E_ARG, "instance or sink is null");
  if (!t->ready) return fail(e, TH_E_STATE, "init() was not called");
  if (from == NULL) return fail(e, TH_E_ARG, "the run has no tensors of this scope");
  for (i = 0; s == TH_OK && i < t->tensors.count; ++i) {
    const tensor* k = &t->tensors.item[i];
    th_tensor out;
    memset(&out, 0, sizeof out);
    out.struct_size = sizeof out;
    out.dtype = TH_DT_F32;
    out.rank = k->rank;
    out.dim[0] = k->dim[0];
    out.dim[1] = k->dim[1];
    out.name = k->name;
    out.data = from + k->offset;
    out.count = k->dim[0] * (k->rank == 2 ? k->dim[1] : 1);
    s = sink->tensor(sink, &out);
  }
  return s;
}

static const void* get(const char* interface_id) {
  static const th_trainer table = {
      sizeof(th_trainer), 0, probe, profile, plan, create, load, init, step, save, NULL, NULL, NULL, destroy};
  return strcmp(interface_id, TH_TRAINER_ID) == 0 ? &table : NULL;
}

const th_plugin* TH_ENTRY(void) {
  static const th_plugin plugin = {sizeof(th_plugin), TH_ABI_MAJOR, TH_ABI_MINOR, "@NAME@",
                                   "0.1.0",           NULL,         NULL,         get};
  return &plugin;
}
