/* @NAME@: a trainer in plain C11. It trains a bigram model, logits = head x embedding of the last token, in f32 on one thread;
 * the layers between are loaded, kept and saved as they are. Your network goes into pass(). Tensors: tensors.h. */
#include <math.h>
#include <stdlib.h>
#include <time.h>

#include "tensors.h"

TH_MANIFEST("id = \"@NAME@\"\n"
            "version = \"0.1.0\"\n"
            "kind = \"trainer\"\n"
            "summary = \"bigrams, on one thread\"\n"
            "priority = -10\n");

/* Memory is four blocks, each taken once: parameters, moments (as many as the optimizer keeps), gradients of the two tables
 * that learn, one row of logits. plan() says the same sizes. */
struct th_trainer_inst {
  const th_host *host;
  th_run run;
  tensor_list tensors;
  uint64_t V, H, table; /* table: elements of the embedding, and of the head */
  int tied, moments, ready;
  float *w, *m, *g, *logits;
};

static th_status fail(th_error *e, th_status code, const char *message) {
  if (e != NULL) {
    e->code = code;
    snprintf(e->message, sizeof e->message, "%s", message);
  }
  return code;
}

static int moments_of(const th_run *r) {
  return r->optimizer == TH_OPT_ADAMW ? 2 : r->optimizer == TH_OPT_SGD_MOMENTUM ? 1 : r->optimizer == TH_OPT_SGD ? 0 : -1;
}

/* One sentence for what it cannot do, so that the host can go on to another trainer; NULL when it can. */
static const char *refusal(const th_model *m, const th_run *r) {
  if (m->vocab == 0 || m->hidden == 0 || m->layers == 0 || m->heads == 0 || m->kv_heads == 0 || m->head_dim == 0 || m->intermediate == 0)
    return "a dimension of the model is 0";
  /* Within these no size below leaves 63 bits, and the list of tensors stays short. */
  if (m->vocab >> 31 || m->hidden >> 18 || m->layers > 10000 || m->heads >> 12 || m->kv_heads >> 12 || m->head_dim >> 12 || m->intermediate >> 22)
    return "the model is beyond what @NAME@ counts";
  if (r->micro_batch == 0 || r->seq_len == 0 || r->accumulate == 0) return "a run without tokens";
  if (r->mode != TH_MODE_FULL) return "@NAME@ trains all parameters or none";
  if (r->dt_weight != TH_DT_F32 || r->dt_compute != TH_DT_F32) return "@NAME@ computes in fp32";
  if (moments_of(r) < 0) return "@NAME@ knows adamw, sgd and sgd-momentum";
  if (r->recompute != TH_RC_NONE) return "@NAME@ keeps nothing that could be recomputed";
  return NULL;
}

static th_status probe(const th_host *h, uint32_t *devices, th_error *e) {
  (void)h, (void)e;
  *devices = 1;
  return TH_OK;
}

static th_status profile(const th_host *h, const th_model *m, const th_run *r, th_profile *p, th_error *e) {
  (void)h;
  if (m == NULL || r == NULL || p == NULL) return fail(e, TH_E_ARG, "model, run or profile is null");
  p->alignment = 64;
  p->threads = 1;
  p->tier = TH_TIER_HOST;
  snprintf(p->trainer, sizeof p->trainer, "@NAME@");
  return TH_OK;
}

