/* An estimator in C11 for the fictional family "glacier": a decoder whose L layers share U sets of weights;
 * layer i uses set i % U. Weights, gradients and moments exist for U layers, activations for all L. U is
 * "unique_layers" of config.json, a key that th_model does not have. Numbers computed by hand: README.md. */
#include <stdio.h>
#include <string.h>
#include <trainhost/trainhost.h>

TH_MANIFEST(
    "id = \"glacier\"\n"
    "version = \"1.0.0\"\n"
    "kind = \"estimator\"\n"
    "summary = \"decoders whose layers share weights: an example\"\n"
    "families = [\"glacier\"]\n");

/* Saturating arithmetic: a size of 2^63 or more becomes INT64_MAX, which is an error in estimate(). */
static uint64_t mul(uint64_t a, uint64_t b) {
  uint64_t c;
  return __builtin_mul_overflow(a, b, &c) || c > INT64_MAX ? INT64_MAX : c;
}
static uint64_t add(uint64_t a, uint64_t b) { return a + b > INT64_MAX ? INT64_MAX : a + b; }

/* Numbers that the optimizer stores per parameter; -1: unsupported optimizer. */
static int count_moments(const th_run* r) {
  return r->optimizer == TH_OPT_ADAMW          ? 2
         : r->optimizer == TH_OPT_SGD_MOMENTUM ? 1
         : r->optimizer == TH_OPT_SGD          ? 0
                                               : -1;
}

/* Supported runs: f32 on one rank, all parameters trained, recompute none or full. For other runs the host
 * asks the next estimator. */
static int is_supported(const th_run* r) {
  int one_rank = r->data_parallel <= 1 && r->tensor_parallel <= 1 && r->pipeline_parallel <= 1 &&
                 r->context_parallel <= 1;
  int f32 = r->dt_weight == TH_DT_F32 && r->dt_grad == TH_DT_F32 && r->dt_moment == TH_DT_F32 &&
            r->dt_compute == TH_DT_F32;
  return one_rank && f32 && r->dt_master == 0 && r->mode == TH_MODE_FULL && count_moments(r) >= 0 &&
         (r->recompute == TH_RC_NONE || r->recompute == TH_RC_FULL);
}

static int32_t match(const th_model* m, const th_run* r) {
  return m != NULL && r != NULL && m->family != NULL && strcmp(m->family, "glacier") == 0 && is_supported(r)
             ? 1000
             : 0;
}

static th_status fail(th_error* e, th_status code, const char* message) {
  if (e != NULL) {
    e->code = code;
    snprintf(e->message, sizeof e->message, "%s", message);
  }
  return code;
}

/* Number of weight sets U; without the key L. 0: the key is invalid. */
static uint64_t unique_layers(const th_host* host, const th_model* m) {
  const th_config* config = host == NULL ? NULL : (const th_config*)host->extension(host, TH_CONFIG_ID);
  int64_t unique = m->layers;
  if (config != NULL && config->integer(config, m, "unique_layers", &unique) == TH_E_ARG) return 0;
  return unique < 1 || unique > (int64_t)m->layers ? 0 : (uint64_t)unique;
}

/* State of the report: number of nodes sent, first error of the sink. */
typedef struct report {
  th_mem_sink* sink;
  uint32_t nodes;
  th_status status;
} report;

/* Sends one entry; the true value is claimed to be between lo and hi (lo == hi == bytes: exact). */
static void send_entry(report* t, uint32_t component, const char* name, const char* formula, uint64_t bytes,
                       uint64_t lo, uint64_t hi) {
  th_mem n;
  if (t->status != TH_OK || bytes == 0) return;
  memset(&n, 0, sizeof n); /* a field that is zero is unset */
  n.struct_size = sizeof n;
  n.id = ++t->nodes;
  n.tier = TH_TIER_HOST;
  n.component = component;
  n.claim = lo == hi ? TH_EXACT : TH_APPROXIMATION;
  n.phases = component == TH_MEM_ACTIVATIONS ? TH_PH_FORWARD | TH_PH_BACKWARD : 0;
  n.bytes = bytes;
  n.lo = lo;
  n.hi = hi;
  n.name = name;
  n.formula = formula;
  t->status = t->sink->node(t->sink, &n);
}

static th_status estimate(const th_host* host, const th_model* m, const th_run* r, const th_profile* p,
                          th_mem_sink* sink, th_mem_summary* summary, th_error* error) {
  report t = {sink, 0, TH_OK};
  uint64_t H, q, kv, I, U, layer, table, bytes, tokens, kept, state;
  (void)p;
  if (m == NULL || r == NULL || sink == NULL) return fail(error, TH_E_ARG, "model, run or sink is null");
  if (!is_supported(r))
    return fail(error, TH_E_UNSUPPORTED, "glacier supports f32 on one rank with adamw, sgd or sgd-momentum");
  if (match(m, r) == 0) return fail(error, TH_E_UNSUPPORTED, "glacier covers models of the family glacier");
  if ((U = unique_layers(host, m)) == 0)
    return fail(error, TH_E_UNSUPPORTED, "unique_layers in config.json is not in 1 to num_hidden_layers");

  H = m->hidden, I = m->intermediate, q = mul(m->heads, m->head_dim), kv = mul(m->kv_heads, m->head_dim);
  layer = add(mul(2, H), add(mul(H, add(mul(2, q), mul(2, kv))), mul(3, mul(H, I))));
  table = mul(m->vocab, H);
  bytes = mul(4, add(add(H, mul(m->flags & TH_MODEL_TIED_EMBEDDINGS ? 1 : 2, table)), mul(U, layer)));
  tokens = mul(r->micro_batch, r->seq_len);
  /* Per token, a layer keeps four rows of H, q and the attention output, k and v, gate, up and their product.
   * With full recompute each layer keeps its input, and one layer at a time the rest. */
  kept = add(mul(4, H), add(mul(2, add(q, kv)), mul(3, I)));
  kept = r->recompute == TH_RC_FULL ? add(mul(m->layers, H), kept) : mul(m->layers, kept);
  kept = mul(4, mul(tokens, kept));
  if (mul(bytes, 2) == INT64_MAX || mul(kept, 2) == INT64_MAX)
    return fail(error, TH_E_UNSUPPORTED, "the sizes of the model exceed 63 bits");

  send_entry(&t, TH_MEM_WEIGHTS, "weights", "(2VH + H + U*layer)*4", bytes, bytes, bytes);
  send_entry(&t, TH_MEM_GRADIENTS, "gradients", "as weights: layers that share weights share gradients",
             bytes, bytes, bytes);
  state = bytes * (uint64_t)count_moments(r);
  send_entry(&t, TH_MEM_OPTIMIZER_STATE, "moments", "moments * weights", state, state, state);
  send_entry(&t, TH_MEM_ACTIVATIONS, "activations", "L*B*S*(4H + 2AD + 2KD + 3I)*4", kept, kept / 2,
             mul(kept, 2));
  if (t.status == TH_OK && sink->note != NULL) t.status = sink->note(sink, "Logits are not counted.");
  if (summary != NULL) summary->claim = TH_APPROXIMATION;
  return t.status;
}

static const void* get(const char* interface_id) {
  static const th_estimator table = {sizeof(th_estimator), 0, match, estimate};
  return strcmp(interface_id, TH_ESTIMATOR_ID) == 0 ? &table : NULL;
}

const th_plugin* TH_ENTRY(void) {
  static const th_plugin plugin = {sizeof(th_plugin), TH_ABI_MAJOR, TH_ABI_MINOR, "glacier",
                                   "1.0.0",           NULL,         NULL,         get};
  return &plugin;
}
