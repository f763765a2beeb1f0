// See step_profile.hpp. Timing records are written by the trainer into memory of the host during a step and
// read after it, so measuring adds neither allocations nor system calls to the step.
#include "core/training/step_profile.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cassert>
#include <chrono>

#include "core/base/text.hpp"
#include "core/placement/live_bytes.hpp"

namespace trainhost::training {
namespace {

// Bounds on the trace: ui.perfetto.dev opens files of some hundred megabytes, and ten steps show what
// repeats.
constexpr std::uint64_t kMaxTracedSteps = 10, kMaxTracedOps = 200'000;
constexpr std::string_view kCommunication[] = {"all_reduce", "reduce_scatter", "all_gather",
                                               "broadcast",  "sum_scalars",    "wait"};
constexpr std::string_view kPhases[] = {"before_forward", "after_forward", "after_backward", "after_update"};

std::string process_name(const runfile::RunConfig& c, std::uint32_t rank, std::uint32_t ranks) {
  const std::string model = c.model.name.empty() ? c.model.family : c.model.name;
  if (ranks <= 1) return fmt::format("trainhost train {}", model);
  char host[256] = "";
  ::gethostname(host, sizeof host - 1);
  return fmt::format("rank {} on {}: trainhost train {}", rank, host, model);
}

}  // namespace

std::uint64_t now_ns() {
  const auto t = std::chrono::steady_clock::now().time_since_epoch();
  return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(t).count());
}

/// The number of record bytes is known before the session exists, because it is part of the plan.
StepProfile::StepProfile(const std::filesystem::path& file, const runfile::RunConfig& c,
                         plugin::Trainer& trainer, plugin::Ledger& ledger, std::uint32_t rank,
                         std::uint32_t ranks)
    : c_(c),
      trainer_(trainer),
      ledger_(ledger),
      trace_(process_name(c, rank, ranks), trainer.id() + " step", rank),
      most_traced_ops_(kMaxTracedOps / std::max(1u, ranks)) {
  if (rank == 0) file_.emplace("--profile", file, "--profile trace.json");
  const std::optional<std::uint64_t> bytes = trainer.profile_bytes(c.model, c.run);
  if (!bytes)
    throw usage_error(
        fmt::format("--profile: the trainer '{}' cannot be profiled, because it does not time its operations",
                    trainer.id()),
        "train without --profile, or with another --backend");
  record_bytes_ = *bytes;
  result_.layer_ns.resize(c.model.layers);
  for (std::string_view phase : kPhases) result_.phases.push_back({phase, 0, 0, 0, 0});
}

/// From here on the trainer calls phase_reached() at the boundaries of a step, on the thread that calls
/// step().
void StepProfile::start(plugin::Session& session, std::uint64_t steps) {
  planned_steps_ = steps;
  records_.emplace(ledger_, record_bytes_, "host.profile");
  profiler_ = session.start_profiler(records_->as<std::byte>(),
                                     [this](plugin::StepBoundary m, std::uint32_t micro, std::uint64_t live) {
                                       phase_reached(m, micro, live);
                                     });
}

// Called during a step, so it must not allocate. With several micro-batches, "before_forward" is taken from
// the first and the other phases from the last. StepBoundary counts from 1, in the order of kPhases.
void StepProfile::phase_reached(plugin::StepBoundary m, std::uint32_t micro, std::uint64_t live_bytes) {
  const MemorySample sample{now_ns(), ledger_.in_use_total(), meter_.bytes()};
  if (sample_count_ < samples_.size()) samples_[sample_count_++] = sample;
  if (m == plugin::StepBoundary::kBeforeForward && micro != 0) return;
  assert(static_cast<std::size_t>(m) - 1 < result_.phases.size());
  PhaseRow& row = result_.phases[static_cast<std::size_t>(m) - 1];
  row.planned_bytes = live_bytes;
  row.held_bytes = sample.held_bytes;
  row.resident_bytes = sample.resident_bytes;
  if (profiled_steps_ == 0) row.resident_first_bytes = sample.resident_bytes;
}

