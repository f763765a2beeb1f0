// Recompute policies: values do not change, memory shrinks, and exactly the documented buffers are kept.
#include <boost/test/unit_test.hpp>
#include <map>

#include "core/placement/check_plan.hpp"
#include "core/step/buffer_names.hpp"
#include "core/step/recompute.hpp"
#include "core/step/scratch_sizes.hpp"
#include "tests/core/placement/cases.hpp"

using namespace trainhost;
using namespace trainhost::placement;
using namespace trainhost::placement::test;

namespace {

/// Runs the micro section on hashes: every value is a hash of the operation and its inputs. Two programs with
/// equal hashes in all gradients compute the same bits.
std::map<std::string, std::uint64_t> symbols_of_gradients(const Program& p) {
  std::vector<std::uint64_t> value(p.buffers.size(), 0);
  for (std::size_t b = 0; b < value.size(); ++b)
    if (p.buffers[b].persistent || p.buffers[b].storage == Storage::kExternal)
      value[b] = std::hash<std::string>{}(p.buffers[b].name());
  const Section s = p.section(SectionKind::kMicro);
  for (std::uint32_t i = s.begin; i < s.end; ++i) {
    const Op& o = p.ops[i];
    std::uint64_t h =
        static_cast<std::uint64_t>(o.kind) * 0x9e3779b97f4a7c15ULL + static_cast<std::uint64_t>(o.layer + 2);
    h += o.flags & (kFirstWrite | kFreshDx);
    for (std::size_t k = 0; k < o.ins; ++k) {
      const bool scratch = op_info(o.kind).scratch_mask >> k & 1;
      h = (h ^ (o.in[k] == kNoBuffer || scratch ? 1 : value[o.in[k]])) * 0x100000001b3ULL + k;
    }
    for (std::size_t k = 0; k < o.outs; ++k) value[o.out[k]] = (h + k + 1) * 0xff51afd7ed558ccdULL;
  }
  std::map<std::string, std::uint64_t> out;
  for (std::size_t b = 0; b < value.size(); ++b)
    if (p.buffers[b].component == Component::kGradients) out[p.buffers[b].name()] = value[b];
  return out;
}

Program with(Case c, Recompute r) {
  c.run.recompute = r;
  return c.build();
}

/// Bytes of transient buffers that are live from the forward into the backward pass.
std::uint64_t kept_bytes(const Program& p) {
  const std::vector<Lifetime> lifetime = lifetimes(p);
  std::uint32_t turn = 0;  // the head: first operation that is not forward
  while (p.ops[turn].phase == kForward) ++turn;
  std::uint64_t sum = 0;
  for (std::size_t b = 0; b < p.buffers.size(); ++b)
    if (!p.buffers[b].persistent && p.buffers[b].storage == Storage::kArena && lifetime[b].first < turn &&
        lifetime[b].last > turn)
      sum += p.buffers[b].bytes();
  return sum;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(recompute)

BOOST_AUTO_TEST_CASE(no_policy_changes_the_value_of_any_gradient) {
  for (std::uint64_t seed = 0; seed < 80; ++seed) {
    Case c = random_case(seed);
    c.run.mode = RunMode::kFull;
    const auto none = symbols_of_gradients(with(c, Recompute::kNone));
    BOOST_CHECK(!none.empty());
    BOOST_CHECK(none == symbols_of_gradients(with(c, Recompute::kSelective)));
    BOOST_CHECK(none == symbols_of_gradients(with(c, Recompute::kFull)));
    const std::uint32_t l = c.model.layers;
    c.run.recompute_layers = {l / 3, (l + 1) / 3, l / 4};
    BOOST_CHECK(none == symbols_of_gradients(with(c, Recompute::kLayers)));
  }
}

BOOST_AUTO_TEST_CASE(full_needs_at_most_selective_which_needs_at_most_none) {
  for (std::uint64_t seed = 0; seed < 150; ++seed) {
    Case c = random_case(seed);
    c.run.mode = RunMode::kFull;
    const std::uint64_t none = place(with(c, Recompute::kNone)).peak_tensor_bytes,
                        selective = place(with(c, Recompute::kSelective)).peak_tensor_bytes,
                        full = place(with(c, Recompute::kFull)).peak_tensor_bytes;
    BOOST_CHECK_MESSAGE(full <= selective && selective <= none,
                        "seed " << seed << ": " << full << " " << selective << " " << none);
  }
}

BOOST_AUTO_TEST_CASE(full_keeps_only_the_input_of_each_layer) {
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    Case c = random_case(seed);
    c.run.mode = RunMode::kFull;
    const Program p = with(c, Recompute::kFull);
    const std::uint64_t M = c.run.tokens_per_micro_batch(), H = c.model.hidden;
    // Besides the inputs of layers: the last output and its 1/rms; hf becomes its own gradient.
    BOOST_CHECK_EQUAL(kept_bytes(p), 4 * M * (c.model.layers * H + H + 1 + H));
  }
}

BOOST_AUTO_TEST_CASE(none_keeps_the_bytes_of_the_layer_equation) {
  Case c = everything_case();
  const ModelSpec& m = c.model;
  const std::uint64_t M = c.run.tokens_per_micro_batch(), H = m.hidden, A = m.heads, K = m.kv_heads,
                      D = m.head_dim, I = m.intermediate;
  // x, h1, x_mid, h2; qkv; q and k before their norm; attention output; gate, up, product; 1/rms of two
  // norms, of q and k; lse
  const std::uint64_t layer = 4 * H + (A + 2 * K) * D + (A + K) * D + A * D + 3 * I + 2 + (A + K) + A;
  BOOST_CHECK_EQUAL(kept_bytes(with(c, Recompute::kNone)), 4 * M * (m.layers * layer + H + 1 + H));
  BOOST_CHECK_EQUAL(kept_bytes(with(c, Recompute::kSelective)),
                    4 * M * (m.layers * (layer - 2 * H - I - 2) + H + 1 + H));
}

// With wide layers the peak is at the recomputed SwiGLU product of the last layer.
BOOST_AUTO_TEST_CASE(the_peak_of_full_is_layer_inputs_plus_one_layers_working_set) {
  for (std::uint32_t layers : {1u, 3u, 8u}) {
    Case c = small_case();
    c.model.layers = layers, c.model.intermediate = 64, c.run.recompute = Recompute::kFull;
    c.run.accumulate = 2;  // so that gradients persist
    const ModelSpec& m = c.model;
    const Program p = c.build();
    const MemoryPlan plan = place(p);
    const std::uint64_t M = c.run.tokens_per_micro_batch(), H = m.hidden, I = m.intermediate;
    const std::uint64_t working =
        m.qkv_width() + m.q_width() + m.heads + H + 2 * I + I;  // qkv, o, lse, x_mid, gate|up, product
    BOOST_CHECK_EQUAL(plan.peak_tensor_bytes - plan.persistent_bytes, 4 * M * (layers * H + H + working));
    BOOST_CHECK_EQUAL(op_info(p.ops[plan.peak_op].kind).name, "swiglu");
    BOOST_CHECK(p.ops[plan.peak_op].flags & kRecomputed);
  }
}

BOOST_AUTO_TEST_CASE(selective_runs_no_matrix_product_twice) {
  const Program p = with(everything_case(), Recompute::kSelective);
  std::size_t again = 0;
  for (const Op& o : p.ops) {
    if (!(o.flags & kRecomputed)) continue;
    ++again;
    BOOST_CHECK(o.kind == OpKind::kRmsNorm || o.kind == OpKind::kSwiGlu);
    BOOST_CHECK(o.phase == kBackward);
  }
  BOOST_CHECK_EQUAL(again, 3u * p.model.layers);
}

BOOST_AUTO_TEST_CASE(full_recomputes_each_layer_except_its_last_product) {
  const Program p = with(everything_case(), Recompute::kFull);
  std::map<OpKind, std::size_t> again;
  for (const Op& o : p.ops)
    if (o.flags & kRecomputed) ++again[o.kind];
  const std::size_t L = p.model.layers;
  BOOST_CHECK_EQUAL(again[OpKind::kLinear],
                    3 * L);  // qkv, o, gate|up; the output of down is the next layer's input
  BOOST_CHECK_EQUAL(again[OpKind::kAttention], L);
  BOOST_CHECK_EQUAL(again[OpKind::kQkNorm], L);
  BOOST_CHECK_EQUAL(again[OpKind::kRope], L);
  BOOST_CHECK_EQUAL(again[OpKind::kSwiGlu], L);
  BOOST_CHECK_EQUAL(again[OpKind::kRmsNorm], 4 * L);  // once for the products, once for the gradients
  BOOST_CHECK_EQUAL(again[OpKind::kEmbed], 0u);
}

BOOST_AUTO_TEST_CASE(a_custom_policy_may_differ_by_layer) {
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    Case c = random_case(seed);
    c.run.mode = RunMode::kFull, c.run.recompute = Recompute::kNone;
    Program p = c.build();
    const auto none = symbols_of_gradients(p);
    RunSpec all_full;
    all_full.recompute = Recompute::kFull;
    const RecomputePolicy full = recompute_policy(all_full);
    apply_recompute(p, {[&](const Buffer& b) { return b.layer % 2 == 0 && full.dropped(b); }, nullptr});
    BOOST_CHECK(none == symbols_of_gradients(p));
    const std::vector<std::string> wrong = check(p, place(p));
    BOOST_CHECK_MESSAGE(wrong.empty(), "seed " << seed << ": " << (wrong.empty() ? "" : wrong.front()));
  }
}

// q/k statistics are outputs of an operation that changes qkv in place: if qkv is kept they cannot be
// recomputed.
BOOST_AUTO_TEST_CASE(buffers_that_cannot_be_recomputed_are_kept) {
  Case c = everything_case();
  Program p = c.build();
  apply_recompute(p, {[](const Buffer& b) { return b.role == std::string_view("qk_pre"); }, nullptr});
  for (const Op& o : p.ops) BOOST_CHECK(!(o.flags & kRecomputed));
  BOOST_CHECK(check(p, place(p)).empty());
}

BOOST_AUTO_TEST_SUITE_END()
