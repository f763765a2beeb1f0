// See step_simulation.hpp. Lanes share `cores`: while n of them have work each advances at the rate
// min(1, cores / n). A latency passes without a core.
#include "core/step/step_simulation.hpp"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <deque>
#include <limits>
#include <utility>

#include "core/step/op_cost.hpp"
#include "core/step/operands.hpp"

namespace trainhost::step {
namespace {

bool starts_collective(OpKind kind) {
  return kind == OpKind::kAllReduce || kind == OpKind::kReduceScatter || kind == OpKind::kAllGather ||
         kind == OpKind::kSumScalars;
}

/// Adds `n` times what was added to `total` since it was `before`.
void add_again(SimulatedStep& total, const SimulatedStep& before, std::uint32_t n) {
  const SimulatedStep now = total;
  for (double SimulatedStep::*part :
       {&SimulatedStep::seconds, &SimulatedStep::compute_s, &SimulatedStep::communication_s,
        &SimulatedStep::waited_s, &SimulatedStep::arithmetic_s, &SimulatedStep::traffic_s,
        &SimulatedStep::recompute_s, &SimulatedStep::update_s, &SimulatedStep::tensor_s,
        &SimulatedStep::data_s})
    total.*part += n * (now.*part - before.*part);
  total.bytes += n * (now.bytes - before.bytes);
}

class Simulation {
 public:
  Simulation(const Program& p, const StepRates& rates) : p_(p), rates_(rates), ticket_(p.buffers.size()) {}

  SimulatedStep run() {
    // The scalars, which a micro-batch begins with, wait for everything before them. So all micro-batches but
    // the first two, whose gradients and predecessors differ, and the last begin in the same state.
    constexpr std::uint32_t kDistinct = 3;
    const std::uint32_t last = p_.run.accumulate - 1;
    SimulatedStep before;
    for (std::uint32_t micro = 0; micro < std::min(last, kDistinct); ++micro)
      before = out_, section(p_.section(SectionKind::kMicro), micro);
    if (last > kDistinct) add_again(out_, before, last - kDistinct);
    section(p_.section(SectionKind::kMicro), last);
    section(p_.section(SectionKind::kUpdate), last);
    wait_for_all();
    return out_;
  }

 private:
  struct Message {
    double latency, work;  // seconds that remain: until it arrives, of a core
    bool among_tensor_ranks;
  };

  void section(const Section& s, std::uint32_t micro) {
    for (std::uint32_t i = s.begin; i < s.end; ++i) {
      const Op& op = p_.ops[i];
      if ((op.flags & kLastMicro) && micro + 1 < p_.run.accumulate) continue;
      const Op* const before = std::exchange(previous_, &op);
      if (op.kind == OpKind::kWait) {
        wait_for(op[operand::wait::kBuffer]);
      } else if (starts_collective(op.kind)) {
        start(op, before && before->kind == op.kind && before->flags == op.flags);
        if (op.kind == OpKind::kSumScalars) wait_for_all();
      } else {
        compute(op, micro == 0);
      }
    }
  }

  void compute(const Op& op, bool first_micro) {
    const OpCost cost = op_cost(p_, op, first_micro);
    const OpRate& rate = rates_.kinds[static_cast<std::size_t>(op.kind)];
    const double arithmetic = rate.per_flop * double(cost.flops);
    const double work = std::max(arithmetic, rate.per_byte * double(cost.bytes())) + rates_.between_s;
    if (op.phase == kUpdate)
      out_.update_s += work;
    else if (op.flags & kRecomputed)
      out_.recompute_s += work;
    else
      out_.arithmetic_s += arithmetic, out_.traffic_s += work - arithmetic;
    compute(work);
  }

