// QueueOrder compared with brute force: random operations over two to six queues. Every pair of conflicting
// operations must be connected by a path of queue order and waits, and no wait may be redundant.
#include <boost/test/unit_test.hpp>

#include <random>

#include "plugins/cuda/engine/queue_order.hpp"

namespace trainhost::cuda {
namespace {

struct Operation {
  Queue queue;
  std::vector<Access> accesses;
  QueueOrder::Waits place;
};

bool conflict(const Operation& a, const Operation& b, bool count_overwrites = true) {
  for (const Access& x : a.accesses)
    for (const Access& y : b.accesses) {
      const bool overlap = x.tier == y.tier && x.begin < y.end && y.begin < x.end;
      if (overlap && (x.write || (y.write && count_overwrites))) return true;
    }
  return false;
}

/// reaches[i][j]: operation i has certainly finished before j starts. without() ignores one wait of j.
class Paths {
 public:
  explicit Paths(const std::vector<Operation>& ops)
      : ops_(ops), reaches_(ops.size(), std::vector<bool>(ops.size())) {
    for (std::size_t j = 0; j < ops.size(); ++j) reaches_of(j, kQueues, reaches_);
  }
  bool operator()(std::size_t i, std::size_t j) const { return reaches_[i][j]; }
  /// True if operation i would have finished before j without j's wait for queue r.
  bool without(std::size_t i, std::size_t j, std::uint32_t r) const {
    auto copy = reaches_;
    for (std::size_t k = 0; k < ops_.size(); ++k) copy[k][j] = false;
    reaches_of(j, r, copy);
    return copy[i][j];
  }

 private:
  void reaches_of(std::size_t j, std::uint32_t left_out, std::vector<std::vector<bool>>& to) const {
    const auto before = [&](std::size_t k) {
      to[k][j] = true;
      for (std::size_t i = 0; i < k; ++i)
        if (to[i][k]) to[i][j] = true;
    };
    for (std::size_t k = 0; k < j; ++k) {
      const Operation &a = ops_[k], &b = ops_[j];
      const bool in_order = a.queue == b.queue,
                 waited = a.queue != left_out && b.place.wait[a.queue] == a.place.sequence;
      if (in_order || waited) before(k);
    }
  }
  const std::vector<Operation>& ops_;
  std::vector<std::vector<bool>> reaches_;
};

std::vector<Operation> random_operations(std::mt19937& g) {
  auto below = [&](std::uint32_t n) { return static_cast<std::uint32_t>(g() % n); };
  std::vector<Operation> ops(4 + below(28));
  const std::uint32_t memory = 4 + below(60), queues = 2 + below(kQueues - 1);
  for (Operation& op : ops) {
    op.queue = static_cast<Queue>(below(queues));
    for (std::uint32_t n = 1 + below(3); n > 0; --n) {
      const std::uint64_t begin = below(memory);
      op.accesses.push_back({below(4) ? Tier::kDevice : Tier::kPinned, begin, begin + below(8),
                             below(2) == 0});  // some are empty
    }
  }
  return ops;
}

BOOST_AUTO_TEST_SUITE(cuda_queue_order)

BOOST_AUTO_TEST_CASE(every_conflict_is_ordered_and_no_wait_is_redundant) {
  std::mt19937 g(7);
  std::uint64_t waits = 0, conflicts = 0, unordered_reads = 0;
  QueueOrder order;
  for (int round = 0; round < 4000; ++round) {
    std::vector<Operation> ops = random_operations(g);
    order.all_done();
    for (Operation& op : ops) op.place = order.add(op.queue, op.accesses);
    const Paths before(ops);
    bool good = true;
    for (std::size_t j = 0; j < ops.size() && good; ++j) {
      for (std::size_t i = 0; i < j; ++i) {
        if (!conflict(ops[i], ops[j])) continue;
        ++conflicts;
        if (!before(i, j)) good = false;
      }
      for (std::uint32_t r = 0; r < kQueues; ++r) {
        if (ops[j].place.wait[r] == 0) continue;
        ++waits;
        for (std::size_t i = 0; i < j; ++i)
          if (ops[i].queue == r && ops[i].place.sequence == ops[j].place.wait[r]) {
            if (!conflict(ops[i], ops[j]) || before.without(i, j, r)) good = false, ++unordered_reads;
          }
      }
    }
    BOOST_TEST_REQUIRE(good, "round " << round);
  }
  BOOST_TEST_MESSAGE(conflicts << " conflicts, " << waits << " waits");
  BOOST_TEST(waits > 10000u);
}

// Shows that the check above can fail: if write-after-read were not a conflict, some pairs would have no
// order.
BOOST_AUTO_TEST_CASE(missing_write_after_read_order_is_detected) {
  std::mt19937 g(7);
  int found = 0;
  for (int round = 0; round < 50; ++round) {
    std::vector<Operation> ops = random_operations(g);
    QueueOrder order;
    for (Operation& op : ops) {
      std::vector<Access> seen = op.accesses;  // half of the writes are hidden
      for (Access& a : seen) a.write = a.write && a.begin % 2;
      op.place = order.add(op.queue, seen);
    }
    const Paths before(ops);
    for (std::size_t j = 0; j < ops.size(); ++j)
      for (std::size_t i = 0; i < j; ++i) found += conflict(ops[i], ops[j]) && !before(i, j);
  }
  BOOST_TEST(found > 50);
}

BOOST_AUTO_TEST_CASE(no_waits_after_all_done) {
  QueueOrder order;
  const Access write[] = {{Tier::kDevice, 0, 8, true}}, read[] = {{Tier::kDevice, 4, 12, false}};
  BOOST_TEST(order.add(kKernels, write).sequence == 1u);
  BOOST_TEST(order.add(kUp, read).wait[kKernels] == 1u);
  BOOST_TEST(order.add(kKernels, write).wait[kUp] == 1u);
  order.all_done();
  const QueueOrder::Waits p = order.add(kDown, read);
  BOOST_TEST(p.sequence == 1u);
  BOOST_TEST((p.wait == std::array<std::uint64_t, kQueues>{}));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace trainhost::cuda
