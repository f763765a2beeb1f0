// The estimator of PyTorch on runs that keep weights, gradients or the optimizer in host memory: DeepSpeed
// and FSDP. Without offload: sharded_runs_test.cpp.
#include <boost/test/unit_test.hpp>
#include <map>

#include "tests/plugins/estimators/pytorch_runs.hpp"
#include "tests/plugins/estimators/report_notes.hpp"

using namespace trainhost;
using namespace trainhost::test;
using frameworks::Purpose;
using nlohmann::json;

namespace {

MemoryReport estimate_deepspeed(const RunSpec& run, std::map<std::string, std::string> more) {
  more["framework"] = "deepspeed";
  return estimate(run, std::move(more));
}

}  // namespace

BOOST_AUTO_TEST_SUITE(offloaded_runs)

BOOST_AUTO_TEST_CASE(the_settings_of_a_run_with_offload_allocate_what_pytorch_counts) {
  std::size_t cases = 0;
  for (const json& record : test::oracle_records("deepspeed-offload")) {
    const json &c = record.at("case"), &zero = c.at("zero"), &offload = zero.at("offload");
    if (zero.at("groups") != 2) continue;  // transformers always makes two
    RunSpec r = run_of(c);
    if (c.at("precision") == "bf16") r.weight = r.compute = DType::kBF16, r.master = DType::kF32;
    r.parallel.data = zero.at("world"), r.parallel.zero = zero.at("stage");
    if (offload.at("optimizer")) r.memory.optimizer_in = Tier::kHost;
    if (offload.at("param")) r.memory.weights_in = Tier::kHost;
    pytorch::Options o = options_of(c);
    o.framework = pytorch::Framework::kDeepSpeed;
    o.offload_gradients = offload.at("optimizer");
    o.reduce_bucket = zero.at("bucket"), o.overlap_reduce = zero.at("overlap");
    BOOST_TEST_CONTEXT("case " << record.at("n") << ": " << c.dump()) {
      const std::uint64_t measured = measured_peak(record);
      const std::uint64_t own = replayed_peak(c, r, o, [&](frameworks::StepSettings& s) {
        s.zero.rank = zero.at("rank");
        if (zero.at("stage") != 3) return;
        s.zero.sub_group = zero.at("sub_group"), s.zero.prefetch = zero.at("prefetch");
        s.zero.persistence = zero.at("persistence"), s.zero.max_live = zero.at("max_live");
        s.zero.reuse_distance = zero.at("reuse");
      });
      BOOST_TEST(std::max(own, measured) - std::min(own, measured) <= 256u);
    }
    ++cases;
  }
  BOOST_TEST(cases >= 8u);
}

BOOST_AUTO_TEST_CASE(fsdp_offloads_shards_gradients_and_optimizer_together) {
  constexpr std::uint64_t kPart = 8030261248 / 8;  // parameters of a rank
  const std::map<std::string, std::string> gradients{{"offload_gradients", "cpu"}};
  for (const char* version : {"1", "2"}) {
    std::map<std::string, std::string> more{{"framework", "transformers"}, {"fsdp_version", version}};
    RunSpec r = mixed_precision();
    r.parallel.data = 8, r.parallel.zero = 3;
    const MemoryReport on_device = estimate(r, more);
    more.merge(std::map(gradients));
    r.memory.weights_in = r.memory.optimizer_in = Tier::kHost;
    const MemoryReport report = estimate(r, more);
    BOOST_TEST_CONTEXT("FSDP" << version) {
      // f32 shards and two moments, less the copy of the largest shard. Gradients of the shards are on the
      // device for a time under FSDP1, and freed one by one under FSDP2.
      BOOST_TEST(bytes_of(report, Purpose::kOptimizerState) == 0u);
      const std::uint64_t saved = on_device.tier_bytes(Tier::kDevice) - report.tier_bytes(Tier::kDevice);
      BOOST_TEST(saved > 11 * kPart);
      BOOST_TEST(saved < 17 * kPart);
      BOOST_TEST(report.tier_bytes(Tier::kHost) + report.tier_bytes(Tier::kPinned) >= 16 * kPart);
      BOOST_TEST(on_device.tier_bytes(Tier::kHost) == 0u);
      BOOST_TEST(has_note(report, "are in host memory (fsdp_offload_params)"));
    }
    // Adapters: the frozen base is most of what is moved.
    RunSpec lora = r;
    lora.mode = RunMode::kLora, lora.lora_rank = 8, lora.lora_targets = frameworks::kLoraQ;
    const std::uint64_t moved = estimate(lora, more).tier_bytes(Tier::kDevice);
    lora.memory.weights_in = lora.memory.optimizer_in = Tier::kDevice;
    const std::uint64_t kept =
        estimate(lora, {{"framework", "transformers"}, {"fsdp_version", version}}).tier_bytes(Tier::kDevice);
    BOOST_TEST(kept - moved > kPart);
    RunSpec half = r;
    half.memory.optimizer_in = Tier::kDevice;
    check_refused(half, more, "this offload with FSDP: it moves weights, gradients and optimizer together");
    half.memory.optimizer_in = Tier::kDisk;
    check_refused(half, more, "offload to \"nvme\" with FSDP: it has host memory only");
  }
}

