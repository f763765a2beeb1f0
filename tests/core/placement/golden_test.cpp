// Small programs with their plans as text, compared with tests/golden/plan: a change of memory behaviour must
// be visible in review. TRAINHOST_UPDATE_GOLDEN=1 rewrites the files; review the difference before you commit
// it.
#include <boost/test/unit_test.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "tests/core/placement/cases.hpp"

using namespace trainhost;
using namespace trainhost::placement;
using namespace trainhost::placement::test;

namespace {

std::string text_of(const Case& c) {
  const Program p = c.build();
  const MemoryPlan plan = place(p);
  std::ostringstream s;
  s << c.model.name << ", recompute " << name(c.run.recompute) << "\n"
    << "arena " << plan.arena_bytes << ", persistent " << plan.persistent_bytes << ", peak of tensors "
    << plan.peak_tensor_bytes << " at op " << plan.peak_op << " " << op_info(p.ops[plan.peak_op].kind).name
    << "\n"
    << dump(p, plan.offset);
  return s.str();
}

void compare(const Case& c, const std::string& file) {
  const std::filesystem::path path = std::filesystem::path(TRAINHOST_SOURCE_DIR) / "tests/golden/plan" / file;
  const std::string now = text_of(c);
  const char* update = std::getenv("TRAINHOST_UPDATE_GOLDEN");
  if (update && std::string(update) == "1") {
    std::ofstream(path, std::ios::binary) << now;
    BOOST_TEST_MESSAGE("rewrote " << path);
    return;
  }
  std::ifstream in(path, std::ios::binary);
  BOOST_REQUIRE_MESSAGE(in.good(), path << " is missing: run this test with TRAINHOST_UPDATE_GOLDEN=1");
  std::istringstream before(std::string(std::istreambuf_iterator<char>(in), {})), after(now);
  std::string a, b;
  for (std::size_t line = 1;; ++line) {
    const bool more_a = static_cast<bool>(std::getline(before, a)),
               more_b = static_cast<bool>(std::getline(after, b));
    if (!more_a && !more_b) return;
    BOOST_REQUIRE_MESSAGE(more_a == more_b && a == b,
                          file << ":" << line << "\n  was: " << a << "\n  now: " << b
                               << "\n  if this is meant: TRAINHOST_UPDATE_GOLDEN=1");
  }
}

}  // namespace

BOOST_AUTO_TEST_SUITE(golden)

BOOST_AUTO_TEST_CASE(a_plain_llama_that_keeps_everything) { compare(small_case(), "llama.txt"); }

BOOST_AUTO_TEST_CASE(a_qwen2_with_biases_that_keeps_outputs_of_products) {
  Case c = small_case();
  c.model.family = "qwen2", c.model.name = "qwen2 with biases", c.model.qkv_bias = c.model.tied = true;
  c.run.recompute = Recompute::kSelective, c.run.optimizer = Optimizer::kSgdMomentum;
  compare(c, "qwen2-selective.txt");
}

BOOST_AUTO_TEST_CASE(a_qwen3_with_all_options_that_keeps_layer_inputs) {
  Case c = everything_case();
  c.run.recompute = Recompute::kFull;
  compare(c, "qwen3-full.txt");
}

BOOST_AUTO_TEST_CASE(a_bf16_llama_on_a_device) { compare(on_device(small_case(), 2), "device-bf16.txt"); }

BOOST_AUTO_TEST_CASE(a_tied_llama_with_its_embedding_on_the_host) {
  Case c = on_device(small_case(), 0, "hybrid");
  c.model.tied = true, c.run.accumulate = 2;
  compare(c, "hybrid-tied.txt");
}

BOOST_AUTO_TEST_CASE(a_bf16_llama_streamed_from_the_host) {
  Case c = on_device(small_case(), 2, "streamed");
  c.run.recompute = Recompute::kFull;
  compare(c, "streamed-bf16.txt");
}

BOOST_AUTO_TEST_CASE(a_llama_whose_adapters_are_trained) {
  Case c = small_case();
  c.run.mode = RunMode::kLora, c.run.lora_rank = 2, c.run.lora_targets = 0b1000101, c.run.lora_alpha = 4;
  compare(c, "lora.txt");
}

BOOST_AUTO_TEST_CASE(a_llama_whose_adapters_have_magnitudes_and_dropout) {
  Case c = small_case();
  c.run.mode = RunMode::kLora, c.run.lora_rank = 2, c.run.lora_targets = 0b1000101, c.run.lora_alpha = 4;
  c.run.memory.dora = true, c.run.memory.lora_dropout = 0.25, c.run.recompute = Recompute::kSelective;
  compare(c, "dora.txt");
}

BOOST_AUTO_TEST_CASE(a_llama_whose_adapters_are_trained_over_weights_in_nf4) {
  Case c = small_case();
  c.run.mode = RunMode::kQlora, c.run.lora_rank = 2, c.run.lora_targets = 0b1000101, c.run.lora_alpha = 4;
  c.run.memory.double_quantized = true, c.run.recompute = Recompute::kFull;
  compare(c, "qlora.txt");
}

BOOST_AUTO_TEST_SUITE_END()
