// See ranks.hpp. Every agreement is a collective of a few bytes; texts are sent as their size, then their
// bytes.
#include "core/training/ranks.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <optional>

#include "core/base/text.hpp"

namespace trainhost::training {
namespace {

constexpr std::size_t kMostText = 8192;  // bytes of an error message

std::string host_name() {
  char name[256] = "";
  return ::gethostname(name, sizeof name - 1) == 0 ? escaped(name) : "an unknown host";
}

/// The numbers become their sum, or maximum, over the ranks, in place.
template <class T>
void all_reduce(Collectives& all, std::span<T> values, DType type, Reduction reduction) {
  std::vector<std::byte> scratch(all.ranks() * values.size_bytes());
  Collective c;
  c.kind = CollectiveKind::kAllReduce, c.dtype = type, c.reduction = reduction;
  c.data = values.data(), c.count = values.size();
  c.piece = (values.size() + all.ranks() - 1) / all.ranks();
  c.scratch = scratch.data(), c.scratch_bytes = scratch.size();
  all.run(c);
}

void broadcast_bytes(Collectives& all, void* data, std::size_t bytes, std::uint32_t root) {
  if (bytes == 0) return;
  Collective c;
  c.kind = CollectiveKind::kBroadcast, c.dtype = DType::kU8, c.root = root, c.data = data, c.count = bytes;
  all.run(c);
}

}  // namespace

std::int32_t Ranks::largest(std::int32_t value) {
  if (all_) all_reduce<std::int32_t>(*all_, {&value, 1}, DType::kI32, Reduction::kMax);
  return value;
}

void Ranks::sum(std::span<double> values) {
  if (all_) all_reduce<double>(*all_, values, DType::kF64, Reduction::kSum);
}

std::vector<double> Ranks::gather(std::span<const double> own) {
  std::vector<double> all(own.size() * count());
  std::copy(own.begin(), own.end(), all.begin() + static_cast<std::ptrdiff_t>(own.size() * rank()));
  if (!all_ || own.empty()) return all;
  Collective c;
  c.kind = CollectiveKind::kAllGather, c.dtype = DType::kF64;
  c.data = all.data(), c.count = all.size(), c.piece = own.size();
  all_->run(c);
  return all;
}

std::uint64_t Ranks::of_first(std::uint64_t value) {
  if (all_) broadcast_bytes(*all_, &value, sizeof value, 0);
  return value;
}

void Ranks::broadcast(std::string& text, std::uint32_t root) {
  std::uint64_t size = text.size();
  broadcast_bytes(*all_, &size, sizeof size, root);
  text.resize(size);
  broadcast_bytes(*all_, text.data(), size, root);
}

std::string Ranks::of_rank(std::uint32_t root, std::string text) {
  if (all_) broadcast(text, root);
  return text;
}

std::string Ranks::of_first(std::string text) { return of_rank(0, std::move(text)); }

void Ranks::together(const std::function<void()>& f) {
  if (!all_) return f();
  std::optional<Error> failed;
  try {
    f();
  } catch (const Error& e) {
    failed = e;
  }
  // The lowest rank that failed has the largest number; and whether one did not fail.
  std::int32_t outcome[2] = {failed ? static_cast<std::int32_t>(count() - rank()) : 0, !failed};
  all_reduce<std::int32_t>(*all_, outcome, DType::kI32, Reduction::kMax);
  if (outcome[0] == 0) return;
  const std::uint32_t root = count() - static_cast<std::uint32_t>(outcome[0]);
  std::string message, hint;
  Exit code = Exit::kFailed;
  if (rank() == root) {
    const Error only_text(failed->code(), failed->what(), "", failed->where());
    message = only_text.full().substr(0, kMostText), hint = failed->hint().substr(0, kMostText);
    // A mistake in the run file, or what failed everywhere, is not of the machine of rank 0.
    const bool of_machine = failed->code() == Exit::kFailed && outcome[1];
    if (root > 0 || of_machine) message = fmt::format("rank {} on {}: {}", root, host_name(), message);
    code = failed->code();
  }
  broadcast_bytes(*all_, &code, sizeof code, root);
  broadcast(message, root), broadcast(hint, root);
  throw SharedError(code, message, hint);
}

void Ranks::require_equal(const std::vector<std::pair<std::string, std::string>>& facts) {
  if (!all_) return;
  std::string differs;
  for (const auto& [name, text] : facts) {
    std::string of_rank_0 = text;
    broadcast(of_rank_0, 0);
    if (of_rank_0 != text) differs += (differs.empty() ? "" : ", ") + name;
  }
  together([&] {
    if (!differs.empty())
      throw usage_error(
          fmt::format("it differs from rank 0 in: {}", differs),
          "all processes of a run need the same program, plugins, run file, data and kind of CPU");
  });
}

}  // namespace trainhost::training
