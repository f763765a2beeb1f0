// See step_simulation.hpp. Two lanes share `cores`: while both have work each advances at the rate
// min(1, cores / 2), else at min(1, cores). A latency passes without a core.
#include "core/step/step_simulation.hpp"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <deque>

#include "core/step/op_cost.hpp"
#include "core/step/operands.hpp"

namespace trainhost::step {
namespace {

bool starts_collective(OpKind kind) {
  return kind == OpKind::kAllReduce || kind == OpKind::kReduceScatter || kind == OpKind::kAllGather ||
         kind == OpKind::kSumScalars;
}

class Simulation {
 public:
  Simulation(const Program& p, const StepRates& rates) : p_(p), rates_(rates), ticket_(p.buffers.size()) {}

  SimulatedStep run() {
    for (std::uint32_t micro = 0; micro < p_.run.accumulate; ++micro)
      section(p_.section(SectionKind::kMicro), micro);
    section(p_.section(SectionKind::kUpdate), p_.run.accumulate - 1);
    wait(started_);
    return out_;
  }

 private:
  struct Message {
    double latency, work;  // seconds that remain: until it arrives, of a core
  };

  void section(const Section& s, std::uint32_t micro) {
    for (std::uint32_t i = s.begin; i < s.end; ++i) {
      const Op& op = p_.ops[i];
      if ((op.flags & kLastMicro) && micro + 1 < p_.run.accumulate) continue;
      if (op.kind == OpKind::kWait) {
        wait(ticket_[op[operand::wait::kBuffer]]);
      } else if (starts_collective(op.kind)) {
        start(op);
        if (op.kind == OpKind::kSumScalars) wait(started_);
      } else {
        const OpCost cost = op_cost(p_, op, micro == 0);
        const OpRate& rate = rates_.kinds[static_cast<std::size_t>(op.kind)];
        compute(rate.per_flop * double(cost.flops) + rate.per_byte * double(cost.bytes()) + rates_.between_s);
      }
    }
  }

  /// An all-reduce is a reduce-scatter and an all-gather. A reduction takes as many rounds as its parts fill
  /// the scratch.
  void start(const Op& op) {
    const Parallelism& p = p_.run.parallel;
    const double ranks = op.flags & kAmongTensorRanks     ? p.tensor
                         : op.kind == OpKind::kSumScalars ? p.data * p.tensor
                                                          : p.data;
    const Buffer& b = p_[op[operand::all_reduce::kBuffer]];
    const std::uint64_t elements = op.kind == OpKind::kSumScalars ? 2 : b.rows * b.cols;
    const double bytes = double(elements) * size_of(b.dtype);
    const double received = bytes * (ranks - 1) / ranks;
    const double rounds =
        std::ceil(bytes / double(std::max<std::uint64_t>(1, p_[op[operand::all_reduce::kScratch]].bytes())));
    Message m{0, 0};
    if (ranks > 1 && op.kind != OpKind::kAllGather)
      m.latency += std::max(1.0, rounds) * rates_.latency_s, m.work += received * rates_.reduce_per_byte;
    if (ranks > 1 && op.kind != OpKind::kReduceScatter)
      m.latency += rates_.latency_s, m.work += received * rates_.gather_per_byte;
    const double passes = op.kind == OpKind::kAllReduce || op.kind == OpKind::kSumScalars ? 2 : 1;
    out_.bytes += static_cast<std::uint64_t>(passes * received);
    out_.communication_s += m.latency + m.work;
    queue_.push_back(m);
    ticket_[op[operand::all_reduce::kBuffer]] = ++started_;
  }

  /// Advances both lanes until the compute lane has done `work` seconds.
  void compute(double work) {
    out_.compute_s += work;
    while (work > 0) {
      const bool sends = !queue_.empty() && queue_.front().latency <= 0;
      const double rate = std::min(1.0, rates_.cores / (sends ? 2 : 1));
      double s = work / rate;
      if (!queue_.empty()) s = std::min(s, sends ? queue_.front().work / rate : queue_.front().latency);
      work -= s * rate;
      if (work < 1e-15) work = 0;
      advance(s, rate);
    }
  }

  void wait(std::uint64_t ticket) {
    while (done_ < ticket) {
      const double rate = std::min(1.0, rates_.cores);
      const double s = queue_.front().latency > 0 ? queue_.front().latency : queue_.front().work / rate;
      out_.waited_s += s;
      advance(s, rate);
    }
  }

  /// `s` seconds, in which the communication lane has the part `rate` of a core.
  void advance(double s, double rate) {
    out_.seconds += s;
    if (queue_.empty()) return;
    Message& m = queue_.front();
    if (m.latency > 0)
      m.latency = std::max(0.0, m.latency - s);
    else
      m.work = std::max(0.0, m.work - s * rate);
    if (m.latency < 1e-15) m.latency = 0;
    if (m.latency <= 0 && m.work < 1e-15) queue_.pop_front(), ++done_;
  }

  const Program& p_;
  const StepRates& rates_;
  SimulatedStep out_;
  std::deque<Message> queue_;
  std::vector<std::uint64_t> ticket_;  // by buffer: of the operation that uses it
  std::uint64_t started_ = 0, done_ = 0;
};

}  // namespace

SimulatedStep simulate_step(const Program& p, const StepRates& rates) {
  assert(rates.cores > 0);
  return Simulation(p, rates).run();
}

}  // namespace trainhost::step
