// Programs of build_program(): parameters, order, fused buffers, first writes, sections, rejected settings.
#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <random>
#include <set>

#include "core/base/error.hpp"
#include "core/model/adapters.hpp"
#include "core/model/dynamic_map.hpp"
#include "core/model/trainable.hpp"
#include "core/step/buffer_names.hpp"
#include "core/step/moment_codes.hpp"
#include "core/step/operands.hpp"
#include "core/step/scratch_sizes.hpp"
#include "core/step/state_layout.hpp"
#include "tests/core/placement/cases.hpp"

using namespace trainhost;
using namespace trainhost::placement;
using namespace trainhost::placement::test;

namespace {

std::vector<std::string> kinds(const Program& p, SectionKind k) {
  std::vector<std::string> names;
  const Section s = p.section(k);
  for (std::uint32_t i = s.begin; i < s.end; ++i) names.push_back(op_info(p.ops[i].kind).name);
  return names;
}

std::uint64_t weight_elements(const Program& p) {
  std::uint64_t n = 0;
  for (const Param& q : p.params) n += p[q.weight].rows * p[q.weight].cols;
  return n;
}

/// The message of the usage error that building this case throws; "" if none.
std::string rejection(const Case& c) {
  try {
    c.build();
  } catch (const Error& e) {
    BOOST_CHECK(e.code() == Exit::kUsage);
    return e.what();
  }
  return "";
}

bool mentions(const std::string& text, const std::string& word) {
  return text.find(word) != std::string::npos;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(program)

BOOST_AUTO_TEST_CASE(a_training_step_runs_in_the_documented_order) {
  Case c = small_case();
  c.model.layers = 1;
  const std::vector<std::string> micro = {
      "embed",         "rms_norm",   "linear",    "rope",      "attention",    "linear",       "rms_norm",
      "linear",        "swiglu",     "linear",    "rms_norm",  "head_loss",    "rms_norm_bwd", "linear_dw",
      "linear_dx",     "swiglu_bwd", "linear_dw", "linear_dx", "rms_norm_bwd", "linear_dw",    "linear_dx",
      "attention_bwd", "rope_bwd",   "linear_dw", "linear_dx", "rms_norm_bwd", "embed_bwd"};
  const std::vector<std::string> made = kinds(c.build(), SectionKind::kMicro);
  BOOST_CHECK_EQUAL_COLLECTIONS(made.begin(), made.end(), micro.begin(), micro.end());
}

BOOST_AUTO_TEST_CASE(q_and_k_norms_come_before_rope_and_their_gradient_after_it) {
  Case c = everything_case();
  c.model.layers = 1;
  const std::vector<std::string> k = kinds(c.build(), SectionKind::kMicro);
  BOOST_CHECK_EQUAL(k[3], "qk_norm");
  BOOST_CHECK_EQUAL(k[4], "rope");
  const auto back = std::find(k.begin(), k.end(), "rope_bwd");
  BOOST_REQUIRE(back != k.end());
  BOOST_CHECK_EQUAL(*(back + 1), "qk_norm_bwd");
}

BOOST_AUTO_TEST_CASE(generation_attends_through_caches_one_token_at_a_time) {
  const Program p = small_case().build();
  const Section s = p.section(SectionKind::kGenerate);
  std::size_t steps = 0;
  for (std::uint32_t i = s.begin; i < s.end; ++i) {
    BOOST_CHECK_EQUAL(p.ops[i].rows, 1u);
    BOOST_CHECK(p.ops[i].phase == kGenerate);
    steps += p.ops[i].kind == OpKind::kAttentionStep;
  }
  BOOST_CHECK_EQUAL(steps, p.model.layers);
  const BufferId k = p.find(role::kCacheK, 1, kOfGenerate);
  BOOST_REQUIRE(k != kNoBuffer);
  BOOST_CHECK_EQUAL(p[k].rows, p.run.seq_len);
  BOOST_CHECK_EQUAL(p[k].name(), "generate.layers.1.cache_k");
  BOOST_CHECK(p[k].component == Component::kKvCache);
}

BOOST_AUTO_TEST_CASE(inference_has_weights_and_no_buffers_of_training) {
  Case c = everything_case();
  c.run.mode = RunMode::kInference;
  const Program p = c.build();
  BOOST_CHECK_EQUAL(p.sections.size(), 2u);
  BOOST_CHECK_EQUAL(p.section(SectionKind::kMicro).end, p.section(SectionKind::kMicro).begin);
  for (const Buffer& b : p.buffers) {
    BOOST_CHECK(b.component != Component::kGradients);
    BOOST_CHECK(b.component != Component::kOptimizerState);
  }
  for (const Param& q : p.params) BOOST_CHECK_EQUAL(q.grad, kNoBuffer);
}

BOOST_AUTO_TEST_CASE(buffer_names_are_unique) {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    const Program p = random_case(seed).build();
    std::set<std::string> names;
    for (const Buffer& b : p.buffers)
      BOOST_CHECK_MESSAGE(names.insert(b.name()).second, b.name() << " twice");
  }
}

BOOST_AUTO_TEST_CASE(q_k_v_share_one_buffer_and_slices_name_them) {
  const Program p = everything_case().build();
  const BufferId w = p.find("w.qkv", 1);
  const auto q =
      std::find_if(p.params.begin(), p.params.end(), [&](const Param& x) { return x.weight == w; });
  BOOST_REQUIRE(q != p.params.end());
  BOOST_REQUIRE_EQUAL(q->slices.size(), 3u);
  BOOST_CHECK_EQUAL(p.tensor_infos[q->slices[0].tensor].name, "model.layers.1.self_attn.q_proj.weight");
  BOOST_CHECK_EQUAL(p.tensor_infos[q->slices[2].tensor].name, "model.layers.1.self_attn.v_proj.weight");
  BOOST_CHECK_EQUAL(q->slices[1].first_element, p.model.q_width() * p.model.hidden);
  BOOST_CHECK_EQUAL(p[w].rows, p.model.qkv_width());
  BOOST_CHECK(q->decay);
  const BufferId bias = p.find("w.gate_up_bias", 0);
  BOOST_REQUIRE(bias != kNoBuffer);
  BOOST_CHECK_EQUAL(p[bias].rows, 2u * p.model.intermediate);
}

// MEM-EXACT-001: on a grid of small dimensions the closed form, the list of tensors and the buffers of the
// program agree.
BOOST_AUTO_TEST_CASE(parameter_counts_equal_the_closed_form_on_a_grid) {
  Case c = small_case();
  c.run.mode = RunMode::kInference;
  ModelSpec& m = c.model;
  std::size_t cases = 0, wrong = 0;
  for (std::uint32_t n = 0; n < 4096; ++n) {
    const auto at = [&](int digit) { return 1 + (n >> (2 * digit)) % 4; };
    m.vocab = at(0), m.hidden = at(1), m.layers = at(2), m.heads = at(3), m.kv_heads = at(4),
    m.intermediate = at(5);
    if (m.heads % m.kv_heads) continue;
    for (bool option : {false, true}) {
      m.tied = option, m.qkv_bias = m.o_bias = m.mlp_bias = m.qk_norm = option;
      std::uint64_t listed = 0;
      for (const TensorInfo& t : tensors(m)) listed += t.elements();
      wrong += listed != count_parameters(m).total || weight_elements(c.build()) != listed;
      ++cases;
    }
  }
  BOOST_CHECK_EQUAL(cases, 2u * 4 * 4 * 4 * 4 * 8);  // 8 of the 16 pairs of A and K divide
  BOOST_CHECK_EQUAL(wrong, 0u);
}

BOOST_AUTO_TEST_CASE(optimizer_state_is_that_of_the_optimizer) {
  for (const auto& [optimizer, states] :
       {std::pair{Optimizer::kSgd, 0u}, {Optimizer::kSgdMomentum, 1u}, {Optimizer::kAdamW, 2u}}) {
    Case c = everything_case();
    c.run.optimizer = optimizer;
    const Program p = c.build();
    std::uint64_t elements = 0;
    for (const Buffer& b : p.buffers)
      if (b.component == Component::kOptimizerState) elements += b.rows * b.cols;
    BOOST_CHECK_EQUAL(elements, states * count_parameters(c.model).total);
  }
}

// Written out for one model of two layers: H 8, q 8 rows, k and v 4, gate and up 12, vocabulary 600, untied.
BOOST_AUTO_TEST_CASE(factored_and_8_bit_state_has_the_bytes_of_its_tensors) {
  Case c = small_case();
  c.model.vocab = 600;
  const auto bytes = [&](Optimizer o) {
    c.run.optimizer = o;
    std::uint64_t sum = 0;
    const Program p = c.build();
    for (const Buffer& b : p.buffers)
      if (b.component == Component::kOptimizerState) sum += b.bytes();
    return sum;
  };
  const std::uint64_t norms = 2 * 2 * 8 + 8, layer = 8 * 8 + 2 * 4 * 8 + 8 * 8 + 3 * 12 * 8, table = 600 * 8;
  BOOST_TEST(bytes(Optimizer::kLion) == 4 * (norms + 2 * layer + 2 * table));
  // Rows and columns of q, k, v, o, gate, up and down, of embedding and head; norms have a moment per
  // element.
  const std::uint64_t means = (8 + 4 + 4 + 8 + 12 + 12 + 8) + (8 + 8 + 8 + 8 + 8 + 8 + 12);
  BOOST_TEST(bytes(Optimizer::kAdafactor) == 4 * (norms + 2 * means + 2 * (600 + 8)));
  BOOST_TEST(bytes(Optimizer::kMuon) == 4 * (2 * norms + 2 * layer + 2 * 2 * table));
  // Embedding and head have 19 blocks of 256; everything else is too small.
  BOOST_TEST(bytes(Optimizer::kAdamW8bit) == 2 * (4 * (norms + 2 * layer) + 2 * (table + 19 * 4)));
}

BOOST_AUTO_TEST_CASE(small_tensors_beside_a_large_one_keep_f32_moments) {
  Case c = small_case();
  c.model.hidden = 512, c.model.qkv_bias = true, c.run.optimizer = Optimizer::kAdamW8bit;
  const Program p = c.build();  // q 4,096 elements, k and v 2,048
  const auto qkv =
      std::ranges::find_if(p.params, [&](const Param& q) { return q.weight == p.find("w.qkv", 1); });
  BOOST_REQUIRE(qkv != p.params.end());
  const std::vector<Moment8bit> m = moments_8bit(p, *qkv);
  BOOST_REQUIRE(m.size() == 3u);
  BOOST_TEST((m[0].coded && !m[1].coded && !m[2].coded));
  BOOST_TEST((m[0].floats == 0 && m[1].floats == 16 * 4 && m[2].floats == 16 * 4 + 2048 * 4));
  BOOST_TEST(m[0].codes == 16 * 4 + 2 * 2048 * 4);
  BOOST_TEST(p[qkv->m].bytes() == m[0].codes + 4096);
  std::vector<std::string> names;
  for (const StateLocation& s : state_locations(p, 2))
    if (s.buffer == qkv->v) names.push_back(s.info.name.substr(s.info.name.find("self_attn") + 10));
  BOOST_TEST((names == std::vector<std::string>{"q_proj.weight.absmax", "q_proj.weight", "k_proj.weight",
                                                "v_proj.weight"}));
}

// Against the search of core/model/dynamic_map.hpp, at every bound between two codes and one float beside it.
BOOST_AUTO_TEST_CASE(codes_of_moments_are_the_nearest_numbers_of_the_map) {
  for (const bool is_signed : {true, false}) {
    const MomentCodes& codes = moment_codes(is_signed);
    const DynamicMap& map = dynamic_map(is_signed);
    std::vector<float> values = {0.0f, -0.0f, 1.0f, 1e-30f, 0x1p-149f};
    for (std::size_t i = 0; i < 255; ++i) {
      const float bound = (map[i] + map[i + 1]) / 2;
      for (const float x : {bound, std::nextafter(bound, -2.0f), std::nextafter(bound, 2.0f), map[i]})
        values.push_back(x);
    }
    std::mt19937 g(1);
    for (int i = 0; i < 20000; ++i) {
      const float x = std::ldexp(static_cast<float>(g()) * 0x1p-32f, -static_cast<int>(g() % 30));
      values.push_back(x);
      if (is_signed) values.push_back(-x);
    }
    std::size_t wrong = 0;
    for (const float x : values) wrong += codes.code(x) != nearest_in_dynamic_map(map, x);
    BOOST_TEST(wrong == 0u);
  }
  const std::vector<float> block = {0.5f, -2.0f, 0.0f};
  std::uint8_t code[3];
  BOOST_TEST(encode_moments(moment_codes(true), 3, block.data(), code) == 2.0f);
  BOOST_TEST(moment_codes(true).value[code[2]] == 0.0f);
  const std::vector<float> zeros(3);
  BOOST_TEST(encode_moments(moment_codes(false), 3, zeros.data(), code) == 0.0f);
}

BOOST_AUTO_TEST_CASE(a_tied_table_is_first_written_by_the_head) {
  for (bool tied : {false, true}) {
    Case c = small_case();
    c.model.tied = tied;
    const Program p = c.build();
    for (const Op& o : p.ops) {
      if (o.kind == OpKind::kHeadLoss) BOOST_CHECK(o.flags & kFirstWrite);
      if (o.kind == OpKind::kEmbedBwd) BOOST_CHECK_EQUAL((o.flags & kFirstWrite) != 0, !tied);
    }
    BOOST_CHECK_EQUAL(p.find("w.head") == kNoBuffer, tied);
  }
}

BOOST_AUTO_TEST_CASE(a_chunk_of_logits_is_never_more_than_the_micro_batch) {
  Case c = small_case();
  for (std::uint32_t chunk : {0u, 1u, 5u, 12u, 4096u}) {
    c.traits.head_chunk_tokens = chunk;
    const Program p = c.build();
    const std::uint64_t rows = chunk == 0 || chunk > 12 ? 12 : chunk;
    BOOST_CHECK_EQUAL(p[p.find(role::kLogits)].rows, rows);
    BOOST_CHECK_EQUAL(p[p.find(role::kLogits, -1, kOfEval)].rows, rows);
    BOOST_CHECK(p[p.find(role::kLogits)].component == Component::kLogits);
  }
}

BOOST_AUTO_TEST_CASE(a_sliding_window_changes_no_buffer) {
  Case c = small_case();
  const std::uint64_t without = digest(c.build());
  c.model.sliding_window = 3;
  BOOST_CHECK_EQUAL(digest(c.build()), without);
}

BOOST_AUTO_TEST_CASE(in_place_operands_of_op_info_are_inputs_and_outputs) {
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    const Program p = random_case(seed).build();
    for (const Op& o : p.ops)
      for (std::size_t i = 0; i < o.ins; ++i) {
        if (o.in[i] == kNoBuffer) continue;
        const bool both = std::find(o.out, o.out + o.outs, o.in[i]) != o.out + o.outs;
        BOOST_REQUIRE_EQUAL(both, (op_info(o.kind).inout_mask >> i & 1) != 0);
      }
  }
}

