// Several ranks in one process, for tests: each is a thread with its own th_ranks. Sums are plain loops in
// the order of the ranks. A rank that ends early leaves the others without it (drop()).
#pragma once
#include <condition_variable>
#include <cstring>
#include <exception>
#include <functional>
#include <map>
#include <mutex>
#include <thread>
#include <tuple>
#include <vector>

#include "core/base/collectives.hpp"
#include "core/base/types.hpp"
#include "trainhost/communicator.h"

namespace trainhost::test {

class ThreadRanks {
 public:
  explicit ThreadRanks(std::uint32_t ranks, std::uint64_t timeout_ms = 60000)
      : current_(ranks), dropped_(ranks), bytes_(ranks) {
    for (std::uint32_t r = 0; r < ranks; ++r) members_.push_back({this, r});
    for (std::uint32_t r = 0; r < ranks; ++r) {
      th_ranks t{};
      t.struct_size = sizeof t, t.rank = t.local_rank = r, t.ranks = t.local_ranks = ranks;
      t.self = &members_[r], t.timeout_ms = timeout_ms;
      t.start = [](const th_ranks* self, const th_collective* c, std::uint64_t* ticket, th_error*) {
        auto* m = static_cast<Member*>(self->self);
        m->of->run(m->rank, *c);
        *ticket = ++m->started;
        return TH_OK;
      };
      t.wait = [](const th_ranks* self, std::uint64_t ticket, th_error*) -> th_status {
        return ticket <= static_cast<Member*>(self->self)->started ? TH_OK : TH_E_ARG;
      };
      tables_.push_back(t);
    }
  }
  ThreadRanks(const ThreadRanks&) = delete;
  const th_ranks* rank(std::uint32_t r) const { return &tables_[r]; }
  /// Bytes of all operations that rank r started: 2(N-1)/N of a sum on all ranks, (N-1)/N of the others.
  double bytes(std::uint32_t r) const { return bytes_[r]; }

  /// Calls f(rank) on a thread per rank; throws what the first rank that failed has thrown.
  void each(const std::function<void(std::uint32_t)>& f) {
    std::vector<std::exception_ptr> failed(tables_.size());
    std::vector<std::thread> threads;
    for (std::uint32_t r = 0; r < tables_.size(); ++r)
      threads.emplace_back([&, r] {
        try {
          f(r);
        } catch (...) {
          failed[r] = std::current_exception();
          drop(r);
        }
      });
    for (std::thread& t : threads) t.join();
    for (const std::exception_ptr& e : failed)
      if (e) std::rethrow_exception(e);
  }

 private:
  struct Member {
    ThreadRanks* of;
    std::uint32_t rank;
    std::uint64_t started = 0;
  };

  void run(std::uint32_t rank, const th_collective& c) {
    current_[rank] = c;
    const GroupMember here = member_of({c.width, c.stride}, rank, static_cast<std::uint32_t>(tables_.size()));
    const std::uint64_t ranks = here.count, size = size_of(static_cast<DType>(c.dtype));
    const std::uint64_t begin = std::min(c.count, c.piece * here.number),
                        end = std::min(c.count, begin + c.piece);
    const double share =
        static_cast<double>(c.count * size) * static_cast<double>(ranks - 1) / static_cast<double>(ranks);
    bytes_[rank] += c.kind == TH_ALL_REDUCE ? 2 * share : share;
    meet(here);
    if (c.kind == TH_ALL_REDUCE || c.kind == TH_REDUCE_SCATTER) {
      // Piece r is added up by rank r, who alone writes to it.
      if (c.dtype == TH_DT_F64)
        add<double>(rank, here, begin, end);
      else
        add<float>(rank, here, begin, end);
    }
    meet(here);
    if (c.kind == TH_BROADCAST && here.number != c.root)
      std::memcpy(c.data, current_[here.rank(c.root)].data, c.count * size);
    if (c.kind == TH_ALL_REDUCE || c.kind == TH_ALL_GATHER)
      for (std::uint32_t r = 0; r < ranks; ++r) {
        const std::uint64_t first = std::min(c.count, c.piece * r), last = std::min(c.count, first + c.piece);
        if (r != here.number && first < last)
          std::memcpy(static_cast<char*>(c.data) + first * size,
                      static_cast<const char*>(current_[here.rank(r)].data) + first * size,
                      (last - first) * size);
      }
    // What a rank may not read after a reduce_scatter.
    if (c.kind == TH_REDUCE_SCATTER) {
      meet(here);
      auto* data = static_cast<char*>(c.data);
      std::memset(data, 0xff, begin * size);
      std::memset(data + end * size, 0xff, (c.count - end) * size);
    }
    meet(here);
  }
  /// The ranks of a group wait for each other; not for those that have ended.
  struct Meeting {
    std::uint32_t arrived = 0;
    std::uint64_t turn = 0;
  };
  using Group = std::tuple<std::uint32_t, std::uint32_t, std::uint32_t>;  // first, stride, count
  void meet(const GroupMember& here) {
    std::unique_lock lock(mutex_);
    const Group group{here.first, here.stride, here.count};
    Meeting& m = meetings_[group];
    const std::uint64_t turn = m.turn;
    ++m.arrived;
    end_if_complete(group, m);
    changed_.wait(lock, [&] { return m.turn != turn; });
  }
  void drop(std::uint32_t rank) {
    std::lock_guard lock(mutex_);
    dropped_[rank] = true;
    for (auto& [group, m] : meetings_) end_if_complete(group, m);
  }
  void end_if_complete(const Group& group, Meeting& m) {
    const auto [first, stride, count] = group;
    std::uint32_t expected = 0;
    for (std::uint32_t i = 0; i < count; ++i) expected += !dropped_[first + i * stride];
    if (m.arrived == 0 || m.arrived < expected) return;
    m.arrived = 0, ++m.turn;
    changed_.notify_all();
  }

  template <class T>
  void add(std::uint32_t rank, const GroupMember& here, std::uint64_t begin, std::uint64_t end) {
    for (std::uint64_t i = begin; i < end; ++i) {
      T sum = 0;
      for (std::uint32_t r = 0; r < here.count; ++r)
        sum += static_cast<const T*>(current_[here.rank(r)].data)[i];
      static_cast<T*>(current_[rank].data)[i] = sum;
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<Group, Meeting> meetings_;
  std::vector<th_collective> current_;
  std::vector<bool> dropped_;
  std::vector<double> bytes_;
  std::vector<Member> members_;
  std::vector<th_ranks> tables_;
};

}  // namespace trainhost::test
