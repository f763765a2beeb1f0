// Search compared with brute force: the same model and time functions evaluated for one layout at a time in
// plain loops, without bounds and caches, and for every stage.
#include "core/parallel/layout_search.hpp"

#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <random>

#include "core/parallel/pareto_front.hpp"
#include "core/parallel/rank_memory.hpp"

using namespace trainhost;
using namespace trainhost::parallel;

namespace {

model::Architecture dense(std::uint32_t layers) {
  model::Architecture a;
  a.family = "llama", a.name = "small";
  a.vocab = 1000, a.hidden = 256, a.max_positions = 4096;
  model::Layer l;
  l.attention.heads = 8, l.attention.kv_heads = 2, l.attention.head_dim = 32;
  l.mlp.width = 704;
  a.layers = {{l, layers}};
  return a;
}

/// A dense layer first, then experts, a window in the middle: stages differ.
model::Architecture mixed() {
  model::Architecture a = dense(1);
  model::Layer l = a.layers[0].layer, w = l;
  l.mlp.width = 0;
  l.experts.count = 4, l.experts.active = 2, l.experts.each.width = 320, l.experts.shared.width = 64;
  w.attention.window = 100;
  a.layers = {{a.layers[0].layer, 2}, {l, 3}, {w, 2}};
  return a;
}

SearchRequest small_request(const model::Architecture& a, std::uint32_t devices, std::uint64_t batch) {
  SearchRequest q;
  q.architecture = &a;
  q.space.base.weight = q.space.base.compute = DType::kBF16;
  q.space.base.master = DType::kF32;
  q.space.base.seq_len = 512;
  q.space.devices = devices, q.space.global_batch = batch;
  q.machine = machine_of(*find_device_preset("a100-40gb"), q.space.base);
  q.machine.node = 4;
  q.device_budget = UINT64_MAX;
  return q;
}

/// Every layout of the space, each computed only from its own run.
std::vector<FoundLayout> all_layouts(const SearchRequest& q) {
  std::vector<FoundLayout> out;
  const model::Architecture& a = *q.architecture;
  const std::vector<MicroBatchSettings> all = micro_batch_settings(a, q.space);
  for (std::size_t i = 0; i < all.size(); ++i) {
    std::uint64_t index = std::uint64_t{i} << 32;
    for (const PipelineSettings& d : pipeline_settings(a, q.space, all[i]))
      for (const StateSettings& k : state_settings(q.space, d.data * all[i].context > 1)) {
        FoundLayout f{all[i], d, k, 0, 0, 0, index++};
        const RunSpec r = f.run(q.space.base);
        validate(a, r);
        const Numbers n = stage_numbers(a, r, worst_stage(a, r));
        for (std::uint32_t s = 0; s < r.parallel.pipeline; ++s)
          f.device_bytes = std::max(f.device_bytes, stage_numbers(a, r, s).tier(Tier::kDevice));
        BOOST_REQUIRE_EQUAL(f.device_bytes, n.tier(Tier::kDevice));
        f.host_bytes = n.tier(Tier::kPinned) + n.tier(Tier::kHost);
        f.step_seconds = TimeModel(a, r, q.machine).step(r).step;
        out.push_back(f);
      }
  }
  return out;
}

std::vector<FoundLayout> expected_fastest(std::vector<FoundLayout> all, const SearchRequest& q) {
  std::erase_if(all, [&](const FoundLayout& f) { return excess_bytes(f, q) > 0; });
  std::sort(all.begin(), all.end(), faster);
  if (all.size() > q.top) all.resize(q.top);
  return all;
}

std::vector<FoundLayout> expected_pareto_front(std::vector<FoundLayout> all, const SearchRequest& q) {
  std::erase_if(all, [&](const FoundLayout& f) { return excess_bytes(f, q) > 0; });
  std::sort(all.begin(), all.end(), smaller);
  std::vector<FoundLayout> out;
  for (const FoundLayout& f : all)
    if (out.empty() || f.step_seconds < out.back().step_seconds) out.push_back(f);
  return out;
}

void check_equal(const std::vector<FoundLayout>& x, const std::vector<FoundLayout>& y) {
  BOOST_REQUIRE_EQUAL(x.size(), y.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    BOOST_TEST(x[i].index == y[i].index);
    BOOST_TEST(x[i].device_bytes == y[i].device_bytes);
    BOOST_TEST(x[i].host_bytes == y[i].host_bytes);
    BOOST_TEST(x[i].step_seconds == y[i].step_seconds);  // to the last bit
  }
}

void compare_with_brute_force(SearchRequest q) {
  const std::vector<FoundLayout> all = all_layouts(q);
  BOOST_REQUIRE(!all.empty());
  std::vector<std::uint64_t> bytes;
  for (const FoundLayout& f : all) bytes.push_back(f.device_bytes);
  std::sort(bytes.begin(), bytes.end());
  // Everything fits; half; a tenth; one; none.
  for (const std::uint64_t budget :
       {bytes.back(), bytes[bytes.size() / 2], bytes[bytes.size() / 10], bytes.front(), bytes.front() - 1})
    for (const bool prune : {false, true})
      for (const std::size_t parts : {1, 3}) {
        q.device_budget = budget, q.prune = prune;
        std::vector<SearchOutcome> outcomes;
        for (std::size_t i = 0; i < parts; ++i) outcomes.push_back(search(q, i, parts));
        const SearchOutcome got = merge(std::move(outcomes), q);
        BOOST_TEST(got.layouts == all.size());
        check_equal(got.best, expected_fastest(all, q));
        check_equal(got.pareto, expected_pareto_front(all, q));
        const auto fit = static_cast<std::uint64_t>(std::count_if(
            all.begin(), all.end(), [&](const FoundLayout& f) { return f.device_bytes <= budget; }));
        BOOST_TEST(got.fitting <= fit);
        BOOST_TEST((fit == 0) == (got.fitting == 0));
        if (!prune) BOOST_TEST(got.fitting == fit);
        if (!prune) BOOST_TEST(got.evaluated == all.size());
        BOOST_TEST(got.closest.has_value() == (fit == 0));
        if (fit == 0) {
          const auto least =
              *std::min_element(all.begin(), all.end(), [&](const FoundLayout& x, const FoundLayout& y) {
                return excess_bytes(x, q) != excess_bytes(y, q) ? excess_bytes(x, q) < excess_bytes(y, q)
                                                                : faster(x, y);
              });
          BOOST_TEST(got.closest->index == least.index);
        }
      }
}

}  // namespace