BOOST_AUTO_TEST_CASE(the_digest_depends_on_shapes_flags_and_offsets_but_not_on_the_seed) {
  Case c = small_case();
  const Program p = c.build();
  c.run.seed = 99;
  BOOST_CHECK_EQUAL(digest(c.build()), digest(p));
  Program q = p;
  q.buffers[3].cols += 1;
  BOOST_CHECK_NE(digest(q), digest(p));
  q = p;
  q.ops[20].flags ^= kFirstWrite;
  BOOST_CHECK_NE(digest(q), digest(p));
  q = p;
  std::swap(q.ops[20].in[0], q.ops[20].in[1]);
  BOOST_CHECK_NE(digest(q), digest(p));
  const std::vector<std::uint64_t> some{0, 64}, others{64, 0};
  BOOST_CHECK_NE(digest(p, some), digest(p, others));
  BOOST_CHECK_NE(digest(p, some), digest(p));
}

BOOST_AUTO_TEST_CASE(unsupported_settings_are_rejected_by_key) {
  const auto with = [](auto change) {
    Case c = small_case();
    change(c);
    return rejection(c);
  };
  BOOST_CHECK_EQUAL(rejection(small_case()), "");
  BOOST_CHECK(mentions(with([](Case& c) { c.model.family = "gemma2"; }), "gemma2"));
  BOOST_CHECK(mentions(with([](Case& c) { c.run.weight = DType::kBF16; }), "train.precision"));
  BOOST_CHECK(mentions(with([](Case& c) { c.run.grad = DType::kF16; }), "train.precision"));
  BOOST_CHECK(mentions(with([](Case& c) { c.run.moment = DType::kBF16; }), "train.precision"));
  BOOST_CHECK(mentions(with([](Case& c) { c.run.master = DType::kF32; }), "train.precision"));
  BOOST_CHECK(mentions(with([](Case& c) { c.run.compute = DType::kTF32; }), "train.precision"));
  BOOST_CHECK(mentions(with([](Case& c) { c.run.parallel.data = 2; }), "parallel.data"));
  BOOST_CHECK(mentions(with([](Case& c) { c.run.parallel.tensor = 2; }), "parallel.tensor"));
  BOOST_CHECK(mentions(with([](Case& c) { c.run.parallel.pipeline = 4; }), "parallel.pipeline"));
  BOOST_CHECK(mentions(with([](Case& c) { c.run.parallel.zero = 1; }), "parallel.zero"));
  BOOST_CHECK(mentions(with([](Case& c) { c.run.lora_rank = 8; }), "lora.rank"));
  BOOST_CHECK(mentions(with([](Case& c) { c.run.mode = RunMode::kLora; }), "lora.rank"));
  BOOST_CHECK(mentions(with([](Case& c) { c.run.recompute = Recompute::kAuto; }), "train.recompute"));
  BOOST_CHECK(mentions(with([](Case& c) { c.run.micro_batch = 0; }), "train.micro_batch"));
  BOOST_CHECK(mentions(with([](Case& c) { c.run.seq_len = 0; }), "data.seq_len"));
  BOOST_CHECK(mentions(with([](Case& c) { c.run.accumulate = 0; }), "train.grad_accum"));
  BOOST_CHECK(mentions(with([](Case& c) { c.traits.alignment = 48; }), "alignment"));
  BOOST_CHECK(mentions(with([](Case& c) { c.traits.slots = 0; }), "slots"));
  BOOST_CHECK(mentions(with([](Case& c) { c.model.heads = 3; }), "num_attention_heads"));
}