static th_status leaf(th_mem_sink *sink, uint32_t id, const char *name, uint32_t component, uint64_t bytes, const char *formula) {
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

static th_status plan(const th_host *h, const th_model *m, const th_run *r, th_mem_sink *sink, th_mem_summary *summary, th_error *e) {
  tensor_list l = {NULL, 0, 0};
  uint64_t learns;
  th_status s;
  (void)h;
  if (m == NULL || r == NULL || sink == NULL) return fail(e, TH_E_ARG, "model, run or sink is null");
  if (refusal(m, r) != NULL) return fail(e, TH_E_UNSUPPORTED, refusal(m, r));
  learns = m->vocab * m->hidden * (m->flags & TH_MODEL_TIED_EMBEDDINGS ? 1 : 2);
  list_tensors(&l, m);
  if ((s = leaf(sink, 1, "weights", TH_MEM_WEIGHTS, l.elements * 4, "P*4")) != TH_OK) return s;
  if ((s = leaf(sink, 2, "gradients", TH_MEM_GRADIENTS, learns * 4, "2*V*H*4")) != TH_OK) return s;
  if ((s = leaf(sink, 3, "moments", TH_MEM_OPTIMIZER_STATE, l.elements * 4 * (uint64_t)moments_of(r), "moments*P*4")) != TH_OK) return s;
  if ((s = leaf(sink, 4, "logits", TH_MEM_LOGITS, m->vocab * 4, "V*4")) != TH_OK) return s;
  if (summary != NULL) {
    summary->claim = TH_EXACT;
    summary->tier_peak[TH_TIER_HOST] = 4 * (l.elements * (1 + (uint64_t)moments_of(r)) + learns + m->vocab);
    summary->peak_phase[TH_TIER_HOST] = TH_PH_UPDATE;
  }
  return sink->note != NULL ? sink->note(sink, "Embedding and head learn; the layers stay as they are.") : TH_OK;
}

static void destroy(th_trainer_inst *t) {
  if (t == NULL) return;
  t->host->release(t->host, t->w);
  t->host->release(t->host, t->m);
  t->host->release(t->host, t->g);
  t->host->release(t->host, t->logits);
  free(t->tensors.item);
  free(t);
}

/* Floats of the host's ledger; counts on `missing` what there was none for. */
static float *floats(const th_host *h, uint64_t n, const char *tag, uint64_t *missing) {
  float *p = n == 0 ? NULL : h->alloc(h, n * sizeof(float), 64, TH_TIER_HOST, tag);
  if (n != 0 && p == NULL) *missing += n * sizeof(float);
  return p;
}

static th_status create(const th_host *h, int32_t device, const th_model *m, const th_run *r, th_trainer_inst **out, th_error *e) {
  th_trainer_inst *t;
  uint64_t missing = 0;
  if (h == NULL || m == NULL || r == NULL || out == NULL) return fail(e, TH_E_ARG, "host, model, run or instance is null");
  *out = NULL;
  if (device != 0) return fail(e, TH_E_ARG, "there is one device, 0");
  if (refusal(m, r) != NULL) return fail(e, TH_E_UNSUPPORTED, refusal(m, r));
  if ((t = calloc(1, sizeof *t)) == NULL) return fail(e, TH_E_HOST_OOM, "no memory for the run itself");
  t->host = h;
  t->run = *r;
  t->V = m->vocab;
  t->H = m->hidden;
  t->table = t->V * t->H;
  t->tied = (m->flags & TH_MODEL_TIED_EMBEDDINGS) != 0;
  t->moments = moments_of(r);
  list_tensors(&t->tensors, m);
  t->tensors.item = calloc(t->tensors.count, sizeof(tensor));
  if (t->tensors.item != NULL) list_tensors(&t->tensors, m);
  else missing += t->tensors.count * sizeof(tensor);
  t->w = floats(h, t->tensors.elements, "weights", &missing);
  t->m = floats(h, t->tensors.elements * (uint64_t)t->moments, "moments", &missing);
  t->g = floats(h, t->table * (t->tied ? 1 : 2), "gradients", &missing);
  t->logits = floats(h, t->V, "logits", &missing);
  if (missing != 0) {
    destroy(t);
    if (e != NULL) e->bytes_needed = missing;
    return fail(e, TH_E_HOST_OOM, "no host memory for parameters and their optimizer state");
  }
  *out = t;
  return TH_OK;
}

/* The block of a scope; NULL where this run has none. */
static float *block(th_trainer_inst *t, uint32_t scope) {
  if (scope == TH_SCOPE_WEIGHTS) return t->w;
  if (scope == TH_SCOPE_MOMENT1 && t->moments >= 1) return t->m;
  if (scope == TH_SCOPE_MOMENT2 && t->moments >= 2) return t->m + t->tensors.elements;
  return NULL;
}

static th_status load(th_trainer_inst *t, uint32_t scope, const th_tensor *in, th_error *e) {
  float *to = t == NULL ? NULL : block(t, scope);
  uint64_t i;
  if (t == NULL || in == NULL || in->name == NULL) return fail(e, TH_E_ARG, "instance, tensor or its name is null");
  if (to == NULL) return fail(e, TH_E_ARG, "this run has no such tensors");
  if (in->dtype != TH_DT_F32) return fail(e, TH_E_ARG, "tensors come in f32");
  for (i = 0; i < t->tensors.count; ++i) {
    tensor *k = &t->tensors.item[i];
    uint64_t elements = k->dim[0] * (k->rank == 2 ? k->dim[1] : 1);
    if (strcmp(k->name, in->name) != 0) continue;
    if (in->rank != k->rank || in->dim[0] != k->dim[0] || (k->rank == 2 && in->dim[1] != k->dim[1]))
      return fail(e, TH_E_ARG, "a tensor has another shape than the model gives it");
    if (in->first > elements || in->count > elements - in->first) return fail(e, TH_E_ARG, "a piece lies outside its tensor");
    if (in->count != 0) memcpy(to + k->at + in->first, in->data, in->count * sizeof(float));
    if (scope == TH_SCOPE_WEIGHTS) k->loaded = 1;
    return TH_OK;
  }
  return fail(e, TH_E_ARG, "the model has no tensor of that name");
}

/* Uniform numbers of a counter (splitmix64): the same at every run, for every order. */
static double uniform(uint64_t seed, uint64_t n) {
  uint64_t z = seed + (n + 1) * 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return (double)((z ^ (z >> 31)) >> 11) / 9007199254740992.0;
}

/* Matrices uniform with standard deviation 0.02, norms one, biases zero. */
static th_status init(th_trainer_inst *t, uint64_t seed, th_error *e) {
  uint64_t i, j;
  if (t == NULL) return fail(e, TH_E_ARG, "the instance is null");
  if (t->ready) return fail(e, TH_E_STATE, "init() is called once");
  for (i = 0; i < t->tensors.count; ++i) {
    const tensor *k = &t->tensors.item[i];
    uint64_t elements = k->dim[0] * (k->rank == 2 ? k->dim[1] : 1);
    for (j = 0; !k->loaded && j < elements; ++j)
      t->w[k->at + j] = k->rank == 2 ? (float)(0.02 * 3.4641016 * (uniform(seed, k->at + j) - 0.5)) : strstr(k->name, "bias") != NULL ? 0 : 1;
  }
  t->ready = 1;
  return TH_OK;
}

/* Loss of n targets, and their gradient where `learn`. logits[v] = head[v] . x, x = embedding[token]; the gradient of a logit
 * is (p - 1[v is the target]) / counted. */
static th_status pass(th_trainer_inst *t, const th_step *s, int learn, double *loss, uint64_t *counted, th_error *e) {
  float *E = t->w, *W = t->tied ? E : t->w + t->tensors.elements - t->table, *gE = t->g, *gW = t->tied ? gE : t->g + t->table;
  uint64_t n = (uint64_t)s->batch * s->seq, i, v, h;
  *loss = 0;
  *counted = 0;
  for (i = 0; i < n; ++i) {
    if (s->tokens[i] < 0 || (uint64_t)s->tokens[i] >= t->V) return fail(e, TH_E_ARG, "a token is outside the vocabulary");
    if (s->targets[i] != -100 && (s->targets[i] < 0 || (uint64_t)s->targets[i] >= t->V)) return fail(e, TH_E_ARG, "a target is outside the vocabulary");
    *counted += s->targets[i] != -100;
  }
  for (i = 0; i < n; ++i) {
    const float *x = E + (uint64_t)s->tokens[i] * t->H;
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
    for (v = 0; learn && v < t->V; ++v) {
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

/* One table of n parameters that begin at `at`; g: its gradients, already to be scaled by clip. Decay is apart from the moments. */
static void update(th_trainer_inst *t, uint64_t at, const float *g, uint64_t n, double clip, const th_step *s) {
  const th_run *r = &t->run;
  double step = (double)s->step_index + 1, c1 = 1 - pow(r->beta1, step), c2 = 1 - pow(r->beta2, step);
  float *w = t->w + at, *m1 = t->moments >= 1 ? t->m + at : NULL, *m2 = t->moments >= 2 ? t->m + t->tensors.elements + at : NULL;
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

static th_status step(th_trainer_inst *t, const th_step *s, th_step_out *out, th_error *e) {
  uint64_t learns, i;
  int learn;
  struct timespec begin, end;
  double squares = 0;
  th_status status;
  if (t == NULL || s == NULL || out == NULL) return fail(e, TH_E_ARG, "instance, step or its result is null");
  learns = t->table * (t->tied ? 1 : 2);
  learn = (s->flags & TH_STEP_EVALUATE) == 0;
  if (!t->ready) return fail(e, TH_E_STATE, "init() comes first");
  if (s->seq != t->run.seq_len || s->batch == 0 || s->batch > (learn ? t->run.micro_batch * t->run.accumulate : t->run.micro_batch) ||
      (learn && s->batch != t->run.micro_batch * t->run.accumulate) || s->tokens == NULL || s->targets == NULL)
    return fail(e, TH_E_ARG, "a batch that is not the run's");
  timespec_get(&begin, TIME_UTC);
  if (learn) memset(t->g, 0, learns * sizeof(float));
  if ((status = pass(t, s, learn, &out->loss, &out->tokens_counted, e)) != TH_OK) return status;
  for (i = 0; learn && i < learns; ++i) squares += (double)t->g[i] * t->g[i];
  out->grad_norm = sqrt(squares);
  if (!isfinite(out->loss) || !isfinite(out->grad_norm)) return fail(e, TH_E_NONFINITE, "the loss or its gradient is not finite");
  if (learn) {
    double clip = t->run.clip_norm > 0 ? fmin(1, t->run.clip_norm / (out->grad_norm + 1e-6)) : 1;
    update(t, 0, t->g, t->table, clip, s);
    if (!t->tied) update(t, t->tensors.elements - t->table, t->g + t->table, t->table, clip, s);
  }
  timespec_get(&end, TIME_UTC);
  out->wall_ns = (uint64_t)((end.tv_sec - begin.tv_sec) * 1000000000LL + end.tv_nsec - begin.tv_nsec);
  return TH_OK;
}

static th_status save(th_trainer_inst *t, uint32_t scope, th_tensor_sink *sink, th_error *e) {
  float *from = t == NULL ? NULL : block(t, scope);
  th_status s = TH_OK;
  uint64_t i;
  if (t == NULL || sink == NULL) return fail(e, TH_E_ARG, "instance or sink is null");
  if (!t->ready) return fail(e, TH_E_STATE, "init() comes first");
  if (from == NULL) return fail(e, TH_E_ARG, "this run has no such tensors");
  for (i = 0; s == TH_OK && i < t->tensors.count; ++i) {
    const tensor *k = &t->tensors.item[i];
    th_tensor out;
    memset(&out, 0, sizeof out);
    out.struct_size = sizeof out;
    out.dtype = TH_DT_F32;
    out.rank = k->rank;
    out.dim[0] = k->dim[0];
    out.dim[1] = k->dim[1];
    out.name = k->name;
    out.data = from + k->at;
    out.count = k->dim[0] * (k->rank == 2 ? k->dim[1] : 1);
    s = sink->tensor(sink, &out);
  }
  return s;
}

static const void *get(const char *interface_id) {
  static const th_trainer table = {sizeof(th_trainer), 0, probe, profile, plan, create, load, init, step, save, NULL, NULL, NULL, destroy};
  return strcmp(interface_id, TH_TRAINER_ID) == 0 ? &table : NULL;
}

const th_plugin *TH_ENTRY(void) {
  static const th_plugin plugin = {sizeof(th_plugin), TH_ABI_MAJOR, TH_ABI_MINOR, "@NAME@", "0.1.0", NULL, NULL, get};
  return &plugin;
}
