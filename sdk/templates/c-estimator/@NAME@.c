/* @NAME@: memory of a training run of the family @FAMILY@. Plain C11, uses only the SDK's headers. Reports
 * weights, gradients and optimizer state exactly, activations by formula, logits as an upper bound. Start at
 * layer_parameters(). */
#include <stdio.h>
#include <string.h>
#include <trainhost/trainhost.h>

TH_MANIFEST(
    "id = \"@NAME@\"\n"
    "version = \"0.1.0\"\n"
    "kind = \"estimator\"\n"
    "summary = \"memory of the @FAMILY@ family\"\n"
    "families = [\"@FAMILY@\"]\n");

/* Saturating arithmetic: a size of 2^63 or more becomes INT64_MAX, which is an error in estimate(). */
static uint64_t mul(uint64_t a, uint64_t b) {
  uint64_t c;
  return __builtin_mul_overflow(a, b, &c) || c > INT64_MAX ? INT64_MAX : c;
}
static uint64_t add(uint64_t a, uint64_t b) { return a + b > INT64_MAX ? INT64_MAX : a + b; }

/* Bytes of n elements of a type; 0 for the type 0 ("none"). */
static uint64_t bytes_of(uint64_t n, uint32_t dtype) {
  switch (dtype) {
    case TH_DT_F64:
      return mul(n, 8);
    case TH_DT_F32:
    case TH_DT_TF32:
      return mul(n, 4);
    case TH_DT_F16:
    case TH_DT_BF16:
      return mul(n, 2);
    case TH_DT_F8:
    case TH_DT_I8:
    case TH_DT_U8:
      return n;
    default:
      return 0;
  }
}

/* Numbers that the optimizer stores per parameter; -1: unsupported optimizer. */
static int count_moments(const th_run* r) {
  return r->optimizer == TH_OPT_ADAMW          ? 2
         : r->optimizer == TH_OPT_SGD_MOMENTUM ? 1
         : r->optimizer == TH_OPT_SGD          ? 0
                                               : -1;
}

static int32_t match(const th_model* m, const th_run* r) {
  int one_rank;
  if (m == NULL || r == NULL || m->family == NULL) return 0;
  one_rank = r->data_parallel <= 1 && r->tensor_parallel <= 1 && r->pipeline_parallel <= 1;
  if (strcmp(m->family, "@FAMILY@") != 0 || r->mode != TH_MODE_FULL || !one_rank || count_moments(r) < 0)
    return 0;
  return r->recompute == TH_RC_NONE || r->recompute == TH_RC_FULL ? 1000 : 0;
}

/* Parameters of one layer: two norms; q, k, v and o; gate, up and down. Change this for your architecture. */
static uint64_t layer_parameters(const th_model* m) {
  uint64_t h = m->hidden, q = mul(m->heads, m->head_dim), kv = mul(m->kv_heads, m->head_dim);
  return add(mul(2, h), add(mul(h, add(mul(2, q), mul(2, kv))), mul(3, mul(h, m->intermediate))));
}

/* Elements that a layer keeps per token for its backward pass: its input, the outputs of two norms and the
 * residual (H each), q and the attention output, k and v, gate, up and their product. With recompute "full"
 * only its input. */
static uint64_t layer_activations(const th_model* m, const th_run* r) {
  uint64_t h = m->hidden, q = mul(m->heads, m->head_dim), kv = mul(m->kv_heads, m->head_dim);
  if (r->recompute == TH_RC_FULL) return h;
  return add(mul(4, h), add(mul(2, add(q, kv)), mul(3, m->intermediate)));
}

/* State of the report: last id, first error of the sink. */
typedef struct tree {
  th_mem_sink* sink;
  uint32_t id;
  th_status status;
  int too_large;
} tree;

