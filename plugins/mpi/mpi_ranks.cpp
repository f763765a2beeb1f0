// See mpi_ranks.hpp. A sum is computed by the rank that owns the piece, in the order of the ranks: what
// MPI_Reduce promises only for the same number of processes on the same network. An all-reduce is a
// reduce-scatter and an all-gather, which send the fewest bytes: 2(N-1)/N of the data per rank.
#include "plugins/mpi/mpi_ranks.hpp"

#include <unistd.h>

#include <algorithm>
#include <cassert>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "core/abi/error_guard.hpp"
#include "core/base/collectives.hpp"
#include "core/base/types.hpp"
#include "plugins/common/ordered_sums.hpp"

namespace trainhost::mpi {
namespace {

using Clock = std::chrono::steady_clock;
constexpr int kQuestionTag = 1;                      // messages of collectives have 0
constexpr std::uint64_t kLargestMessage = 1u << 30;  // MPI counts in int
constexpr std::chrono::milliseconds kTurn{1500};     // rank 0 prints first: usually one message appears
constexpr std::chrono::milliseconds kLook{500};      // at the other processes of this machine, while waiting
// For a process that has ended its launcher ends the others, which is reported better; for one that hangs in
// the library the thread that waits does.
constexpr std::chrono::milliseconds kForLauncher{1500}, kForWorker{4000};
// The others end first as a rule, and on a busy machine long before this one.
constexpr std::chrono::milliseconds kForFinalize{30000};

std::int64_t now_ms() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now().time_since_epoch()).count();
}

struct Range {
  std::uint64_t first, count;
};
GroupMember member(const th_collective& c, std::uint32_t rank, std::uint32_t ranks) {
  return member_of({c.width, c.stride}, rank, ranks);
}
/// Elements [skip, skip + at_most) of piece r.
Range part_of_piece(const th_collective& c, std::uint32_t r, std::uint64_t skip, std::uint64_t at_most) {
  const std::uint64_t begin = std::min(c.count, c.piece * r), end = std::min(c.count, begin + c.piece);
  const std::uint64_t first = std::min(end, begin + skip);
  return {first, std::min(at_most, end - first)};
}

}  // namespace

std::string library_name() {
  char text[MPI_MAX_LIBRARY_VERSION_STRING] = "";
  int length = 0;
  MPI_Get_library_version(text, &length);
  const std::string all(text);
  // "Open MPI v4.1.4, package: ..."; "MPICH Version:\t4.0.2\n..."
  if (all.starts_with("Open MPI v")) return "Open MPI " + all.substr(10, all.find(',') - 10);
  if (const auto tab = all.find('\t'); all.starts_with("MPICH") && tab != all.npos)
    return "MPICH " + all.substr(tab + 1, all.find('\n') - tab - 1);
  return all.substr(0, all.find('\n'));
}

Ranks::Ranks(std::uint64_t timeout_ms, std::uint32_t launched_rank)
    : timeout_ms_(timeout_ms), launched_rank_(launched_rank) {
  worker_ = std::thread([this] { work(); });
  std::unique_lock lock(mutex_);
  wait_or_end_process(lock, left_connect_, "MPI_Init_thread");
  if (failure_.empty()) return;
  ends_ = true;
  lock.unlock();
  started_.notify_one();
  worker_.join();
  throw abi::StatusError(TH_E_UNAVAILABLE, failure_);
}

Ranks::~Ranks() {
  std::string why;
  {
    std::unique_lock lock(mutex_);
    const bool failed = !failure_.empty();  // the caller knows
    ends_ = awaited_ = true;
    seen_ms_ = now_ms();
    started_.notify_one();
    wait_for_worker(lock, [this] { return left_queue_; });
    if (!failed) why = failure_;
    if (why.empty()) wait_or_end_process(lock, ended_, "MPI_Finalize");
  }
  if (!why.empty()) {  // a rank has not come to the end of the job
    if (launched_rank_ > 0) std::this_thread::sleep_for(kTurn);
    print_and_exit(why + " (see whether that process runs; parallel.timeout sets the time)");
  }
  worker_.join();
}