BOOST_AUTO_TEST_CASE(sizes_above_63_bits_are_rejected_and_never_wrap) {
  Case c = small_case();
  c.run.micro_batch = UINT32_MAX, c.run.seq_len = UINT32_MAX;
  BOOST_CHECK(mentions(rejection(c), "too large"));
  c = small_case();  // each buffer fits, their sum does not
  c.run.micro_batch = 1u << 31, c.run.seq_len = 1u << 24;
  c.model.intermediate = 1u << 3;
  const Program p = c.build();
  BOOST_CHECK_THROW(place(p), Error);
}

BOOST_AUTO_TEST_CASE(adapters_are_added_to_products_and_frozen_weights_have_no_gradients) {
  Case c = small_case();
  c.model.layers = 1;
  c.run.mode = RunMode::kLora, c.run.lora_rank = 4, c.run.lora_targets = 0b0100101;  // q, v and up
  const Program p = c.build();
  // Below q and v of layer 0 nothing is trained: no gradient of h1, of the norm or of the embedding.
  const std::vector<std::string> micro = {
      "embed",     "rms_norm",  "linear",        "linear",       "lora_b",     "rope",          "attention",
      "linear",    "rms_norm",  "linear",        "linear",       "lora_b",     "swiglu",        "linear",
      "rms_norm",  "head_loss", "rms_norm_bwd",  "linear_dx",    "swiglu_bwd", "lora_b_dw",     "lora_b_dx",
      "linear_dw", "linear_dx", "linear_dx_add", "rms_norm_bwd", "linear_dx",  "attention_bwd", "rope_bwd",
      "lora_b_dw", "lora_b_dx", "linear_dw"};
  const std::vector<std::string> made = kinds(p, SectionKind::kMicro);
  BOOST_CHECK_EQUAL_COLLECTIONS(made.begin(), made.end(), micro.begin(), micro.end());
  std::uint64_t trained = 0;
  for (const Param& q : p.params) {
    const bool adapter = p[q.weight].component == Component::kAdapters;
    BOOST_TEST((q.grad != kNoBuffer) == adapter, p[q.weight].name());
    BOOST_TEST((q.m != kNoBuffer) == adapter, p[q.weight].name());
    if (adapter) trained += p[q.weight].rows * p[q.weight].cols;
  }
  // q: 8 x 8, v: 4 x 8, up: 12 x 8.
  BOOST_TEST(trained == 4u * (8 + 8 + 4 + 8 + 12 + 8));
  BOOST_TEST(trained == count_trained_parameters(c.model, c.run));
}

