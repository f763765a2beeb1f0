// The plain trainer of sdk/examples with one operand of one operation replaced before the operation runs. The
// environment variable TEST_MUTATION selects it when a run is created: "KIND SLOT VALUE FIRST COUNT", numbers
// of the operation and of the input slot, the value that replaces its elements, and the range of elements
// (COUNT 0: all). Without the variable the trainer is correct.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <sstream>

#include "core/executor/trainer.hpp"
#include "sdk/examples/plain_trainer/plain_kernels.hpp"

TH_MANIFEST(
    "id = \"mutated\"\n"
    "version = \"1\"\n"
    "kind = \"trainer\"\n"
    "summary = \"a test plugin\"\n"
    "families = [\"llama\", \"mistral\", \"qwen2\", \"qwen3\"]\n"
    "options = []\n");

namespace {

namespace th_ex = trainhost::executor;
namespace step = trainhost::step;
using Plain = th_ex::KernelTrainer<plain::Kernels>;

struct Mutation {
  unsigned kind = 255, slot = 0;
  int value = 0;
  std::uint64_t first = 0, count = 0;
};

Mutation selected_mutation() {
  Mutation m;
  if (const char* text = std::getenv("TEST_MUTATION"))
    std::istringstream(text) >> m.kind >> m.slot >> m.value >> m.first >> m.count;
  return m;
}

class MutatingBackend final : public th_ex::Backend {
 public:
  MutatingBackend(const step::Program& program, th_ex::Storage& storage)
      : program_(program),
        storage_(storage),
        correct_(std::make_shared<plain::Kernels>(), program, storage, "mutated"),
        mutation_(selected_mutation()) {}

  std::string kernel_set() const override { return correct_.kernel_set(); }

  void run(std::span<const step::Op> ops, const th_ex::StepState& state) override {
    const step::Op& op = ops.front();
    const step::BufferId id = op.in[mutation_.slot];
    if (static_cast<unsigned>(op.kind) != mutation_.kind || id == step::kNoBuffer)
      return correct_.run(ops, state);
    const step::Buffer& b = program_[id];
    if (b.storage == step::Storage::kExternal) return run_with_other_ids(ops, state, b);
    auto* bytes = static_cast<std::byte*>(storage_.at(id));
    std::vector<std::byte> before(bytes, bytes + b.bytes());
    replace_elements(b, bytes);
    correct_.run(ops, state);
    // An operand that is changed in place keeps the operation's result.
    if (!(step::op_info(op.kind).inout_mask >> mutation_.slot & 1))
      std::copy(before.begin(), before.end(), bytes);
  }

 private:
  void replace_elements(const step::Buffer& b, void* data) const {
    const std::uint64_t first = mutation_.count ? mutation_.first : 0,
                        end = mutation_.count ? first + mutation_.count : b.rows * b.cols;
    if (b.dtype == trainhost::DType::kF64)
      std::fill(static_cast<double*>(data) + first, static_cast<double*>(data) + end, mutation_.value);
    else
      std::fill(static_cast<float*>(data) + first, static_cast<float*>(data) + end,
                static_cast<float>(mutation_.value));
  }

  /// Token ids or targets come from the host and not from the arena.
  void run_with_other_ids(std::span<const step::Op> ops, th_ex::StepState state, const step::Buffer& b) {
    const std::vector<std::int32_t> ids(b.rows * b.cols, mutation_.value);
    (ops.front().kind == step::OpKind::kEmbed || ops.front().kind == step::OpKind::kEmbedBwd
         ? state.tokens
         : state.targets) = ids.data();
    correct_.run(ops, state);
  }

  const step::Program& program_;
  th_ex::Storage& storage_;
  th_ex::KernelBackend<plain::Kernels> correct_;
  const Mutation mutation_;
};

struct MutatedTrainer {
  static std::uint32_t probe(const th_host* host) { return Plain::probe(host); }
  static th_ex::Choice choose(const th_host* host, const trainhost::ModelSpec& m,
                              const trainhost::RunSpec& r) {
    th_ex::Choice c = Plain::choose(host, m, r);
    c.traits.trainer = "mutated";
    return c;
  }
  static std::unique_ptr<th_ex::Run> create(const th_host* host, std::int32_t device,
                                            const trainhost::ModelSpec& m, const trainhost::RunSpec& r) {
    if (device != 0) throw trainhost::abi::StatusError(TH_E_ARG, "the only device is 0");
    return std::make_unique<th_ex::Run>(host, m, r, choose(host, m, r).traits,
                                        [](const step::Program& program, th_ex::Storage& storage) {
                                          return std::make_unique<MutatingBackend>(program, storage);
                                        });
  }
  using Front = th_ex::FrontCalls<MutatedTrainer>;
  using Calls = th_ex::InstanceCalls<th_ex::Run, MutatedTrainer>;
};

}  // namespace

TH_PLUGIN("mutated", "1", &th_ex::kTrainerTable<MutatedTrainer::Front, MutatedTrainer::Calls>,
          &th_ex::kGenerateTable<MutatedTrainer::Calls>,
          &th_ex::kProfilerTable<MutatedTrainer::Front, MutatedTrainer::Calls>)