/// Waits for the worker inside a call of MPI that other processes have to make too, and that nothing can end
/// but the process. The launcher then ends the others. One that has ended before MPI_Init_thread() is noticed
/// by the host; in MPI_Finalize() it may have been ready before this one.
void Ranks::wait_or_end_process(std::unique_lock<std::mutex>& lock, const bool& done, const char* in) {
  const auto begin = Clock::now();
  const auto turn = launched_rank_ > 0 ? kTurn : std::chrono::milliseconds{0};
  auto lost = Clock::time_point::max();
  while (!finished_.wait_for(lock, kLook, [&] { return done; })) {
    const auto now = Clock::now();
    if (connected_ && lost == Clock::time_point::max() && local_.ended()) lost = now;
    if (lost != Clock::time_point::max() && now - lost > kForFinalize + turn)
      print_and_exit(std::string("another rank of this machine has ended, and ") + in + " does not");
    if (timeout_ms_ > 0 && now - begin > std::chrono::milliseconds(timeout_ms_) + turn)
      print_and_exit("waited " + std::to_string(timeout_ms_ / 1000) + " s in " + in +
                     " for other ranks (see whether all of them run; parallel.timeout sets the time)");
  }
}

/// Waits for the worker, whose operations have a time limit; ends the process if it does not return from the
/// library.
void Ranks::wait_for_worker(std::unique_lock<std::mutex>& lock, const std::function<bool()>& done) {
  const auto turn = launched_rank_ > 0 ? kTurn : std::chrono::milliseconds{0};
  while (!finished_.wait_for(lock, kLook, done)) {
    const std::int64_t in_library = now_ms() - seen_ms_;
    if (in_library > (kForWorker + turn).count())
      if (const std::string ended = ended_rank(); !ended.empty()) print_and_exit(ended);
    // Beyond the limit of the worker itself and its questions.
    constexpr std::int64_t kQuestionsMs = 15000;
    if (timeout_ms_ > 0 && in_library > static_cast<std::int64_t>(timeout_ms_) + kQuestionsMs)
      print_and_exit(std::string("MPI does not return from ") + running_.load() +
                     " (see whether all ranks run; parallel.timeout sets the time)");
  }
}

/// A message about a rank of this machine that has ended; "" if there is none.
std::string Ranks::ended_rank() const {
  const std::optional<RankProcess> p = local_.ended();
  if (!p) return {};
  return "rank " + std::to_string(p->rank) + " on this machine has ended (process " +
         std::to_string(p->process.id) + ")";
}

void Ranks::print_and_exit(const std::string& why) {
  char host[256] = "";
  ::gethostname(host, sizeof host - 1);
  std::fprintf(stderr, "trainhost: rank %u on %s: %s\n", launched_rank_, host, why.c_str());
  std::fflush(stderr);
  std::_Exit(1);
}

/// On the worker thread, like everything below that calls MPI.
void Ranks::connect() {
  int initialized = 0, support = 0;
  MPI_Initialized(&initialized);
  if (initialized)
    throw abi::StatusError(TH_E_UNAVAILABLE, "MPI was initialised before by another part of this process");
  if (MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &support) != MPI_SUCCESS)
    throw abi::StatusError(TH_E_UNAVAILABLE, library_name() + " cannot be initialised");
  if (support < MPI_THREAD_FUNNELED)
    throw abi::StatusError(TH_E_UNAVAILABLE, library_name() + " was built without support for threads");
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  int rank = 0, ranks = 0, local_rank = 0, local_ranks = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank), MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  MPI_Comm local = MPI_COMM_NULL;
  MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &local);
  MPI_Comm_rank(local, &local_rank), MPI_Comm_size(local, &local_ranks);
  RankProcess own{static_cast<std::uint32_t>(rank), own_process()};
  std::vector<RankProcess> processes(static_cast<std::size_t>(local_ranks));
  MPI_Allgather(&own, sizeof own, MPI_BYTE, processes.data(), sizeof own, MPI_BYTE, local);
  local_.set(own.rank, processes);
  MPI_Comm_free(&local);
  rank_ = static_cast<std::uint32_t>(rank), ranks_ = static_cast<std::uint32_t>(ranks);
  local_rank_ = static_cast<std::uint32_t>(local_rank),
  local_ranks_ = static_cast<std::uint32_t>(local_ranks);
}

