/* An estimator in plain C that uses only the SDK's headers: a fixed number of bytes per parameter (option
 * "bytes_per_parameter", default 16), as a tree of embedding, layers, norm and head. Activations are not
 * counted. It tests the interface from a language other than C++. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <trainhost/trainhost.h>

TH_MANIFEST(
    "id = \"rule-of-thumb\"\n"
    "version = \"1.0.0\"\n"
    "kind = \"estimator\"\n"
    "summary = \"bytes per parameter\"\n"
    "families = [\"llama\", \"mistral\"]\n"
    "options = [\"bytes_per_parameter\"]\n"
    "priority = -10\n");

static int32_t match(const th_model* m, const th_run* r) {
  if (m == NULL || r == NULL || m->family == NULL) return 0;
  return strcmp(m->family, "llama") == 0 || strcmp(m->family, "mistral") == 0 ? 10 : 0;
}

static th_status fail(th_error* e, th_status code, const char* message) {
  if (e != NULL && TH_HAS(e, th_error, message)) {
    e->code = code;
    snprintf(e->message, sizeof e->message, "%s", message);
  }
  return code;
}

/* Product of four sizes; *fits becomes 0 if it reaches 2^58. The sum of five such entries, doubled for hi,
 * then fits in 63 bits. */
static uint64_t product(uint64_t a, uint64_t b, uint64_t c, uint64_t d, int* fits) {
  uint64_t n = 0;
  if (__builtin_mul_overflow(a, b, &n) || __builtin_mul_overflow(n, c, &n) ||
      __builtin_mul_overflow(n, d, &n) || n >> 58)
    *fits = 0;
  return n;
}

/* Parameters of one layer divided by the hidden size: q and o; k and v; gate, up and down; two norms. */
static uint64_t layer_width(const th_model* m, int* fits) {
  uint64_t q = product(m->heads, m->head_dim, 2, 1, fits), kv = product(m->kv_heads, m->head_dim, 2, 1, fits);
  uint64_t mlp = product(m->intermediate, 3, 1, 1, fits);
  return *fits ? q + kv + mlp + 2 : 0;
}

static th_status send(th_mem_sink* sink, uint32_t id, uint32_t parent, const char* name, const char* formula,
                      uint64_t bytes) {
  th_mem n;
  memset(&n, 0, sizeof n);
  n.struct_size = sizeof n;
  n.id = id;
  n.parent = parent;
  n.tier = TH_TIER_HOST;
  n.component = TH_MEM_WEIGHTS;
  n.claim = TH_APPROXIMATION;
  n.bytes = bytes;
  n.lo = bytes / 2;
  n.hi = bytes * 2;
  n.name = name;
  n.formula = formula;
  return sink->node(sink, &n);
}

static th_status estimate(const th_host* host, const th_model* m, const th_run* r, const th_profile* p,
                          th_mem_sink* sink, th_mem_summary* summary, th_error* error) {
  const char* option;
  uint64_t bytes_per_parameter = 16, table, layers, norm;
  int fits = 1;
  th_status s;
  (void)p;
  if (host == NULL || m == NULL || r == NULL || sink == NULL)
    return fail(error, TH_E_ARG, "host, model, run or sink is null");
  if (m->family == NULL || match(m, r) == 0)
    return fail(error, TH_E_UNSUPPORTED, "only the families llama and mistral are supported");
  if (m->vocab == 0 || m->hidden == 0 || m->layers == 0)
    return fail(error, TH_E_UNSUPPORTED, "the model has no vocabulary, hidden size or layers");
  option = host->option(host, "bytes_per_parameter");
  if (option != NULL) bytes_per_parameter = strtoull(option, NULL, 10);
  if (bytes_per_parameter == 0) return fail(error, TH_E_ARG, "bytes_per_parameter must be a positive number");
  if (host->cancelled(host)) return fail(error, TH_E_CANCELLED, "cancelled");
  host->log(host, TH_LOG_DEBUG, "estimate", "counting");
  table = product(m->vocab, m->hidden, bytes_per_parameter, 1, &fits);
  layers = product(m->layers, m->hidden, layer_width(m, &fits), bytes_per_parameter, &fits);
  norm = product(m->hidden, bytes_per_parameter, 1, 1, &fits);
  if (!fits) return fail(error, TH_E_UNSUPPORTED, "the sizes of the model exceed 63 bits");
  if ((s = send(sink, 1, 0, "state", NULL, 0)) != TH_OK) return s;
  if ((s = send(sink, 2, 1, "embedding", "V*H*bytes", table)) != TH_OK) return s;
  if ((s = send(sink, 3, 1, "layers", "L*(2H*A*D + 2H*K*D + 3H*I + 2H)*bytes", layers)) != TH_OK) return s;
  if ((s = send(sink, 4, 1, "norm", "H*bytes", norm)) != TH_OK) return s;
  if (!(m->flags & TH_MODEL_TIED_EMBEDDINGS))
    if ((s = send(sink, 5, 1, "head", "V*H*bytes", table)) != TH_OK) return s;
  if (TH_HAS(sink, th_mem_sink, note) && sink->note != NULL) sink->note(sink, "Activations are not counted.");
  if (summary != NULL && TH_HAS(summary, th_mem_summary, claim)) summary->claim = TH_APPROXIMATION;
  return TH_OK;
}

static const void* get(const char* interface_id) {
  static const th_estimator table = {sizeof(th_estimator), 0, match, estimate};
  return strcmp(interface_id, TH_ESTIMATOR_ID) == 0 ? &table : NULL;
}

const th_plugin* TH_ENTRY(void) {
  static const th_plugin plugin = {sizeof(th_plugin), TH_ABI_MAJOR, TH_ABI_MINOR, "rule-of-thumb",
                                   "1.0.0",           NULL,         NULL,         get};
  return &plugin;
}
