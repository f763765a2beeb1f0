// See host_buffers.hpp. The training loop allocates exactly these buffers (HostBlock), so plan and run agree
// to the byte. All are in host memory, also for a run on a device.
#include "core/planning/host_buffers.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/base/checked.hpp"
#include "core/base/text.hpp"
#include "core/model/adapters.hpp"
#include "core/model/optimizer_state.hpp"
#include "core/model/shards.hpp"
#include "core/model/tensor_parts.hpp"
#include "core/model/tensors.hpp"

namespace trainhost::planning {

namespace {
constexpr std::uint64_t kStagingBytes = 4u << 20;  // a model whose tensors are all smaller needs less
}

HostBuffers plan_host_buffers(const ModelSpec& m, const RunSpec& r, std::uint64_t data_bytes) {
  HostBuffers b;
  b.ids_per_token = ids_per_token(r);
  b.batch_bytes = checked_mul(r.accumulate, r.micro_batch, r.seq_len, b.ids_per_token, sizeof(std::int32_t));
  // Tensors are converted row by row, so one row of the widest must fit.
  std::uint64_t longest_row = std::max({std::uint64_t{m.hidden}, std::uint64_t{m.intermediate}, m.qkv_width(),
                                        m.vocab, std::uint64_t{r.lora_rank}});
  std::uint64_t embedding = checked_mul(m.vocab, m.hidden, sizeof(float));
  std::uint64_t up = checked_mul(m.intermediate, m.hidden, sizeof(float));
  b.staging_bytes = std::max(std::min(kStagingBytes, std::max(embedding, up)), longest_row * sizeof(float));
  b.data_bytes = data_bytes;
  return b;
}

std::uint64_t state_bytes(const runfile::RunConfig& c) {
  return checked_mul(count_state_elements(c.model, c.run), sizeof(float));
}

bool copies_own_part(const runfile::RunConfig& c) {
  return c.run.parallel.data * c.run.parallel.tensor > 1 && c.output.async_checkpoints &&
         !c.safety.verify_every;
}

std::uint64_t state_copy_bytes(const runfile::RunConfig& c) {
  if (!copies_own_part(c)) return c.output.async_checkpoints || c.safety.verify_every ? state_bytes(c) : 0;
  // The largest part of a tensor that a rank can have to write.
  std::uint64_t elements = 0;
  const auto add = [&](const std::vector<TensorInfo>& tensors) {
    for (const TensorInfo& t : tensors)
      elements = checked_add(
          elements, shard_elements(part_of_tensor(t, c.run.parallel, 0).elements(), c.run.parallel.data));
  };
  add(saved_tensors(c.model, c.run));
  for (int moment = 1; moment <= moment_count(c.run.optimizer); ++moment)
    add(state_tensors(c.model, c.run, moment));
  return checked_mul(elements, sizeof(float));
}

void add_host_buffers(MemoryReport& report, const HostBuffers& b) {
  // Ids stay unique: the estimator's entries come first.
  std::uint32_t next = 1;
  for (const MemoryEntry& n : report.entries) next = std::max(next, n.id + 1);
  auto add_entry = [&](const char* name, std::uint64_t bytes, std::string formula) {
    if (bytes == 0) return;
    MemoryEntry n;
    n.id = next++;
    n.tier = Tier::kHost;
    n.component = Component::kWorkspace;
    // Allocated before loading and freed after the last save, hence in every phase.
    n.phases = kLoad | kForward | kBackward | kUpdate | kEval | kSave | kGenerate;
    n.bytes = n.lo = n.hi = n.bytes_at_peak = bytes;
    n.has_at_peak = true;
    n.name = name;
    n.formula = std::move(formula);
    report.entries.push_back(n);
  };
  const auto equals = [](const char* formula, const std::string& numbers) {
    return std::string(formula) + " = " + numbers;
  };
  add_entry(
      "host.batch", b.batch_bytes,
      fmt::format("accumulate*B*S*{0}*4 = {1}*{0}*4", b.ids_per_token, b.batch_bytes / 4 / b.ids_per_token));
  add_entry("host.staging", b.staging_bytes,
            equals("min(4 MiB, largest matrix), at least its longest row", std::to_string(b.staging_bytes)));
  add_entry("host.data", b.data_bytes, "text in memory");
  add_entry("host.profile", b.profile_bytes, "timing records of one step");
  add_entry("host.state_copy", b.copy_bytes, "4 bytes per trained weight and per number of optimizer state");
  // The host tier may be absent in the report of a device estimator. A report without any peak gets none.
  for (TierPeak& p : report.tiers)
    if (p.tier == Tier::kHost) {
      p.bytes += b.total();
      return;
    }
  // A report whose only tier peaks are those of a device: the host's peak is these buffers alone.
  if (!report.tiers.empty()) report.tiers.push_back({Tier::kHost, b.total(), kForward});
}

// 64: a cache line, and the alignment that vector instructions want.
HostBlock::HostBlock(plugin::Ledger& ledger, std::uint64_t bytes, const char* tag)
    : ledger_(ledger), bytes_(bytes), data_(bytes ? ledger.alloc(bytes, 64, Tier::kHost, tag) : nullptr) {
  if (bytes && !data_)
    throw run_error("cannot allocate " + format_bytes(bytes) + " of host memory for " + std::string(tag));
}

HostBlock::~HostBlock() {
  if (data_) ledger_.release(data_);
}

}  // namespace trainhost::planning