void Ranks::work() {
  std::unique_lock lock(mutex_);
  try {
    lock.unlock();
    connect();
    lock.lock();
    connected_ = true;
  } catch (const std::exception& e) {
    if (!lock.owns_lock()) lock.lock();
    failure_ = e.what();
  }
  left_connect_ = true;
  finished_.notify_all();
  for (;;) {
    started_.wait(lock, [this] { return ends_ || !queue_.empty(); });
    if (queue_.empty()) break;
    const th_collective c = queue_.front();
    queue_.pop_front();
    seen_ms_ = now_ms();
    if (!failure_.empty()) continue;
    lock.unlock();
    std::string failed;
    try {
      execute(c);
    } catch (const std::exception& e) {
      failed = e.what();
    }
    lock.lock();
    if (failed.empty())
      ++done_ticket_;
    else
      failure_ = failed;
    finished_.notify_all();
  }
  // After a failure the others do not come: MPI_Finalize() would wait for them. So all ranks meet before it,
  // with a time limit and the name of a rank that is missing; mpirun (Open MPI with PMIx 4.2) sometimes hangs
  // if it has to end processes that wait in MPI_Finalize().
  if (connected_ && failure_.empty()) {
    lock.unlock();
    std::string failed;
    try {
      meet("MPI_Finalize");
    } catch (const std::exception& e) {
      failed = e.what();
    }
    lock.lock();
    failure_ = failed;
  }
  left_queue_ = true;
  finished_.notify_all();
  if (connected_ && failure_.empty()) {
    lock.unlock();
    MPI_Finalize();
    lock.lock();
  }
  ended_ = true;
  finished_.notify_all();
}

std::uint64_t Ranks::start(const th_collective& c) {
  if (!operation_name(c.kind))
    throw abi::StatusError(TH_E_ARG, "no collective operation has the number " + std::to_string(c.kind));
  const bool reduces = c.kind == TH_ALL_REDUCE || c.kind == TH_REDUCE_SCATTER;
  const std::uint64_t size = size_of(static_cast<DType>(c.dtype));
  if (c.width && (c.stride == 0 || ranks_ % (std::uint64_t{c.width} * c.stride)))
    throw abi::StatusError(TH_E_ARG, "groups of " + std::to_string(c.width) + " ranks, " +
                                         std::to_string(c.stride) + " apart, do not divide " +
                                         std::to_string(ranks_) + " ranks");
  const std::uint32_t ranks = c.width ? c.width : ranks_;
  if (c.stream) throw abi::StatusError(TH_E_UNSUPPORTED, "MPI sends host memory only");
  if (reduces && !is_reduced(c.dtype))
    throw abi::StatusError(TH_E_ARG, "elements of this type cannot be added");
  if (reduces && ranks > 1 && c.scratch_bytes < ranks * size)
    throw abi::StatusError(TH_E_ARG, "the scratch of a reduction is smaller than an element per rank");
  if (c.kind != TH_BROADCAST && c.count > 0 && c.piece < (c.count + ranks - 1) / ranks)
    throw abi::StatusError(TH_E_ARG, "the pieces of the ranks do not cover the elements");
  if (c.root >= ranks) throw abi::StatusError(TH_E_ARG, "rank " + std::to_string(c.root) + " does not exist");
  std::lock_guard lock(mutex_);
  if (!failure_.empty()) throw abi::StatusError(TH_E_IO, failure_);
  if (queue_.empty()) seen_ms_ = now_ms();
  queue_.push_back(c);
  started_.notify_one();
  return ++last_ticket_;
}

void Ranks::wait(std::uint64_t ticket) {
  std::unique_lock lock(mutex_);
  if (ticket > last_ticket_) throw abi::StatusError(TH_E_ARG, "no operation was started with this ticket");
  awaited_ = true;
  wait_for_worker(lock, [&] { return done_ticket_ >= ticket || !failure_.empty(); });
  awaited_ = false;
  if (done_ticket_ < ticket) throw abi::StatusError(TH_E_IO, failure_);
}

/// By the worker if it lives and is not stuck inside MPI, else by this thread. MPI_Abort() waits for the
/// launcher, which may hang as well.
void Ranks::abort(std::int32_t code) {
  std::thread([code] {
    std::this_thread::sleep_for(std::chrono::seconds(5));
    std::_Exit(code);
  }).detach();
  abort_ = code;
  {
    std::lock_guard lock(mutex_);
    if (queue_.empty()) {
      th_collective nothing{};
      nothing.kind = TH_BROADCAST;
      queue_.push_back(nothing);
    }
    failure_.clear();
  }
  started_.notify_one();
  std::this_thread::sleep_for(std::chrono::seconds(1));
  MPI_Abort(MPI_COMM_WORLD, code);
  std::_Exit(code);
}

void Ranks::execute(const th_collective& c) {
  if (abort_ >= 0) MPI_Abort(MPI_COMM_WORLD, abort_);
  running_ = operation_name(c.kind);
  if (member(c, rank_, ranks_).count == 1 || c.count == 0) return;
  const std::uint64_t size = size_of(static_cast<DType>(c.dtype));
  if (c.kind == TH_BROADCAST) return broadcast(c, size);
  if (c.kind != TH_ALL_GATHER) reduce_scatter(c, size);
  if (c.kind != TH_REDUCE_SCATTER) all_gather(c, size);
}

