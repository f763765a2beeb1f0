// core/runfile: the values with which people train, for keys that a run does not give, and those of each
// framework.
#include <algorithm>
#include <boost/test/unit_test.hpp>

#include "core/runfile/run_config.hpp"

using namespace trainhost;
using namespace trainhost::runfile;

namespace {

std::vector<std::string> assumed_keys(const RunConfig& c) {
  std::vector<std::string> keys;
  for (const RunConfig::Assumed& a : c.assumed) keys.push_back(a.key);
  return keys;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(usual_run)

BOOST_AUTO_TEST_CASE(a_model_alone_has_what_people_run_and_says_which_keys_these_are) {
  const RunConfig usual = run_for_model("llama-3-8b");
  BOOST_TEST((usual.run.seq_len == 2048u && usual.run.micro_batch == 1u && usual.precision == "bf16"));
  BOOST_TEST(usual.assumed.size() == 3u);
  BOOST_TEST(!usual.given.count("data.seq_len"));
  BOOST_TEST((run_for_model("llama-3-8b", {{"memory.device", "t4-16gb"}}).run.compute == DType::kF16));
  BOOST_TEST(run_for_model("gpt2").run.seq_len == 1024u);  // the longest that it is designed for
  const RunConfig given =
      run_for_model("llama-3-8b", {{"train.precision", "fp32"}, {"train.micro_batch", "4"}});
  BOOST_TEST((given.precision == "fp32" && given.run.micro_batch == 4u));
  BOOST_TEST(assumed_keys(given) == std::vector<std::string>{"data.seq_len"},
             boost::test_tools::per_element());
  BOOST_TEST(load_run({}).assumed.empty());
}

// Recipes of torchtune and torchtitan have no fp16, and litgpt takes bf16 where PyTorch emulates it.
BOOST_AUTO_TEST_CASE(frameworks_without_fp16_are_planned_in_bf16_on_older_devices) {
  const auto precision = [](const char* framework) {
    return run_for_model("llama-3-8b", {{"memory.device", "t4-16gb"}, {"plan.framework", framework}})
        .precision;
  };
  for (const char* framework : {"torchtune", "litgpt", "torchtitan"})
    BOOST_TEST(precision(framework) == "bf16", framework);
  for (const char* framework : {"pytorch", "transformers", "megatron"})
    BOOST_TEST(precision(framework) == "fp16", framework);
}

BOOST_AUTO_TEST_CASE(frameworks_that_shard_do_so_on_one_rank_too_if_they_can) {
  const auto zero = [](const char* framework) {
    return run_for_model("llama-3-8b", {{"plan.framework", framework}}).run.parallel.zero;
  };
  for (const char* framework : {"fsdp2", "deepspeed"}) BOOST_TEST(zero(framework) == 3u, framework);
  for (const char* framework : {"torchtune", "torchtitan", "litgpt", "transformers"})
    BOOST_TEST(zero(framework) == 0u, framework);
}

BOOST_AUTO_TEST_CASE(checkpoints_of_unsloth_are_its_own) {
  const auto unsloth = [](std::vector<Override> more) {
    more.push_back({"plan.framework", "unsloth"});
    const RunConfig c = run_for_model("llama-3-8b", more);
    return std::pair(c.run.recompute, c.run.memory.activations_in);
  };
  BOOST_TEST((unsloth({}) == std::pair(Recompute::kFull, Tier::kHost)));
  BOOST_TEST((unsloth({{"train.recompute", "none"}}) == std::pair(Recompute::kNone, Tier::kDevice)));
  BOOST_TEST((unsloth({{"plan.offload_activations", "none"}}) == std::pair(Recompute::kFull, Tier::kDevice)));
}

// full_finetuning = True of FastLanguageModel, without float32_mixed_precision.
BOOST_AUTO_TEST_CASE(unsloth_trains_weights_in_bf16_alone) {
  const auto master = [](std::vector<Override> more) {
    more.push_back({"plan.framework", "unsloth"});
    return run_for_model("llama-3-8b", more).run.master;
  };
  BOOST_TEST((master({}) == DType::kNone));
  BOOST_TEST((master({{"train.precision", "fp16"}}) != DType::kNone));
}

BOOST_AUTO_TEST_CASE(unsloth_adapts_all_matrices_with_rank_16_unless_others_are_given) {
  const auto adapters = [](std::vector<Override> more) {
    more.insert(more.end(), {{"plan.framework", "unsloth"}, {"lora.base", "nf4"}});
    const RunConfig c = run_for_model("llama-3-8b", more);
    return std::pair(c.run.lora_rank, c.run.lora_targets);
  };
  BOOST_TEST((adapters({}) == std::pair(16u, 127u)));
  BOOST_TEST((adapters({{"lora.rank", "8"}, {"lora.targets", "[\"q_proj\"]"}}) == std::pair(8u, 1u)));
}

BOOST_AUTO_TEST_CASE(torchtitan_recomputes_by_operator_unless_it_is_told_otherwise) {
  const auto titan = [](std::vector<Override> more) {
    more.push_back({"plan.framework", "torchtitan"});
    return run_for_model("llama-3-8b", more);
  };
  const RunConfig assumed = titan({});
  BOOST_TEST((assumed.run.recompute == Recompute::kSelective));
  BOOST_TEST(std::ranges::count(assumed_keys(assumed), "train.recompute") == 1);
  BOOST_TEST(!assumed.run.parallel.sequence);
  BOOST_TEST(titan({{"parallel.tensor", "2"}}).run.parallel.sequence);
  BOOST_TEST(!titan({{"parallel.tensor", "2"}, {"parallel.sequence", "false"}}).run.parallel.sequence);
  const RunConfig given = titan({{"train.recompute", "none"}});
  BOOST_TEST((given.run.recompute == Recompute::kNone));
  BOOST_TEST(std::ranges::count(assumed_keys(given), "train.recompute") == 0);
  BOOST_TEST((titan({{"plan.mode", "inference"}}).run.recompute == Recompute::kNone));
}

BOOST_AUTO_TEST_CASE(layers_are_recomputed_where_a_framework_does_so_by_default) {
  const auto recompute = [](const char* framework, std::vector<Override> more) {
    more.push_back({"plan.framework", framework});
    return run_for_model("llama-3-8b", more).run.recompute;
  };
  const std::vector<Override> lora = {{"lora.rank", "16"}},
                              qlora = {{"lora.rank", "16"}, {"lora.base", "nf4"}};
  for (const char* framework : {"transformers", "pytorch", "fsdp2", "deepspeed"}) {
    BOOST_TEST((recompute(framework, qlora) == Recompute::kFull), framework);
    BOOST_TEST((recompute(framework, lora) == Recompute::kNone), framework);
  }
  BOOST_TEST((recompute("llama-factory", {}) == Recompute::kFull));
  BOOST_TEST((recompute("axolotl", qlora) == Recompute::kNone));
  std::vector<Override> given = qlora;
  given.push_back({"train.recompute", "none"});
  BOOST_TEST((recompute("transformers", given) == Recompute::kNone));
  BOOST_TEST((recompute("llama-factory", given) == Recompute::kNone));
}

BOOST_AUTO_TEST_CASE(deepspeed_shards_over_several_devices) {
  const auto zero = [](std::vector<Override> more) {
    more.push_back({"plan.framework", "deepspeed"});
    return run_for_model("llama-3-8b", more).run.parallel.zero;
  };
  BOOST_TEST(zero({{"parallel.data", "8"}}) == 3u);
  BOOST_TEST(zero({{"parallel.data", "8"}, {"parallel.zero", "2"}}) == 2u);
  BOOST_TEST(zero({{"parallel.data", "8"}, {"lora.rank", "16"}, {"lora.base", "nf4"}}) == 2u);
  BOOST_TEST(zero({}) == 3u);
}

BOOST_AUTO_TEST_CASE(weights_have_the_type_in_which_a_framework_loads_them) {
  const auto master = [](const char* model, std::vector<Override> more,
                         const char* framework = "transformers") {
    more.push_back({"plan.framework", framework});
    return run_for_model(model, more).run.master;
  };
  BOOST_TEST((master("llama-3-8b", {}) == DType::kNone));
  BOOST_TEST((master("gpt2", {}) == DType::kF32));
  BOOST_TEST((master("llama-3-8b", {{"plan.master", "fp32"}}) == DType::kF32));
  BOOST_TEST((master("llama-3-8b", {{"train.precision", "fp16"}}) == DType::kF32));
  BOOST_TEST((master("llama-3-8b", {{"parallel.data", "8"}, {"parallel.zero", "3"}}) == DType::kF32));
  BOOST_TEST((master("llama-3-8b", {}, "pytorch") == DType::kF32));
  BOOST_TEST((master("llama-3-8b", {}, "llama-factory") == DType::kF32));  // casts trained weights
  BOOST_TEST((master("gpt2", {}, "axolotl") == DType::kNone));
  BOOST_TEST((master("llama-3-8b", {{"parallel.data", "8"}}, "litgpt") == DType::kNone));
}

BOOST_AUTO_TEST_CASE(gpt_oss_of_transformers_has_scores) {
  const auto attention = [](const char* framework) {
    return run_for_model("gpt-oss-20b", {{"plan.framework", framework}}).run.memory.attention;
  };
  BOOST_TEST((attention("transformers") == AttentionMemory::kMaterialised));
  BOOST_TEST((attention("megatron") != AttentionMemory::kMaterialised));
}

BOOST_AUTO_TEST_CASE(optimizers_have_their_own_defaults_also_where_trainhost_is_named) {
  const std::vector<Override> lion{{"optimizer.name", "lion", "--set"}};
  const std::vector<Override> named{lion[0], {"plan.framework", "trainhost", "--for"}};
  BOOST_TEST(assumed_keys(load_run({}, lion)).size() == 3u);
  BOOST_TEST(assumed_keys(load_run({}, named)) == assumed_keys(load_run({}, lion)),
             boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(several_ranks_of_fsdp_shard) {
  const std::vector<Override> fsdp = {{"plan.framework", "fsdp2"}, {"parallel.data", "8"}};
  BOOST_TEST(load_run({}, fsdp).run.parallel.zero == 3u);
  BOOST_TEST(assumed_keys(load_run({}, fsdp)) == std::vector<std::string>{"parallel.zero"},
             boost::test_tools::per_element());
  BOOST_TEST(load_run({}, {fsdp[0], fsdp[1], {"parallel.zero", "2"}}).run.parallel.zero == 2u);
  BOOST_TEST(load_run({}, {fsdp[0]}).run.parallel.zero == 3u);  // one rank
}

BOOST_AUTO_TEST_SUITE_END()
