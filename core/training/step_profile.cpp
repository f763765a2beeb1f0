// See step_profile.hpp.
#include "core/training/step_profile.hpp"

#include <fmt/format.h>

#include <chrono>

#include "core/base/text.hpp"
#include "core/placement/live_bytes.hpp"

namespace trainhost::training {
namespace {

constexpr std::uint64_t kTracedSteps = 10, kTracedOps = 200'000;
constexpr std::string_view kMoments[] = {"before_forward", "after_forward", "after_backward", "after_update"};

}  // namespace

std::uint64_t now_ns() {
  const auto t = std::chrono::steady_clock::now().time_since_epoch();
  return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(t).count());
}

StepProfile::StepProfile(const std::filesystem::path& file, const runfile::RunConfig& c,
                         plugin::Trainer& trainer, plugin::Ledger& ledger)
    : c_(c),
      trainer_(trainer),
      ledger_(ledger),
      file_(file),
      trace_(fmt::format("trainhost train {}", c.model.name.empty() ? c.model.family : c.model.name),
             trainer.id() + " step") {
  const std::optional<std::uint64_t> bytes = trainer.profile_bytes(c.model, c.run);
  if (!bytes)
    throw usage_error(
        fmt::format("--profile: the trainer '{}' cannot be profiled: it does not time its operations",
                    trainer.id()),
        "train without --profile, or with another --backend");
  record_bytes_ = *bytes;
  view_.layer_ns.resize(c.model.layers);
  for (std::string_view moment : kMoments) view_.phases.push_back({moment, 0, 0, 0, 0});
}

void StepProfile::start(plugin::Session& session, std::uint64_t steps) {
  steps_ = steps;
  records_.emplace(ledger_, record_bytes_, "host.profile");
  profiler_ = session.profile(
      records_->as<std::byte>(),
      [this](plugin::StepMoment m, std::uint32_t micro, std::uint64_t live) { reached(m, micro, live); });
}

// Inside a step: no allocation. Of several micro-batches, before the forward pass of the first counts, else
// the last.
void StepProfile::reached(plugin::StepMoment m, std::uint32_t micro, std::uint64_t live_bytes) {
  const Look look{now_ns(), ledger_.now_total(), meter_.bytes()};
  if (looks_count_ < looks_.size()) looks_[looks_count_++] = look;
  if (m == plugin::StepMoment::kBeforeForward && micro != 0) return;
  PhaseRow& row = view_.phases[static_cast<std::size_t>(m) - 1];
  row.planned_bytes = live_bytes;
  row.held_bytes = look.held_bytes;
  row.resident_bytes = look.resident_bytes;
  if (steps_seen_ == 0) row.resident_first_bytes = look.resident_bytes;
}

bool StepProfile::tracing() const {
  const std::uint64_t skipped = steps_ > 1 ? 1 : 0;
  return steps_seen_ >= skipped && steps_seen_ < skipped + kTracedSteps && trace_.ops() < kTracedOps;
}

void StepProfile::add(const plugin::OpTiming& t) {
  OpKindRow* row = nullptr;
  for (OpKindRow& k : view_.kinds)
    if (k.kind == t.kind) row = &k;
  if (!row) {
    row = &view_.kinds.emplace_back();
    row->kind = t.kind;
    row->elementwise = t.flops == 0 && t.phase != kUpdate;
  }
  ++row->calls;
  row->ns += t.duration_ns, row->flops += t.flops, row->bytes += t.bytes;
  if (t.phase != kUpdate && t.layer >= 0 && static_cast<std::size_t>(t.layer) < view_.layer_ns.size())
    view_.layer_ns[static_cast<std::size_t>(t.layer)] += t.duration_ns;
}

void StepProfile::step(std::uint64_t number, std::uint64_t start_ns, std::uint64_t end_ns) {
  if (steps_seen_ == 1) {  // now there is a better one than the first
    view_.without_first = true;
    view_.kinds.clear();
    view_.steps = view_.step_ns = 0;
    std::fill(view_.layer_ns.begin(), view_.layer_ns.end(), 0);
  }
  ++view_.steps;
  view_.step_ns += end_ns - start_ns;
  const bool traced = tracing();
  if (traced) {
    trace_.begin_step(number, start_ns, end_ns);
    if (!view_.traced_first) view_.traced_first = number;
    view_.traced_last = number;
  }
  profiler_->read([&](const plugin::OpTiming& t) {
    add(t);
    if (traced) trace_.op(t);
  });
  if (traced) {
    trace_.end_step();
    for (std::size_t i = 0; i < looks_count_; ++i)
      trace_.memory(looks_[i].at_ns, looks_[i].held_bytes, looks_[i].resident_bytes);
    file_.write(trace_.take());
  }
  looks_count_ = 0;
  ++steps_seen_;
}

// By layer and component, where the trainer's plan is that of the step program: the digests say so.
void StepProfile::describe_peak(const planning::Estimate& estimate) {
  const step::Program p = step::build_program(c_.model, c_.run, trainer_.traits(c_.model, c_.run));
  const placement::MemoryPlan placed = placement::place(p);
  if (placed.digest != estimate.report.digest || p.ops.empty()) return;
  for (const placement::LayerShare& s : placement::live_by_layer(p, placed.lifetime, placed.peak_op))
    view_.peak.push_back({s.layer, s.component, s.bytes});
  const step::Op& op = p.ops[placed.peak_op];
  view_.peak_at = fmt::format("{} ({})", step::op_label(p, op), name(op.phase));
}

ProfileResult StepProfile::finish(const planning::Estimate& plan) {
  profiler_.reset();
  describe_peak(plan);
  view_.allocated_bytes = ledger_.peak_total();
  view_.used_bytes = plan.total_bytes - plan.report.component_bytes(Component::kFragmentation);
  trace_.finish();
  file_.write(trace_.take());
  file_.publish();
  view_.trace = file_.path().string();
  return view_;
}

}  // namespace trainhost::training