/// In rounds, each of as many elements of every piece as the scratch holds.
void Ranks::reduce_scatter(const th_collective& c, std::uint64_t size) {
  auto* data = static_cast<std::byte*>(c.data);
  auto* scratch = static_cast<std::byte*>(c.scratch);
  const GroupMember here = member(c, rank_, ranks_);
  const std::uint64_t round = std::min(c.piece, c.scratch_bytes / size / here.count);
  assert(round > 0);
  std::vector<const void*> from(here.count);
  for (std::uint64_t skip = 0; skip < c.piece; skip += round) {
    const Range own = part_of_piece(c, here.number, skip, round);
    for (std::uint32_t r = 0; r < here.count; ++r) {
      if (r == here.number) {
        from[r] = data + own.first * size;
        continue;
      }
      from[r] = scratch + r * round * size;
      receive(here.rank(r), scratch + r * round * size, own.count * size);
      const Range theirs = part_of_piece(c, r, skip, round);
      send(here.rank(r), data + theirs.first * size, theirs.count * size);
    }
    finish_messages();
    combine_elements(c.dtype, from, data + own.first * size, own.count, c.reduction == TH_REDUCE_MAX);
  }
}

void Ranks::all_gather(const th_collective& c, std::uint64_t size) {
  auto* data = static_cast<std::byte*>(c.data);
  const GroupMember here = member(c, rank_, ranks_);
  const Range own = part_of_piece(c, here.number, 0, c.piece);
  for (std::uint32_t r = 0; r < here.count; ++r) {
    if (r == here.number) continue;
    const Range theirs = part_of_piece(c, r, 0, c.piece);
    receive(here.rank(r), data + theirs.first * size, theirs.count * size);
    send(here.rank(r), data + own.first * size, own.count * size);
  }
  finish_messages();
}

void Ranks::broadcast(const th_collective& c, std::uint64_t size) {
  const GroupMember here = member(c, rank_, ranks_);
  if (here.number != c.root)
    receive(here.rank(c.root), c.data, c.count * size);
  else
    for (std::uint32_t r = 0; r < here.count; ++r)
      if (r != here.number) send(here.rank(r), c.data, c.count * size);
  finish_messages();
}

/// Waits until all ranks are here.
void Ranks::meet(const char* before) {
  running_ = before;
  std::vector<std::byte> bytes(ranks_ + 1);
  for (std::uint32_t r = 0; r < ranks_; ++r)
    if (r != rank_) receive(r, &bytes[r], 1), send(r, &bytes[ranks_], 1);
  finish_messages();
}

void Ranks::send(std::uint32_t to, const void* data, std::uint64_t bytes) {
  for (std::uint64_t at = 0; at < bytes; at += kLargestMessage) {
    messages_.emplace_back(), peers_.push_back(to);
    MPI_Isend(static_cast<const std::byte*>(data) + at,
              static_cast<int>(std::min(kLargestMessage, bytes - at)), MPI_BYTE, static_cast<int>(to), 0,
              MPI_COMM_WORLD, &messages_.back());
  }
}

void Ranks::receive(std::uint32_t from, void* data, std::uint64_t bytes) {
  for (std::uint64_t at = 0; at < bytes; at += kLargestMessage) {
    messages_.emplace_back(), peers_.push_back(from);
    MPI_Irecv(static_cast<std::byte*>(data) + at, static_cast<int>(std::min(kLargestMessage, bytes - at)),
              MPI_BYTE, static_cast<int>(from), 0, MPI_COMM_WORLD, &messages_.back());
  }
}

void Ranks::send_question(std::uint32_t to, const Question& q) {
  questions_.push_back(q);  // kept until it is sent, which MPI does not say after MPI_Request_free()
  MPI_Request sent;
  MPI_Isend(&questions_.back(), sizeof q, MPI_BYTE, static_cast<int>(to), kQuestionTag, MPI_COMM_WORLD,
            &sent);
  MPI_Request_free(&sent);
}