/// The first step is skipped if there are others: its page faults and kernel selection are not typical.
bool StepProfile::trace_this_step() const {
  const std::uint64_t skipped = planned_steps_ > 1 ? 1 : 0;
  return profiled_steps_ >= skipped && profiled_steps_ < skipped + kMaxTracedSteps &&
         trace_.ops() < most_traced_ops_;
}

/// Few kinds (about 20), so a linear search. An operation without FLOPs outside the update is elementwise.
void StepProfile::add_operation(const plugin::OpTiming& t) {
  OpKindRow* row = nullptr;
  for (OpKindRow& k : result_.kinds)
    if (k.kind == t.kind) row = &k;
  if (!row) {
    row = &result_.kinds.emplace_back();
    row->kind = t.kind;
    row->communication =
        std::find(std::begin(kCommunication), std::end(kCommunication), t.kind) != std::end(kCommunication);
    row->elementwise = t.flops == 0 && t.phase != kUpdate && !row->communication;
  }
  ++row->calls;
  row->ns += t.duration_ns, row->flops += t.flops, row->bytes += t.bytes;
  if (t.phase != kUpdate && t.layer >= 0 && static_cast<std::size_t>(t.layer) < result_.layer_ns.size())
    result_.layer_ns[static_cast<std::size_t>(t.layer)] += t.duration_ns;
}

void StepProfile::step(std::uint64_t number, std::uint64_t start_ns, std::uint64_t end_ns) {
  if (profiled_steps_ == 1) {  // discard the first step: it has page faults
    result_.without_first = true;
    result_.kinds.clear();
    result_.steps = result_.step_ns = 0;
    std::fill(result_.layer_ns.begin(), result_.layer_ns.end(), 0);
  }
  ++result_.steps;
  assert(end_ns >= start_ns);
  result_.step_ns += end_ns - start_ns;
  const bool traced = trace_this_step();
  if (traced) {
    trace_.begin_step(number, start_ns, end_ns);
    if (!result_.traced_first) result_.traced_first = number;
    result_.traced_last = number;
  }
  profiler_->read([&](const plugin::OpTiming& t) {
    // Sums over all profiled steps; only the first few are also written to the trace.
    add_operation(t);
    if (traced) trace_.op(t);
  });
  if (traced) {
    trace_.end_step();
    for (std::size_t i = 0; i < sample_count_; ++i)
      trace_.memory(samples_[i].at_ns, samples_[i].held_bytes, samples_[i].resident_bytes);
    write_trace();
  }
  sample_count_ = 0;
  // The samples of this step are used up; phase_reached() starts again at 0.
  ++profiled_steps_;
}

// Fills the peak by layer and component if the trainer uses the plan of the step program, i.e. if the digests
// are equal.
void StepProfile::describe_peak(const planning::Estimate& estimate) {
  const step::Program p = step::build_program(c_.model, c_.run, trainer_.traits(c_.model, c_.run));
  const placement::MemoryPlan placed = placement::place(p);
  assert(p.ops.empty() || placed.peak_op < p.ops.size());
  if (placed.digest != estimate.report.digest || p.ops.empty()) return;
  for (const placement::LayerShare& s : placement::live_by_layer(p, placed.lifetime, placed.peak_op))
    result_.peak.push_back({s.layer, s.component, s.bytes});
  const step::Op& op = p.ops[placed.peak_op];
  result_.peak_at = fmt::format("{} ({})", step::op_label(p, op), name(op.phase));
}

/// The profiler is destroyed before the records that it writes to. Fragmentation is what the plan contains in
/// addition to tensors and host buffers.
ProfileResult StepProfile::finish(const planning::Estimate& plan) {
  profiler_.reset();
  describe_peak(plan);
  result_.allocated_bytes = ledger_.peak_total();
  result_.used_bytes = plan.total_bytes - plan.report.component_bytes(Component::kFragmentation);
  trace_.finish();
  write_trace();
  if (file_) result_.trace = file_->path().string();
  return result_;
}

void StepProfile::write_trace() {
  if (file_)
    file_->write(trace_.take());
  else
    trace_text_ += trace_.take();
}

void StepProfile::publish() {
  trace_.end();
  write_trace();
  file_->publish();
}

}  // namespace trainhost::training
