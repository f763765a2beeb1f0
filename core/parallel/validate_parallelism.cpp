// Checks that an architecture allows the parallelism of a run. Conflicts between settings alone:
// core/model/run_rules.hpp. Every error has the run-file key, its value and the nearest valid values. Order:
// zeros first, since later rules divide by these numbers, then sizes, then the model against the ranks.
#include <numeric>

#include "core/base/error.hpp"
#include "core/base/text.hpp"
#include "core/model/run_rules.hpp"
#include "core/parallel/pipeline_stage.hpp"
#include "core/parallel/rank_memory.hpp"

namespace trainhost::parallel {
namespace {

std::string n(std::uint64_t v) { return std::to_string(v); }

/// Throws unless `value` divides `whole` (or, if heads may be replicated, is a multiple of it).
/// whole = 0: the layer has no such part, and nothing is split.
void divides(const char* key, std::uint64_t value, std::uint64_t whole, const std::string& of,
             bool replicable = false) {
  if (whole == 0 || whole % value == 0 || (replicable && value % whole == 0)) return;
  throw usage_error(std::string(key) + " = " + n(value) + " does not divide " + n(whole) + " " + of + "; " +
                    nearest_divisors(value, whole));
}

void positive(const char* key, std::uint64_t value) {
  if (value == 0) throw usage_error(std::string(key) + " = 0: expected at least 1");
}

/// Limits dimensions so that the products of widths in rank_weights.hpp cannot overflow 64 bits.
void validate_dimensions(const model::Architecture& a) {
  // A width is a product of two dimensions, so at most 2^48; larger products saturate (saturating_size.hpp).
  // Published dimensions are below 2^16.
  constexpr std::uint64_t kWide = 1ull << 24;
  const auto small = [](const char* what, std::uint64_t v) {
    if (v > kWide)
      throw Error(Exit::kUsage,
                  std::string(what) + " = " + n(v) + " is too large: expected at most " + n(kWide));
  };
  small("hidden size", a.hidden);
  for (const model::LayerRun& run : a.layers) {
    const model::Attention& t = run.layer.attention;
    for (std::uint64_t v : {t.heads, t.kv_heads, t.head_dim, t.q_lora_rank, t.kv_lora_rank, t.rope_head_dim,
                            t.nope_head_dim, t.v_head_dim})
      small("a dimension of attention", v);
    const model::LinearAttention& n = run.layer.linear;
    for (std::uint64_t v :
         {n.key_heads, n.value_heads, n.key_dim, n.value_dim, n.kernel, n.chunk, n.gate_rank})
      small(n.key_dim ? "a dimension of linear attention" : "a dimension of the short convolution", v);
    small("the width of the experts' input", run.layer.experts.latent);
    small("the width of a per-layer embedding", run.layer.per_layer_width);
    small("an MLP's width",
          std::max({run.layer.mlp.width, run.layer.experts.each.width, run.layer.experts.shared.width}));
    small("the number of experts", run.layer.experts.count);
  }
}

// Every kind of layer must be divisible: a rank has a part of each matrix of each of its layers.
void tensor(const model::Architecture& a, const RunSpec& r) {
  const std::uint64_t tp = r.parallel.tensor;
  for (const model::LayerRun& run : a.layers) {
    const model::Layer& l = run.layer;
    divides("parallel.tensor", tp, l.attention.heads, "heads");
    // With fewer KV heads than ranks each head is on several ranks. MLA has no KV heads to split: its cache
    // is on every rank.
    if (!l.attention.latent) divides("parallel.tensor", tp, l.attention.kv_heads, "key-value heads", true);
    divides("parallel.tensor", tp, l.linear.value_heads,
            l.linear.key_dim ? "heads of linear attention" : "channels of the short convolution");
    divides("parallel.tensor", tp, l.linear.key_heads, "key heads of linear attention", true);
    divides("parallel.tensor", tp, l.mlp.width, "columns of the MLP");
    divides(r.parallel.expert_tensor != 0 ? "plan.expert_tensor" : "parallel.tensor",
            expert_tensor_ranks(r.parallel), l.experts.each.width, "columns of an expert");
    divides("parallel.tensor", tp, l.experts.shared.width, "columns of the shared expert");
  }
}

void experts(const model::Architecture& a, const RunSpec& r) {
  const std::uint64_t ep = r.parallel.expert;
  if (ep == 1) return;
  for (const model::LayerRun& run : a.layers) {
    const std::uint64_t count = run.layer.experts.count;
    // The nearest value that the ranks allow too.
    if (count % ep)
      throw usage_error("parallel.expert = " + n(ep) + " does not divide " + n(count) + " experts; " +
                        nearest_divisors(ep, std::gcd(experts_of(a), expert_groups(r.parallel))));
  }
}

/// Rejects layers of the first or last stage that leave another stage without any, or that its chunks cannot
/// divide.
void given_stages(const RunSpec& r, std::uint64_t layers) {
  const std::uint64_t first = r.parallel.first_stage_layers, last = r.parallel.last_stage_layers,
                      stages = r.parallel.pipeline, chunks = r.parallel.virtual_stages;
  if (Pipeline{stages, chunks, r.accumulate, layers, first, last}.layers_suffice()) return;
  const std::string first_key = "plan.first_stage_layers", last_key = "plan.last_stage_layers";
  if (stages == 1)
    throw usage_error((first != 0 ? first_key : last_key) + " needs parallel.pipeline > 1; it is 1");
  for (const auto& [key, value] : {std::pair{first_key, first}, {last_key, last}})
    if (value % chunks)
      throw usage_error(key + " = " + n(value) + " cannot be divided over " + n(chunks) +
                        " chunks (parallel.interleave); use a multiple of " + n(chunks));
  const std::string given = (first != 0 ? first_key + " = " + n(first) : "") +
                            (first != 0 && last != 0 ? " and " : "") +
                            (last != 0 ? last_key + " = " + n(last) : "");
  const std::uint64_t even = stages - (first != 0) - (last != 0);
  if (even == 0 || first + last > layers)
    throw usage_error(given + " are " + n(first + last) + " layers, but the model has " + n(layers));
  throw usage_error(given + (first != 0 && last != 0 ? " leave " : " leaves ") + n(layers - first - last) +
                    " of " + n(layers) + " layers to " + n(even) + " other stages; use " +
                    n(layers / stages) + ", as many as they have");
}

void pipeline(const model::Architecture& a, const RunSpec& r) {
  std::uint64_t layers = 0;
  for (const model::LayerRun& run : a.layers) layers += run.count;
  const std::uint64_t pp = r.parallel.pipeline, chunks = pp * r.parallel.virtual_stages;
  // Every chunk (virtual stage) needs at least one layer. Layers that do not divide evenly are allowed.
  if (pp > layers)
    throw usage_error("parallel.pipeline = " + n(pp) + " is more than the " + n(layers) + " layers; use " +
                      n(layers));
  if (chunks > layers)
    throw usage_error("parallel.interleave = " + n(r.parallel.virtual_stages) +
                      " with parallel.pipeline = " + n(pp) + " needs " + n(chunks) + " chunks of " +
                      n(layers) + " layers; use " + n(layers / pp));
  given_stages(r, layers);
}

}  // namespace

void validate(const model::Architecture& a, const RunSpec& r) {
  const MemoryPolicy& memory = r.memory;
  positive("parallel.data", r.parallel.data), positive("parallel.tensor", r.parallel.tensor);
  positive("parallel.pipeline", r.parallel.pipeline), positive("parallel.context", r.parallel.context);
  positive("parallel.expert", r.parallel.expert), positive("parallel.interleave", r.parallel.virtual_stages);
  positive("parallel.vocab_multiple", memory.vocab_multiple), positive("plan.kv_page", memory.kv_page);
  positive("train.recompute_every", memory.recompute_every), positive("train.micro_batch", r.micro_batch);
  positive("train.grad_accum", r.accumulate), positive("data.seq_len", r.seq_len);
  validate_dimensions(a);
  if (r.parallel.zero > 3) throw usage_error("parallel.zero = " + n(r.parallel.zero) + ": expected 0 to 3");
  tensor(a, r);
  experts(a, r);
  pipeline(a, r);
  // No key is open: all settings have values here.
  // Before the numbers of ranks, because no number of them would help.
  if (r.parallel.expert > 1 && experts_of(a) == 0)
    throw usage_error("parallel.expert = " + n(r.parallel.expert) + ", but " +
                      (a.name.empty() ? "this model" : a.name) + " has no experts; use 1");
  if (const std::vector<Conflict> conflicts = find_conflicts(r, {}, experts_of(a)); !conflicts.empty())
    throw usage_error(conflicts.front().sentence, conflicts.front().hint);
  // A planner can set the mode without a rank.
  if (adapts(r) && r.lora_rank == 0)
    throw usage_error("lora.rank = 0: expected at least 1; 8 to 64 are usual");
}

}  // namespace trainhost::parallel