/// Answers the questions that have arrived. Returns the ranks that have answered question `number` of this
/// one.
std::vector<bool> Ranks::answer_questions(std::uint64_t number) {
  std::vector<bool> answered(ranks_);
  for (;;) {
    int here = 0;
    MPI_Status from;
    MPI_Iprobe(MPI_ANY_SOURCE, kQuestionTag, MPI_COMM_WORLD, &here, &from);
    if (!here) return answered;
    Question q;
    MPI_Recv(&q, sizeof q, MPI_BYTE, from.MPI_SOURCE, kQuestionTag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    if (!q.answer)
      send_question(static_cast<std::uint32_t>(from.MPI_SOURCE), {q.number, true});
    else if (q.number == number)
      answered[static_cast<std::size_t>(from.MPI_SOURCE)] = true;
  }
}

/// After a timeout: the ranks that wait for messages too. A rank that hangs does not answer within two
/// seconds.
std::vector<bool> Ranks::ranks_that_wait() {
  constexpr std::chrono::seconds kTimeToAnswer{2};
  const std::uint64_t number = ++last_question_;
  for (std::uint32_t r = 0; r < ranks_; ++r)
    if (r != rank_) send_question(r, {number, false});
  std::vector<bool> waiting(ranks_);
  for (const auto end = Clock::now() + kTimeToAnswer; Clock::now() < end && abort_ < 0;) {
    const std::vector<bool> answered = answer_questions(number);
    for (std::uint32_t r = 0; r < ranks_; ++r) waiting[r] = waiting[r] || answered[r];
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return waiting;
}

/// MPI_Waitall() would occupy a core that computes. While nobody waits, this thread sleeps between its looks
/// at the messages.
void Ranks::finish_messages() {
  constexpr std::chrono::milliseconds kBusy{1};
  auto begin = Clock::now(), looked = begin, looked_at_processes = begin + kForLauncher,
       busy_until = begin + kBusy;
  if (launched_rank_ > 0) looked_at_processes += kTurn;
  bool trusts = true;  // the ranks that wait too
  for (;;) {
    int all = 0;
    const int error =
        MPI_Testall(static_cast<int>(messages_.size()), messages_.data(), &all, MPI_STATUSES_IGNORE);
    if (abort_ >= 0) MPI_Abort(MPI_COMM_WORLD, abort_);
    if (error != MPI_SUCCESS) {
      char text[MPI_MAX_ERROR_STRING] = "";
      int length = 0;
      MPI_Error_string(error, text, &length);
      throw abi::StatusError(TH_E_IO, std::string(running_) + " failed: " + text);
    }
    seen_ms_ = now_ms();
    if (all) break;
    // What a rank sent before it ended may still arrive: one look later.
    if (Clock::now() > looked_at_processes) {
      const std::string ended = ended_rank();
      if (ended.empty())
        lost_ = false;
      else if (std::exchange(lost_, true))
        throw abi::StatusError(TH_E_IO, ended + " during " + running_.load());
      looked_at_processes = Clock::now() + kLook;
    }
    if (timeout_ms_ > 0 && Clock::now() - begin > std::chrono::milliseconds(timeout_ms_)) {
      std::vector<bool> missing(ranks_);
      for (std::size_t i = 0; i < messages_.size(); ++i) {
        int done = 0;
        if (messages_[i] != MPI_REQUEST_NULL) MPI_Request_get_status(messages_[i], &done, MPI_STATUS_IGNORE);
        if (messages_[i] != MPI_REQUEST_NULL && !done) missing[peers_[i]] = true;
      }
      const auto any = [](const std::vector<bool>& ranks) {
        return std::find(ranks.begin(), ranks.end(), true) != ranks.end();
      };
      if (!any(missing)) continue;  // the last messages have arrived since MPI_Testall()
      // A missing rank that waits itself is not the cause: the message names the others. If there are none, a
      // missing rank waits for the cause and names it when its time is over, which may have begun later.
      const std::vector<bool> waiting = ranks_that_wait();
      std::vector<bool> hanging = missing;
      for (std::uint32_t r = 0; r < ranks_; ++r)
        if (waiting[r]) hanging[r] = false;
      if (any(hanging)) {
        missing = hanging;
      } else if (std::exchange(trusts, false)) {
        begin = Clock::now();
        continue;
      }
      std::string of;
      for (std::uint32_t r = 0; r < ranks_; ++r)
        if (missing[r]) of += (of.empty() ? "" : ", ") + std::to_string(r);
      throw abi::StatusError(
          TH_E_IO,
          "waited " + std::to_string(timeout_ms_ / 1000) + " s in " + running_.load() + " for rank " + of,
          "see whether that process runs; parallel.timeout sets the time");
    }
    const auto now = Clock::now();
    if (now - looked > std::chrono::milliseconds(100)) looked = now, answer_questions(0);
    // A caller's short wait asks without a pause. A long one leaves the processor to the ranks that compute,
    // of which there may be more than processors: yield() alone would take half of it from them.
    const bool awaited = awaited_;
    if (!awaited) busy_until = now + kBusy;
    if (awaited && now < busy_until)
      std::this_thread::yield();
    else
      std::this_thread::sleep_for(std::chrono::microseconds(awaited ? 20 : 100));
  }
  messages_.clear(), peers_.clear();
}

}  // namespace trainhost::mpi