BOOST_AUTO_TEST_CASE(magnitudes_scale_products_and_the_sum_before_them_becomes_its_gradient) {
  Case c = small_case();
  c.model.layers = 1;
  c.run.mode = RunMode::kLora, c.run.lora_rank = 4, c.run.lora_targets = 0b0000101;  // q and v
  c.run.memory.dora = true;
  const Program p = c.build();
  const std::vector<std::string> micro = {
      "embed",     "rms_norm",      "dora_scale",   "linear",    "linear",     "lora_b",    "dora",
      "rope",      "attention",     "linear",       "rms_norm",  "linear",     "swiglu",    "linear",
      "rms_norm",  "head_loss",     "rms_norm_bwd", "linear_dx", "swiglu_bwd", "linear_dx", "rms_norm_bwd",
      "linear_dx", "attention_bwd", "rope_bwd",     "dora_bwd",  "lora_b_dw",  "lora_b_dx", "linear_dw"};
  const std::vector<std::string> made = kinds(p, SectionKind::kMicro);
  BOOST_CHECK_EQUAL_COLLECTIONS(made.begin(), made.end(), micro.begin(), micro.end());
  // q: 8 x 8, v: 4 x 8.
  BOOST_TEST(count_trained_parameters(c.model, c.run) == 4u * (8 + 8 + 4 + 8) + 8 + 4);
  std::uint64_t elements = 0;
  for (const TensorInfo& t : adapter_tensors(c.model, c.run)) elements += t.elements();
  BOOST_TEST(elements == count_trained_parameters(c.model, c.run));
  // A vector, so without decay.
  for (const Param& q : p.params)
    if (std::string_view(p[q.weight].role) == "w.qkv_magnitude") BOOST_TEST(!q.decay);
  const Buffer& unscaled = p[p.find("qkv_unscaled", 0)];
  BOOST_TEST((unscaled.rows == c.run.tokens_per_micro_batch() && unscaled.cols == 16u));
  // What is recomputed: nothing of the factors, the unscaled output with the layer.
  c.run.recompute = Recompute::kFull;
  const Program full = c.build();
  BOOST_TEST(full.find("qkv_unscaled", 0, kRecomputedCopy) != kNoBuffer);
  BOOST_TEST(full.find("qkv_dora_scale", 0, kRecomputedCopy) == kNoBuffer);
}

