// See rendezvous.hpp. Keys in the store: rank/R, a counter of the processes with that rank; process/R, its
// introduction; meeting and others, of rank 0; error, of the first process that failed; reported, by rank 0.
#include "plugins/nccl/rendezvous.hpp"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <map>
#include <thread>

#include "core/base/text.hpp"

namespace trainhost::nccl {
namespace {

using abi::StatusError;
using Milliseconds = std::chrono::milliseconds;

constexpr Milliseconds kReport{3000};  // that the others wait for rank 0 to report an error
constexpr std::size_t kMostNamed = 8;  // ranks in a message

std::string host_name() {
  char name[256] = "";
  return ::gethostname(name, sizeof name - 1) == 0 ? escaped(name) : "an unknown host";
}

/// Texts as one, and back.
std::string joined(const std::vector<std::string>& parts) {
  std::string out;
  for (const std::string& p : parts) {
    const std::uint64_t size = p.size();
    out.append(reinterpret_cast<const char*>(&size), sizeof size) += p;
  }
  return out;
}
std::vector<std::string> parts_of(const std::string& text, std::size_t count) {
  std::vector<std::string> out;
  for (std::size_t at = 0; out.size() < count;) {
    std::uint64_t size = 0;
    if (text.size() - at < sizeof size) break;
    std::memcpy(&size, text.data() + at, sizeof size), at += sizeof size;
    if (text.size() - at < size) break;
    out.push_back(text.substr(at, size)), at += size;
  }
  if (out.size() != count)
    throw StatusError(TH_E_ARG, "the processes have different versions of trainhost",
                      "start the same program on all machines");
  return out;
}

std::string seconds(std::uint64_t ms) { return std::to_string(ms / 1000) + " s"; }

}  // namespace

Rendezvous::Rendezvous(const LaunchVariables& launch, std::uint64_t timeout_ms)
    : launch_(launch),
      timeout_ms_(timeout_ms),
      deadline_(timeout_ms ? Clock::now() + Milliseconds(timeout_ms) : Clock::time_point::max()) {
  const bool serves = launch.rank == 0 && !launch.launcher_has_store;
  try {
    if (serves) server_ = std::make_unique<StoreServer>(launch.port, launch.ranks);
  } catch (const ConnectionError& e) {
    throw StatusError(TH_E_ARG,
                      "rank 0 cannot listen at MASTER_PORT=" + std::to_string(launch.port) + ": " + e.what(),
                      "set MASTER_PORT to a port that no process of the machine uses");
  }
  try {
    store_.emplace(serves ? "localhost" : launch.address, launch.port, deadline_);
  } catch (const ConnectionError& e) {
    throw StatusError(TH_E_ARG,
                      std::string(launch.launcher_has_store ? "the store of torchrun" : "rank 0") + " at " +
                          escaped(launch.place(), 300) +
                          " (MASTER_ADDR, MASTER_PORT) cannot be reached: " + e.what(),
                      "see whether rank 0 runs there and that machine lets the others connect");
  }
}

Rendezvous::~Rendezvous() {
  store_.reset();
  if (server_) server_->wait_for_the_others(launch_.ranks, kReport);
}

void Rendezvous::together(const std::function<void()>& f) {
  try {
    f();
  } catch (const Posted& e) {
    end(e.error, false);
  } catch (const StatusError& e) {
    end(e, true);
  } catch (const ConnectionError& e) {
    end(StatusError(TH_E_ARG,
                    (launch_.launcher_has_store ? "the store of torchrun at " : "rank 0 at ") +
                        escaped(launch_.place(), 300) +
                        " (MASTER_ADDR, MASTER_PORT) does not answer: " + e.what(),
                    "it has ended, or another process uses that port"),
        true);
  } catch (const std::exception& e) {
    end(StatusError(TH_E_INTERNAL, e.what()), true);
  }
}

void Rendezvous::end(const StatusError& e, bool own) {
  const std::string name =
      launch_.rank > 0 ? "rank " + std::to_string(launch_.rank) + " on " + host_name() + ": " : "";
  try {
    if (own && !store_->has({key("error")}))
      store_->set(key("error"), joined({std::to_string(e.code), name + e.what(), e.hint}));
    if (launch_.rank == 0) {
      store_->set(key("reported"), "1");
    } else {
      for (const auto limit = Clock::now() + kReport; Clock::now() < limit;
           std::this_thread::sleep_for(Milliseconds{20}))
        if (store_->has({key("reported")})) throw StatusError(TH_E_CANCELLED, "another rank has failed");
    }
  } catch (const ConnectionError&) {  // rank 0, or torchrun, has ended
  }
  throw e;
}

void Rendezvous::require_no_failure() {
  if (!store_->has({key("error")})) return;
  const std::vector<std::string> e = parts_of(store_->get(key("error")), 3);
  int code = TH_OK;
  std::from_chars(e[0].data(), e[0].data() + e[0].size(), code);
  throw Posted{StatusError(code < TH_OK ? code : TH_E_INTERNAL, e[1], e[2])};
}

/// Asks with pauses that become longer, since all ranks ask one store.
void Rendezvous::wait_for(const std::string& what, const std::function<bool()>& done,
                          const std::function<std::string()>& missing) {
  // Rank 0 knows who is missing, so the others give it time to say so.
  const bool later = launch_.rank > 0 && timeout_ms_ > 0;
  const auto deadline = later ? deadline_ + kReport / 2 : deadline_;
  for (Milliseconds pause{5};; pause = std::min(pause * 2, Milliseconds{200})) {
    if (done()) return;
    require_no_failure();
    if (Clock::now() >= deadline)
      throw StatusError(TH_E_ARG, "waited " + seconds(timeout_ms_) + " for " + what + missing(),
                        "see whether all processes were started; parallel.timeout sets the time");
    std::this_thread::sleep_for(std::min<Clock::duration>(pause, deadline - Clock::now()));
  }
}

std::string Rendezvous::of_first(const std::string& name, const std::function<std::string()>& make) {
  if (launch_.rank == 0) {
    const std::string text = make();
    store_->set(key(name), text);
    return text;
  }
  wait_for(
      "rank 0, at " + escaped(launch_.place(), 300), [&] { return store_->has({key(name)}); },
      [] { return std::string(); });
  return store_->get(key(name));
}

/// "rank 2 of 4", "ranks 1, 3 of 4".
std::string Rendezvous::missing_ranks() {
  std::string list;
  std::size_t count = 0;
  for (std::uint32_t r = 0; r < launch_.ranks; ++r) {
    if (store_->has({key("process/" + std::to_string(r))}) || count++ >= kMostNamed) continue;
    list += (list.empty() ? "" : ", ") + std::to_string(r);
  }
  if (count > kMostNamed) list += " and " + std::to_string(count - kMostNamed) + " more";
  return (count == 1 ? "rank " : "ranks ") + list + " of " + std::to_string(launch_.ranks) +
         " (WORLD_SIZE), which did not come to " + escaped(launch_.place(), 300);
}

std::vector<Introduction> Rendezvous::read_introductions() {
  std::vector<Introduction> all;
  for (std::uint32_t r = 0; r < launch_.ranks; ++r) {
    const std::vector<std::string> p = parts_of(store_->get(key("process/" + std::to_string(r))), 4);
    if (p[3] != std::to_string(launch_.ranks))
      throw StatusError(TH_E_ARG, "WORLD_SIZE is " + std::to_string(launch_.ranks) + " on rank 0, but " +
                                      escaped(p[3], 20) + " on rank " + std::to_string(r));
    all.push_back({p[0], p[1], std::atoi(p[2].c_str())});
    for (std::uint32_t other = 0; other < r && !p[1].empty(); ++other)
      if (all[other].gpu == p[1])
        throw StatusError(TH_E_ARG,
                          "ranks " + std::to_string(other) + " and " + std::to_string(r) +
                              " use one GPU: device " + p[2] + " on " + escaped(p[0]),
                          "start no more processes on a machine than it has GPUs; CUDA_VISIBLE_DEVICES must "
                          "not hide them");
  }
  return all;
}

/// By rank: its number among those with the same host name, and how many these are.
std::vector<std::uint32_t> Rendezvous::local_numbers(const std::vector<Introduction>& all) const {
  std::map<std::string, std::uint32_t> on_host;
  std::vector<std::uint32_t> numbers;
  for (const Introduction& i : all) numbers.push_back(on_host[i.host]++);
  for (const Introduction& i : all) numbers.push_back(on_host[i.host]);
  return numbers;
}

Meeting Rendezvous::meet(const Introduction& own, const std::function<cuda::nccl::UniqueId()>& make_id) {
  const std::string rank = std::to_string(launch_.rank), ranks = std::to_string(launch_.ranks);
  if (store_->add(key("rank/" + rank), 1) > 1)
    throw StatusError(TH_E_ARG, "two processes have RANK=" + rank, "each process needs a rank of its own");
  store_->set(key("process/" + rank), joined({own.host, own.gpu, std::to_string(own.device), ranks}));
  const auto make_meeting = [&] {
    std::vector<std::string> keys;
    for (std::uint32_t r = 0; r < launch_.ranks; ++r) keys.push_back(key("process/" + std::to_string(r)));
    wait_for(
        "", [&] { return store_->has(keys); }, [&] { return missing_ranks(); });
    const std::vector<std::uint32_t> numbers = local_numbers(read_introductions());
    const cuda::nccl::UniqueId id = make_id();
    return joined({ranks, std::string(id.bytes, sizeof id.bytes),
                   std::string(reinterpret_cast<const char*>(numbers.data()), 4 * numbers.size())});
  };
  const std::vector<std::string> m = parts_of(of_first("meeting", make_meeting), 3);
  if (m[0] != ranks)
    throw StatusError(TH_E_ARG, "WORLD_SIZE is " + ranks + ", but " + escaped(m[0], 20) + " on rank 0");
  std::vector<std::uint32_t> numbers(2 * std::size_t{launch_.ranks});
  Meeting out;
  if (m[1].size() != sizeof out.id.bytes || m[2].size() != 4 * numbers.size()) parts_of("", 1);
  std::memcpy(out.id.bytes, m[1].data(), sizeof out.id.bytes);
  std::memcpy(numbers.data(), m[2].data(), m[2].size());
  out.local_rank = launch_.local_rank.value_or(numbers[launch_.rank]);
  out.local_ranks = launch_.local_ranks.value_or(numbers[launch_.ranks + launch_.rank]);
  return out;
}

}  // namespace trainhost::nccl