BOOST_AUTO_TEST_SUITE(search_suite)

BOOST_AUTO_TEST_CASE(search_equals_brute_force_for_a_dense_model) {
  const model::Architecture a = dense(6);
  compare_with_brute_force(small_request(a, 8, 16));
}

BOOST_AUTO_TEST_CASE(search_equals_brute_force_if_layers_differ_and_do_not_divide) {
  const model::Architecture a = mixed();
  SearchRequest q = small_request(a, 8, 8);
  q.space.axes.recompute = {{Recompute::kNone, 1}, {Recompute::kFull, 1}, {Recompute::kFull, 2}};
  q.space.axes.micro_batch = {1, 2};
  q.top = 7;
  compare_with_brute_force(q);
}

BOOST_AUTO_TEST_CASE(search_equals_brute_force_for_other_types_optimizers_and_adapters) {
  const model::Architecture a = dense(4);
  SearchRequest q = small_request(a, 4, 4);
  q.space.axes.recompute = {{Recompute::kNone, 1}, {Recompute::kFull, 1}};
  q.space.axes.optimizer_in.push_back(Tier::kDisk);
  q.space.base.grad = DType::kBF16;
  q.space.base.optimizer = Optimizer::kAdafactor;
  compare_with_brute_force(q);
  q.space.base.mode = RunMode::kQlora;
  q.space.base.lora_rank = 8, q.space.base.lora_targets = 5;
  q.space.base.optimizer = Optimizer::kAdamW;
  compare_with_brute_force(q);
}

BOOST_AUTO_TEST_CASE(pruning_skips_layouts) {
  const model::Architecture a = dense(8);
  SearchRequest q = small_request(a, 16, 32);
  q.top = 1;
  const SearchOutcome pruned = search(q);
  q.prune = false;
  const SearchOutcome all = search(q);
  BOOST_TEST(pruned.evaluated < all.evaluated);
  BOOST_TEST(all.evaluated == all.layouts);
  check_equal(pruned.best, all.best);
  check_equal(pruned.pareto, all.pareto);
}

BOOST_AUTO_TEST_CASE(a_pareto_front_does_not_depend_on_the_order_of_insertion) {
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    std::vector<FoundLayout> all;
    for (std::uint64_t i = 0; i < 40; ++i) {
      FoundLayout f;
      f.device_bytes = random() % 12, f.step_seconds = static_cast<double>(random() % 12), f.index = i;
      all.push_back(f);
    }
    ParetoFront f;
    for (const FoundLayout& x : all) f.add(x);
    SearchRequest q;
    q.device_budget = UINT64_MAX;
    check_equal(f.kept(), expected_pareto_front(all, q));
  }
}

BOOST_AUTO_TEST_CASE(search_rejects_inference) {
  const model::Architecture a = dense(4);
  SearchRequest q = small_request(a, 4, 4);
  q.space.base.mode = RunMode::kInference;
  BOOST_CHECK_THROW(search(q), Error);
}

BOOST_AUTO_TEST_SUITE_END()