BOOST_AUTO_TEST_CASE(inputs_of_frozen_products_without_adapters_are_not_kept) {
  Case c = small_case();
  c.run.mode = RunMode::kLora, c.run.lora_rank = 4, c.run.lora_targets = 0b0000101;  // q and v
  const Program p = c.build();
  const std::uint32_t backward = backward_begin(p);
  const auto is_read_in_backward = [&](const char* role) {
    for (std::uint32_t i = backward; i < p.section(SectionKind::kMicro).end; ++i)
      for (BufferId b : p.ops[i].inputs())
        if (b != kNoBuffer && b == p.find(role, 1)) return true;
    return false;
  };
  for (const char* role : {"h2", "act"}) BOOST_TEST(!is_read_in_backward(role), role);
  for (const char* role : {"h1", "x", "x_mid", "qkv", "attn_out", "gate_up", "qkv_lora"})
    BOOST_TEST(is_read_in_backward(role), role);
}

BOOST_AUTO_TEST_CASE(the_input_after_dropout_is_computed_again_and_not_kept) {
  for (Recompute recompute : {Recompute::kNone, Recompute::kSelective, Recompute::kFull}) {
    Case c = small_case();
    c.run.mode = RunMode::kLora, c.run.lora_rank = 4, c.run.lora_targets = 0x7f;
    c.run.memory.lora_dropout = 0.1, c.run.recompute = recompute;
    const Program p = c.build();
    for (const char* role : role::kDropped)
      for (std::uint32_t i = backward_begin(p); i < p.section(SectionKind::kMicro).end; ++i)
        for (BufferId b : p.ops[i].inputs()) BOOST_TEST((b == kNoBuffer || b != p.find(role, 0)), role);
    const Section eval = p.section(SectionKind::kEval), generate = p.section(SectionKind::kGenerate);
    for (const Section& s : {eval, generate})
      for (std::uint32_t i = s.begin; i < s.end; ++i) BOOST_TEST((p.ops[i].kind != OpKind::kDropout));
  }
}

