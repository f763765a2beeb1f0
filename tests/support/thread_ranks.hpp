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

#include "core/base/bf16.hpp"
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

  /// The ranks of a group wait for each other; not for those that have ended. The last one executes the
  /// operation for all, so that a rank is woken once per operation.
  struct Meeting {
    std::uint32_t arrived = 0;
    std::uint64_t turn = 0;
  };
  using Group = std::tuple<std::uint32_t, std::uint32_t, std::uint32_t>;  // first, stride, count

  void run(std::uint32_t rank, const th_collective& c) {
    const GroupMember here = member_of({c.width, c.stride}, rank, static_cast<std::uint32_t>(tables_.size()));
    const std::uint64_t size = size_of(static_cast<DType>(c.dtype));
    const double share = static_cast<double>(c.count * size) * static_cast<double>(here.count - 1) /
                         static_cast<double>(here.count);
    std::unique_lock lock(mutex_);
    current_[rank] = c;
    bytes_[rank] += c.kind == TH_ALL_REDUCE ? 2 * share : share;
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
  /// With the mutex. Without a rank that has ended, its data cannot be read: the operation is left out.
  void end_if_complete(const Group& group, Meeting& m) {
    const auto [first, stride, count] = group;
    std::vector<const th_collective*> all;
    for (std::uint32_t i = 0; i < count; ++i)
      if (!dropped_[first + i * stride]) all.push_back(&current_[first + i * stride]);
    if (m.arrived == 0 || m.arrived < all.size()) return;
    if (all.size() == count) execute(all);
    m.arrived = 0, ++m.turn;
    changed_.notify_all();
  }

  static char* at(const th_collective& c, std::uint64_t element) {
    return static_cast<char*>(c.data) + element * size_of(static_cast<DType>(c.dtype));
  }
  /// `all`: what each rank of the group has started.
  static void execute(const std::vector<const th_collective*>& all) {
    const auto bytes = [&](std::uint64_t elements) {
      return elements * size_of(static_cast<DType>(all[0]->dtype));
    };
    for (std::uint32_t r = 0; r < all.size(); ++r) {
      const th_collective& c = *all[r];
      const std::uint64_t begin = std::min(c.count, c.piece * r), end = std::min(c.count, begin + c.piece);
      // Piece r is added up for rank r.
      if ((c.kind == TH_ALL_REDUCE || c.kind == TH_REDUCE_SCATTER) && c.dtype == TH_DT_F64)
        add<double>(all, r, begin, end);
      else if ((c.kind == TH_ALL_REDUCE || c.kind == TH_REDUCE_SCATTER) && c.dtype == TH_DT_BF16)
        add_bf16(all, r, begin, end);
      else if (c.kind == TH_ALL_REDUCE || c.kind == TH_REDUCE_SCATTER)
        add<float>(all, r, begin, end);
      if (c.kind == TH_BROADCAST && r != c.root) std::memcpy(c.data, all[c.root]->data, bytes(c.count));
    }
    for (std::uint32_t r = 0; r < all.size(); ++r) {
      const th_collective& c = *all[r];
      const std::uint64_t begin = std::min(c.count, c.piece * r), end = std::min(c.count, begin + c.piece);
      if (c.kind == TH_ALL_REDUCE || c.kind == TH_ALL_GATHER)
        for (const th_collective* other : all)
          if (other != &c && begin < end) std::memcpy(at(*other, begin), at(c, begin), bytes(end - begin));
      if (c.kind == TH_REDUCE_SCATTER) {  // what a rank may not read after it
        std::memset(c.data, 0xff, bytes(begin));
        std::memset(at(c, end), 0xff, bytes(c.count - end));
      }
    }
  }
  template <class T>
  static void add(const std::vector<const th_collective*>& all, std::uint32_t rank, std::uint64_t begin,
                  std::uint64_t end) {
    for (std::uint64_t i = begin; i < end; ++i) {
      T sum = 0;
      for (const th_collective* c : all) sum += static_cast<const T*>(c->data)[i];
      static_cast<T*>(all[rank]->data)[i] = sum;
    }
  }
  /// In f32, rounded once.
  static void add_bf16(const std::vector<const th_collective*>& all, std::uint32_t rank, std::uint64_t begin,
                       std::uint64_t end) {
    for (std::uint64_t i = begin; i < end; ++i) {
      float sum = 0;
      for (const th_collective* c : all) sum += f32_from_bf16(static_cast<const std::uint16_t*>(c->data)[i]);
      static_cast<std::uint16_t*>(all[rank]->data)[i] = bf16_from_f32(sum);
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
