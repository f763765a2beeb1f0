// See op_journal.hpp. Records are written into memory that the plan contains (record_bytes), so that
// profiling allocates nothing in a step. Costs and labels are computed once.
#include "core/abi/op_journal.hpp"

#include <algorithm>
#include <cassert>

#include "core/abi/error_guard.hpp"

namespace trainhost::abi {

// capacity_: one record per operation of an update at most.
OpJournal::OpJournal(const step::Program& program, const placement::MemoryPlan& plan, void* records,
                     th_moments* moments)
    : program_(program),
      records_(static_cast<OpRecord*>(records)),
      capacity_(record_bytes(program) / sizeof(OpRecord)),
      moments_(moments),
      planned_(placement::live_bytes_by_phase(program, plan.lifetime)),
      live_(placement::live_bytes(program, plan.lifetime, program.traits.tier)),
      labels_(program.ops.size()),
      first_(program.ops.size()),
      later_(program.ops.size()),
      first_op_(program.section(step::SectionKind::kMicro).begin) {
  for (step::SectionKind kind : {step::SectionKind::kMicro, step::SectionKind::kUpdate}) {
    const step::Section s = program.section(kind);
    for (std::uint32_t i = s.begin; i < s.end; ++i) {
      labels_[i] = step::op_label(program, program.ops[i]);
      // The first micro-batch overwrites gradients, later ones add: different traffic.
      first_[i] = step::op_cost(program, program.ops[i], true);
      later_[i] = step::op_cost(program, program.ops[i], false);
    }
  }
}

void OpJournal::reached(std::uint32_t boundary, std::uint32_t micro, std::uint64_t live_bytes) {
  if (moments_ && moments_->reached) moments_->reached(moments_, boundary, micro, live_bytes);
}

void OpJournal::begin_update() { count_ = 0, phase_ = 0, micro_ = 0; }

/// The first operation of section micro starts another micro-batch, unless it is the first of the update.
void OpJournal::enter(std::uint32_t op) {
  assert(op < program_.ops.size());
  const std::uint32_t phase = program_.ops[op].phase;
  if (phase != phase_) {
    if (op == first_op_ && phase_ != 0) ++micro_;
    if (phase == kForward)
      reached(TH_BEFORE_FORWARD, micro_, micro_ ? planned_.before_later_forward : planned_.before_forward);
    if (phase == kBackward) reached(TH_AFTER_FORWARD, micro_, planned_.after_forward);
    if (phase == kUpdate) reached(TH_AFTER_BACKWARD, micro_, planned_.after_backward);
    phase_ = phase;
  }
}

void OpJournal::end_update() { reached(TH_AFTER_UPDATE, micro_, planned_.after_update); }

/// A record of several operations (a fused update of all tensors) has the sum of their costs and the largest
/// live bytes among them, and belongs to no layer.
void OpJournal::read(th_op_sink& sink) const {
  std::string together;
  // After the step, in the order in which the operations ran.
  for (std::uint64_t i = 0; i < count_; ++i) {
    const OpRecord& r = records_[i];
    const step::Op& op = program_.ops[r.op];
    step::OpCost cost;
    std::uint64_t live = 0;
    // r.count consecutive operations; 1 unless fused.
    for (std::uint32_t o = r.op; o < r.op + r.count; ++o) {
      cost += (r.micro == 0 ? first_ : later_)[o];
      live = std::max(live, live_[o]);
    }
    if (r.count > 1)
      together = std::string(step::op_info(op.kind).name) + " of " + std::to_string(r.count) + " tensors";
    th_op_record out{};
    out.struct_size = sizeof out;
    out.phase = op.phase;
    out.layer = r.count > 1 ? -1 : op.layer;
    out.micro = r.micro;
    out.kind = step::op_info(op.kind).name;
    out.name = r.count > 1 ? together.c_str() : labels_[r.op].c_str();
    out.start_ns = r.start_ns;
    out.duration_ns = r.end_ns - r.start_ns;
    out.flops = cost.flops;
    out.bytes_read = cost.bytes_read;
    out.bytes_written = cost.bytes_written;
    out.live_bytes = live;
    if (th_status s = sink.op(&sink, &out); s != TH_OK) throw StatusError(s, "the host rejected a record");
  }
}

}  // namespace trainhost::abi