BOOST_AUTO_TEST_CASE(the_backward_pass_ends_where_nothing_before_is_trained) {
  Case c = small_case();
  c.run.trainable = "-*\n+model.layers.1.post_attention_layernorm.weight\n+model.layers.1.mlp.down_proj*";
  const Program p = c.build();
  const std::uint32_t begin = backward_begin(p), end = p.section(SectionKind::kMicro).end;
  std::vector<std::string> made;
  for (std::uint32_t i = begin; i < end; ++i) made.push_back(op_info(p.ops[i].kind).name);
  // Layer 1 is the last one: down has gradients of weight and input, gate and up of the input alone.
  const std::vector<std::string> backward = {"rms_norm_bwd", "linear_dw", "linear_dx",
                                             "swiglu_bwd",   "linear_dx", "rms_norm_bwd"};
  const bool loss_first = made.front() == "head_loss";
  BOOST_CHECK_EQUAL_COLLECTIONS(made.begin() + loss_first, made.end(), backward.begin(), backward.end());
  for (const Param& q : p.params) {
    const std::string& tensor = p.tensor_infos[q.slices.front().tensor].name;
    const bool trained = is_trained(c.run, tensor);
    for (BufferId b : {q.grad, q.m, q.v}) BOOST_TEST((b != kNoBuffer) == trained, tensor);
  }
  BOOST_TEST(p.find(role::kDx) != kNoBuffer);

  c.run.trainable = "-*\n+lm_head*", c.model.tied = false;
  const Program head = c.build();
  BOOST_TEST(head.find(role::kDx) == kNoBuffer);
  BOOST_TEST(std::string(op_info(head.ops[head.section(SectionKind::kMicro).end - 1].kind).name) ==
             "head_loss");
}