static void send_entry(tree* t, const char* name, uint32_t component, uint32_t claim, uint64_t bytes,
                       uint64_t lo, uint64_t hi, const char* formula) {
  th_mem n;
  if (bytes == INT64_MAX || hi == INT64_MAX) t->too_large = 1;
  if (t->status != TH_OK || t->too_large || bytes == 0) return;
  memset(&n, 0, sizeof n);
  n.struct_size = sizeof n;
  n.id = ++t->id;
  n.tier = TH_TIER_HOST;
  n.component = component;
  n.claim = claim;
  n.bytes = bytes;
  n.lo = lo;
  n.hi = hi;
  n.name = name;
  n.formula = formula;
  t->status = t->sink->node(t->sink, &n);
}

static th_status fail(th_error* e, th_status code, const char* message) {
  if (e != NULL) {
    e->code = code;
    snprintf(e->message, sizeof e->message, "%s", message);
  }
  return code;
}

static th_status estimate(const th_host* host, const th_model* m, const th_run* r, const th_profile* p,
                          th_mem_sink* sink, th_mem_summary* summary, th_error* error) {
  tree t = {sink, 0, TH_OK, 0};
  if (m == NULL || r == NULL || sink == NULL) return fail(error, TH_E_ARG, "model, run or sink is null");
  uint64_t table = mul(m->vocab, m->hidden),
           tables = m->flags & TH_MODEL_TIED_EMBEDDINGS ? table : mul(2, table);
  uint64_t parameters = add(add(tables, m->hidden), mul(m->layers, layer_parameters(m)));
  uint64_t tokens = mul(r->micro_batch, r->seq_len);
  uint64_t kept = bytes_of(mul(mul(m->layers, tokens), layer_activations(m, r)), r->dt_compute),
           logits = mul(mul(tokens, m->vocab), 4);
  uint64_t weights = bytes_of(parameters, r->dt_weight), gradients = bytes_of(parameters, r->dt_grad);
  uint64_t masters = bytes_of(parameters, r->dt_master),
           state = count_moments(r) < 0 ? 0 : mul(count_moments(r), bytes_of(parameters, r->dt_moment));
  (void)host, (void)p;
  if (count_moments(r) < 0)
    return fail(error, TH_E_UNSUPPORTED, "@NAME@ supports adamw, sgd and sgd-momentum");
  if (match(m, r) == 0) return fail(error, TH_E_UNSUPPORTED, "@NAME@ does not cover this model and run");
  send_entry(&t, "weights", TH_MEM_WEIGHTS, TH_EXACT, weights, weights, weights, "P*bytes");
  send_entry(&t, "master weights", TH_MEM_MASTER_WEIGHTS, TH_EXACT, masters, masters, masters, "P*bytes");
  send_entry(&t, "gradients", TH_MEM_GRADIENTS, TH_EXACT, gradients, gradients, gradients, "P*bytes");
  send_entry(&t, "moments", TH_MEM_OPTIMIZER_STATE, TH_EXACT, state, state, state, "moments*P*bytes");
  send_entry(&t, "activations", TH_MEM_ACTIVATIONS, TH_APPROXIMATION, kept, kept / 2, mul(kept, 2),
             "L*B*S*(4H + 2AD + 2KD + 3I)*bytes");
  send_entry(&t, "logits", TH_MEM_LOGITS, TH_UPPER_BOUND, logits, 0, logits, "B*S*V*4");
  if (t.too_large) return fail(error, TH_E_UNSUPPORTED, "the sizes of the model exceed 63 bits");
  if (t.status == TH_OK && sink->note != NULL)
    t.status = sink->note(sink, "Activations are those of an ordinary transformer layer.");
  if (summary != NULL) summary->claim = TH_APPROXIMATION;
  return t.status;
}

static const void* get(const char* interface_id) {
  static const th_estimator table = {sizeof(th_estimator), 0, match, estimate};
  return strcmp(interface_id, TH_ESTIMATOR_ID) == 0 ? &table : NULL;
}

const th_plugin* TH_ENTRY(void) {
  static const th_plugin plugin = {sizeof(th_plugin), TH_ABI_MAJOR, TH_ABI_MINOR, "@NAME@",
                                   "0.1.0",           NULL,         NULL,         get};
  return &plugin;
}