BOOST_AUTO_TEST_CASE(an_offloaded_optimizer_is_in_host_memory_as_pytorch_allocates_it) {
  RunSpec r = mixed_precision();
  r.parallel.data = 8, r.parallel.zero = 2;
  const MemoryReport on_device = estimate_deepspeed(r, {});
  r.memory.optimizer_in = Tier::kHost;
  const std::map<std::string, std::string> cpu{{"offload_gradients", "cpu"}};
  const MemoryReport report = estimate_deepspeed(r, cpu);
  constexpr std::uint64_t kPart = 8030261248 / 8, kGiB = std::uint64_t{1} << 30;
  BOOST_TEST(bytes_of(report, Purpose::kMasterWeights) == 0u);
  BOOST_TEST(bytes_of(report, Purpose::kOptimizerState) == 0u);
  BOOST_TEST(report.tier_bytes(Tier::kDevice) < on_device.tier_bytes(Tier::kDevice) - 12 * kPart);
  // Moments are not pinned; f32 weights and gradients (3.7 GiB each) are, in blocks of a power of two.
  BOOST_TEST(report.tier_bytes(Tier::kHost) == 8 * kPart);
  BOOST_TEST(report.tier_bytes(Tier::kPinned) >= 2 * 4 * kGiB + 2 * kGiB);
  BOOST_TEST(on_device.tier_bytes(Tier::kPinned) == 0u);
  // Below stage 3 the weights stay, and nvme is the memory of the host.
  RunSpec other = r;
  other.memory.optimizer_in = Tier::kDisk, other.memory.weights_in = Tier::kHost;
  const MemoryReport same = estimate_deepspeed(other, {{"offload_gradients", "nvme"}});
  BOOST_TEST(same.total_bytes() == report.total_bytes());
  BOOST_TEST(has_note(same, "offload_param has no effect below ZeRO 3"));
  BOOST_TEST(has_note(same, "in host memory, also with the device nvme"));
  check_refused(r, {{"framework", "deepspeed"}}, "plan.offload_gradients = \"none\": DeepSpeed keeps");
  other.parallel.zero = 3;
  check_refused(other, {{"framework", "deepspeed"}, {"offload_gradients", "nvme"}},
                "plan.offload_optimizer = \"nvme\" with ZeRO 3 of DeepSpeed");
  r.parallel.zero = 3, r.memory.weights_in = Tier::kHost;
  const MemoryReport both = estimate_deepspeed(r, cpu);
  BOOST_TEST(both.tier_bytes(Tier::kDevice) < report.tier_bytes(Tier::kDevice));
  BOOST_TEST(both.tier_bytes(Tier::kHost) == 12 * kPart);  // f32 weights too are not pinned
}

BOOST_AUTO_TEST_SUITE_END()