BOOST_AUTO_TEST_CASE(rules_that_no_trainer_can_follow_are_rejected) {
  Case c = small_case();
  c.run.trainable = "-*.k_proj.weight";
  BOOST_CHECK(mentions(rejection(c), "model.layers.0.self_attn.k_proj.weight is frozen"));
  c.run.trainable = "-*";
  BOOST_CHECK(mentions(rejection(c), "nothing to train"));
}

BOOST_AUTO_TEST_CASE(quantized_weights_are_dequantized_for_each_product_and_kept_for_none) {
  Case c = small_case();
  c.model.layers = 1;
  c.run.mode = RunMode::kLora, c.run.lora_rank = 4, c.run.lora_targets = 0x7f, c.run.lora_alpha = 8;
  for (const Recompute recompute : {Recompute::kNone, Recompute::kSelective, Recompute::kFull}) {
    c.run.recompute = recompute;
    c.run.mode = RunMode::kLora;
    std::vector<std::string> lora = kinds(c.build(), SectionKind::kMicro);
    c.run.mode = RunMode::kQlora;
    const Program p = c.build();
    // The program of LoRA, with one operation before each product by a matrix of the model.
    std::vector<std::string> qlora;
    std::vector<int> uses(p.buffers.size());
    for (std::uint32_t i = p.section(SectionKind::kMicro).begin; i < p.section(SectionKind::kMicro).end;
         ++i) {
      const Op& op = p.ops[i];
      for (BufferId b : op.inputs())
        if (b != kNoBuffer) ++uses[b];
      if (op.kind != OpKind::kDequantize) {
        qlora.push_back(op_info(op.kind).name);
        continue;
      }
      BOOST_TEST(((p.ops[i + 1].kind == OpKind::kLinear || p.ops[i + 1].kind == OpKind::kLinearDx) &&
                  p.ops[i + 1].in[1] == op.out[0]));
    }
    BOOST_CHECK_EQUAL_COLLECTIONS(qlora.begin(), qlora.end(), lora.begin(), lora.end());
    for (const Op& op : p.ops)
      if (op.kind == OpKind::kDequantize && op.phase != kEval && op.phase != kGenerate)
        BOOST_TEST(uses[op.out[0]] == 1, p[op.out[0]].name());
  }
  // Embedding, head, norms and biases keep the type of the run.
  const Program p = c.build();
  for (const Param& q : p.params) {
    const TensorInfo& t = p.tensor_infos[q.slices.front().tensor];
    BOOST_TEST(
        (p[q.weight].dtype == DType::kU8) == (t.rank == 2 && t.layer >= 0 && t.part == AdapterPart::kNone),
        p[q.weight].name());
  }
}