  /// An all-reduce is a reduce-scatter and an all-gather. `again`: directly after one of the same kind.
  void start(const Op& op, bool again) {
    const Parallelism& p = p_.run.parallel;
    const bool tensor = (op.flags & kAmongTensorRanks) || p.data == 1;
    const LinkRates& link = tensor ? rates_.tensor : rates_.data;
    const double ranks = op.flags & kAmongTensorRanks     ? p.tensor
                         : op.kind == OpKind::kSumScalars ? double(p.data) * p.tensor
                                                          : p.data;
    const Buffer& b = p_[op[operand::all_reduce::kBuffer]];
    const std::uint64_t elements = op.kind == OpKind::kSumScalars ? 2 : b.rows * b.cols;
    const double bytes = double(elements) * size_of(b.dtype);
    const double received = bytes * (ranks - 1) / ranks;
    const double scratch = double(std::max<std::uint64_t>(1, p_[op[operand::all_reduce::kScratch]].bytes()));
    const double rounds = link.rounds ? std::max(1.0, std::ceil(bytes / scratch)) : 1;
    const bool gathers = op.kind != OpKind::kReduceScatter, reduces = op.kind != OpKind::kAllGather;
    Message m{0, 0, tensor};
    if (ranks > 1) {
      if (!(again && link.coalesces))
        m.latency = gathers && reduces ? link.all_reduce_latency_s : link.latency_s;
      if (reduces) m.latency += (rounds - 1) * link.latency_s, m.work += received * link.reduce_per_byte;
      if (gathers) m.work += received * link.gather_per_byte;
    }
    out_.bytes += static_cast<std::uint64_t>((gathers && reduces ? 2 : 1) * received);
    out_.communication_s += m.latency + m.work;
    const std::size_t lane = rates_.lane_per_group && tensor ? 1 : 0;
    lanes_[lane].queue.push_back(m);
    ticket_[op[operand::all_reduce::kBuffer]] = {lane, ++lanes_[lane].started};
  }

  struct Lane {
    std::deque<Message> queue;
    std::uint64_t started = 0, done = 0;
    bool sends() const { return !queue.empty() && queue.front().latency <= 0; }
  };
  struct Ticket {
    std::size_t lane = 0;
    std::uint64_t number = 0;
  };

  /// The part of a core that each lane with work has.
  double rate(bool computes) const {
    const int busy = int{computes} + int{lanes_[0].sends()} + int{lanes_[1].sends()};
    return std::min(1.0, rates_.cores / std::max(1, busy));
  }

  /// Seconds until the first message of a lane arrives or is complete, at most `s`.
  double next_event(double s, double rate) const {
    for (const Lane& lane : lanes_)
      if (!lane.queue.empty())
        s = std::min(s, lane.sends() ? lane.queue.front().work / rate : lane.queue.front().latency);
    return s;
  }

  /// Advances all lanes until the compute lane has done `work` seconds.
  void compute(double work) {
    out_.compute_s += work;
    while (work > 0) {
      const double r = rate(true), s = next_event(work / r, r);
      work -= s * r;
      if (work < 1e-15) work = 0;
      advance(s, r);
    }
  }

  void wait(const Ticket& t) {
    const Lane& lane = lanes_[t.lane];
    while (lane.done < t.number) {
      const double r = rate(false), s = next_event(std::numeric_limits<double>::infinity(), r);
      out_.waited_s += s;
      (lane.queue.front().among_tensor_ranks ? out_.tensor_s : out_.data_s) += s;
      advance(s, r);
    }
  }
  void wait_for(BufferId buffer) { wait(ticket_[buffer]); }
  void wait_for_all() {
    for (const std::size_t lane : {0, 1}) wait({lane, lanes_[lane].started});
  }

  /// `s` seconds, in which a lane that sends has the part `rate` of a core.
  void advance(double s, double rate) {
    out_.seconds += s;
    for (Lane& lane : lanes_) {
      if (lane.queue.empty()) continue;
      Message& m = lane.queue.front();
      if (m.latency > 0)
        m.latency = std::max(0.0, m.latency - s);
      else
        m.work = std::max(0.0, m.work - s * rate);
      if (m.latency < 1e-15) m.latency = 0;
      if (m.latency <= 0 && m.work < 1e-15) lane.queue.pop_front(), ++lane.done;
    }
  }

  const Program& p_;
  const StepRates& rates_;
  SimulatedStep out_;
  const Op* previous_ = nullptr;  // the operation before this one
  std::array<Lane, 2> lanes_;
  std::vector<Ticket> ticket_;  // by buffer: of the operation that uses it
};

}  // namespace

SimulatedStep simulate_step(const Program& p, const StepRates& rates) {
  assert(rates.cores > 0);
  return Simulation(p, rates).run();
}

}  // namespace trainhost::step