BOOST_AUTO_TEST_CASE(every_mode_has_every_optimizer) {
  for (const Optimizer o : {Optimizer::kAdafactor, Optimizer::kMuon, Optimizer::kAdamW8bit})
    for (const char* mode : {"resident", "hybrid", "streamed"})
      for (const bool tied : {false, true}) {
        Case c = on_device(small_case(), 0, mode);
        c.run.optimizer = o, c.model.tied = tied;
        BOOST_TEST(rejection(c).empty());
      }
}

/// Names of the operations of the update that are not the norm's.
std::vector<std::string> updates_of(const Program& p) {
  std::vector<std::string> names;
  const Section s = p.section(SectionKind::kUpdate);
  for (std::uint32_t i = s.begin; i < s.end; ++i)
    if (p.ops[i].kind != OpKind::kGradSquares) names.push_back(op_info(p.ops[i].kind).name);
  return names;
}

// The host computes the next direction before it needs what the device makes of this one.
BOOST_AUTO_TEST_CASE(mode_streamed_orthogonalises_on_the_device) {
  Case c = on_device(small_case(), 0, "streamed");
  c.run.optimizer = Optimizer::kMuon, c.model.layers = 1;
  const Program p = build_program(c.model, c.run, c.traits);
  const std::vector<std::string> updates = updates_of(p);
  const std::vector<std::string> begin = {"muon_direction", "copy", "muon_orthogonalise", "copy",
                                          "muon_direction", "copy", "muon_orthogonalise", "copy",
                                          "hold",           "muon"};
  BOOST_REQUIRE(updates.size() > begin.size());
  BOOST_TEST(std::vector(updates.begin(), updates.begin() + 10) == begin, boost::test_tools::per_element());
  for (const Op& op : p.ops) {
    if (op.kind == OpKind::kMuonOrthogonalise) BOOST_TEST(!runs_on_host(p, op));
    if (op.kind == OpKind::kMuonDirection || op.kind == OpKind::kMuon) BOOST_TEST(runs_on_host(p, op));
  }
}

// Four products; the ranks put the direction of each together.
BOOST_AUTO_TEST_CASE(tensor_ranks_put_directions_together) {
  Case c = small_case();
  c.run.optimizer = Optimizer::kMuon, c.run.parallel.tensor = 2, c.run.parallel.tensor_rank = 2;
  c.run.parallel.data_rank = 1;
  const Program p = build_program(c.model, c.run, c.traits);
  std::size_t found = 0;
  for (const Op& op : p.ops) {
    if (op.kind != OpKind::kMuonOrthogonalise) continue;
    ++found;
    const Buffer& x = p[op[operand::muon_orthogonalise::kX]];
    const Param& q = param_of_direction(p, op[operand::muon_orthogonalise::kX]);
    BOOST_TEST(x.rows == 2 * p[q.grad].rows);
    const MuonSlice s = muon_slice(p, q, 0);
    BOOST_TEST(s.rows * s.cols == 2 * s.part.rows * s.part.cols);
    // Every element of the pieces is that of one element of the wholes.
    std::set<std::uint64_t> seen;
    for (std::size_t i = 0; i < q.slices.size(); ++i) {
      const MuonSlice w = muon_slice(p, q, i);
      for (std::uint64_t row = 0; row < w.rows; ++row)
        for (std::uint64_t col = 0; col < w.cols; ++col) seen.insert(w.index(row, col));
    }
    BOOST_TEST(seen.size() == x.rows * x.cols);
    BOOST_TEST(*seen.rbegin() + 1 == seen.size());
  }
  BOOST_TEST(found == 4 * c.model.layers);
}

// The host's operations of Adafactor share a buffer of sums in host memory, the device's one on the device.
BOOST_AUTO_TEST_CASE(sums_of_adafactor_are_where_its_operation_runs) {
  for (const char* mode : {"resident", "hybrid", "streamed"}) {
    Case c = on_device(small_case(), 0, mode);
    c.run.optimizer = Optimizer::kAdafactor, c.model.tied = false;
    const Program p = build_program(c.model, c.run, c.traits);
    std::set<BufferId> used;
    for (const Op& op : p.ops)
      if (op.kind == OpKind::kAdafactor) {
        const Buffer& sums = p[op[operand::adafactor::kSums]];
        BOOST_TEST((sums.tier == Tier::kDevice) == !runs_on_host(p, op));
        used.insert(op[operand::adafactor::kSums]);
      }
    BOOST_TEST(used.size() == (c.traits.mode == "hybrid" ? 2u : 1u));
  }
}

BOOST_AUTO_TEST_SUITE_END()
