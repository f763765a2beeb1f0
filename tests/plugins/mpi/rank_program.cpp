// One rank of plugins/mpi/collectives_test, started by mpirun, or of plugins/nccl/collectives_test, which
// sets TRAINHOST_NCCL: runs random collectives through the plugin and compares every element with a plain
// loop over what all ranks had. The ranks draw the same numbers, so each knows the others'.
//   rank_program FOLDER_OF_THE_PLUGIN SEED OPERATIONS [init|finalize|late|short|lost]
// The last argument: a short timeout. short: nothing else; else rank 1 stops before that call of MPI, for
// which the others then wait. late: of 4 ranks, rank 1 stops before a sum with rank 0, which comes 3.3 s
// late; the others wait for rank 0 alone. lost (no short timeout): rank 1 stops the launcher, which then
// cannot end the others, and is killed; rank 0 lets the launcher go on as soon as it has an error.
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "core/plugin/registry.hpp"

namespace {

using namespace trainhost;

/// Value i of a rank in an operation, exact in bf16.
double value(std::uint64_t operation, std::uint32_t rank, std::uint64_t i) {
  std::uint64_t x = operation * 1000003 + rank * 7919 + i * 104729;
  x ^= x >> 13, x *= 0x9e3779b97f4a7c15, x ^= x >> 29;
  return static_cast<double>(static_cast<std::int64_t>(x % 33) - 16);
}

double read(DType t, const std::byte* at) {
  float f;
  switch (t) {
    case DType::kF32:
      return std::memcpy(&f, at, 4), f;
    case DType::kF64: {
      double d;
      return std::memcpy(&d, at, 8), d;
    }
    case DType::kI32: {
      std::int32_t n;
      return std::memcpy(&n, at, 4), n;
    }
    case DType::kBF16: {
      std::uint16_t half;
      std::memcpy(&half, at, 2);
      const std::uint32_t bits = std::uint32_t{half} << 16;
      return std::memcpy(&f, &bits, 4), f;
    }
    default:
      return static_cast<double>(*reinterpret_cast<const std::uint8_t*>(at));
  }
}

void write(DType t, std::byte* at, double v) {
  const auto f = static_cast<float>(v);
  const auto n = static_cast<std::int32_t>(v);
  std::uint32_t bits;
  std::memcpy(&bits, &f, 4);
  const auto half = static_cast<std::uint16_t>(bits >> 16);
  switch (t) {
    case DType::kF32:
      std::memcpy(at, &f, 4);
      break;
    case DType::kF64:
      std::memcpy(at, &v, 8);
      break;
    case DType::kI32:
      std::memcpy(at, &n, 4);
      break;
    case DType::kBF16:
      std::memcpy(at, &half, 2);
      break;
    default:
      *reinterpret_cast<std::uint8_t*>(at) = static_cast<std::uint8_t>(n + 16);
  }
}

struct Check {
  Collective c;
  std::vector<std::byte> data, scratch;
  std::uint64_t number = 0, ticket = 0;

  /// Element i after the operation; NaN if it is undefined.
  double expected(std::uint32_t rank, std::uint32_t ranks, std::uint64_t i) const {
    // The ranks of the group, in order, among all ranks.
    std::vector<std::uint32_t> group;
    const std::uint32_t block = c.group.width * c.group.stride;
    for (std::uint32_t r = 0; r < ranks; ++r)
      if (block == 0 || (r / block == rank / block && r % c.group.stride == rank % c.group.stride))
        group.push_back(r);
    const std::uint64_t owner = c.piece ? i / c.piece : 0;
    const auto of = [&](std::uint64_t member) { return value(number, group[member], i); };
    const double shift = c.dtype == DType::kU8 ? 16 : 0;
    if (c.kind == CollectiveKind::kBroadcast) return of(c.root) + shift;
    if (c.kind == CollectiveKind::kAllGather) return of(owner) + shift;
    if (c.kind == CollectiveKind::kReduceScatter && group[owner] != rank) return NAN;
    double sum = of(0);
    for (std::size_t r = 1; r < group.size(); ++r)
      sum = c.reduction == Reduction::kMax ? std::max(sum, of(r)) : sum + of(r);
    return sum;
  }
};

int run(int argc, char** argv) {
  if (argc != 4 && argc != 5) return std::fprintf(stderr, "three or four arguments\n"), 2;
  const std::string stops = argc == 5 ? argv[4] : "";
  const char* own = std::getenv("OMPI_COMM_WORLD_RANK");
  if (!own) own = std::getenv("PMI_RANK");
  const auto stop_before = [&](const char* call) {
    if (stops == call && own && std::atoi(own) == 1) ::raise(SIGSTOP);
  };
  plugin::Registry registry({argv[1]}, {});
  registry.scan();
  stop_before("init");
  const bool nccl = std::getenv("TRAINHOST_NCCL");
  // Longer than MPI_Init_thread() takes on a busy machine, unless that call is the one that others wait in.
  const bool long_enough = stops == "finalize" || stops == "late";
  const auto ranks = registry.communicator(nccl ? "nccl" : "mpi")
                         .connect(stops.empty() || stops == "lost" ? 20000
                                  : long_enough                    ? 4000
                                                                   : 1000);
  const std::uint32_t n = ranks->ranks(), rank = ranks->rank();
  std::mt19937_64 random(static_cast<std::uint64_t>(std::atoll(argv[2])));
  std::vector<Check> started;
  const auto finish = [&] {
    for (Check& k : started) {
      ranks->wait(k.ticket);
      const std::uint64_t size = size_of(k.c.dtype);
      for (std::uint64_t i = 0; i < k.c.count; ++i) {
        const double want = k.expected(rank, n, i), got = read(k.c.dtype, k.data.data() + i * size);
        if (!std::isnan(want) && got != want)
          return std::fprintf(
                     stderr,
                     "rank %u: operation %llu of kind %u, type %u: element %llu of %llu is %g, expected %g\n",
                     rank, static_cast<unsigned long long>(k.number), static_cast<unsigned>(k.c.kind),
                     static_cast<unsigned>(k.c.dtype), static_cast<unsigned long long>(i),
                     static_cast<unsigned long long>(k.c.count), got, want),
                 false;
      }
    }
    started.clear();
    return true;
  };
  if (stops == "late") {
    stop_before("late");
    if (rank == 0) std::this_thread::sleep_for(std::chrono::milliseconds(3300));
    float values[8] = {};
    Collective c;
    c.dtype = DType::kF32, c.data = values, c.count = c.piece = 1;
    c.scratch = values + 4, c.scratch_bytes = 16;
    c.kind = CollectiveKind::kAllReduce, c.group = {2, 1};
    ranks->wait(ranks->start(c));
    c.kind = CollectiveKind::kBroadcast, c.group = {};
    ranks->wait(ranks->start(c));
  }
  if (stops == "lost") {
    if (rank == 1) ::kill(::getppid(), SIGSTOP), ::raise(SIGKILL);
    float values[2] = {};
    Collective c;
    c.kind = CollectiveKind::kBroadcast, c.root = 1;
    c.dtype = DType::kF32, c.data = values, c.count = 2, c.piece = 2;
    try {
      ranks->wait(ranks->start(c));
    } catch (const std::exception& e) {
      std::fprintf(stderr, "%s\n", e.what());
      ::kill(::getppid(), SIGCONT);
      return 1;
    }
  }
  const int operations = std::atoi(argv[3]);
  for (int o = 0; o < operations; ++o) {
    constexpr DType kTypes[] = {DType::kF32, DType::kF64, DType::kI32, DType::kBF16, DType::kU8};
    constexpr std::uint64_t kCounts[] = {0, 1, 2, 17, 1000, 65537, 300000};
    Check k;
    k.number = static_cast<std::uint64_t>(o);
    k.c.kind = static_cast<CollectiveKind>(1 + random() % 4);
    k.c.dtype = kTypes[random() % 5];
    const bool reduces = k.c.kind == CollectiveKind::kAllReduce || k.c.kind == CollectiveKind::kReduceScatter;
    if (reduces && k.c.dtype == DType::kU8) k.c.dtype = DType::kF32;
    k.c.reduction = random() % 4 ? Reduction::kSum : Reduction::kMax;
    // All ranks, neighbours, or every second rank, where there are such groups.
    const RankGroup groups[] = {{0, 1}, {n, 1}, {2, 1}, {2, 2}, {1, 1}};
    k.c.group = groups[random() % 5];
    if (k.c.group.width && n % (k.c.group.width * k.c.group.stride)) k.c.group = {};
    if (nccl && k.c.group.width != n && k.c.group.width != 1) k.c.group = {};
    const GroupMember here = member_of(k.c.group, rank, n);
    k.c.root = static_cast<std::uint32_t>(random() % here.count);
    k.c.count = kCounts[random() % 7];
    k.c.piece = (k.c.count + here.count - 1) / here.count + random() % 3;
    const std::uint64_t size = size_of(k.c.dtype);
    k.scratch.resize(n * size * (1 + random() % 5000));
    k.data.resize(k.c.count * size);
    for (std::uint64_t i = 0; i < k.c.count; ++i)
      if (k.c.kind != CollectiveKind::kAllGather || i / k.c.piece == here.number)
        write(k.c.dtype, k.data.data() + i * size, value(k.number, rank, i));
    started.push_back(std::move(k));
    Check& last = started.back();
    last.c.data = last.data.data(), last.c.scratch = last.scratch.data(),
    last.c.scratch_bytes = last.scratch.size();
    last.ticket = ranks->start(last.c);
    // Several operations are under way at a time.
    if (random() % 3 == 0 && !finish()) return 1;
  }
  if (!finish()) return 1;
  if (rank == 0) std::printf("%u ranks, %d operations: ok\n", n, operations), std::fflush(stdout);
  stop_before("finalize");
  return 0;
}

}  // namespace

int main(int argc, char** argv) try { return run(argc, argv); } catch (const std::exception& e) {
  return std::fprintf(stderr, "%s\n", e.what()), 1;
}
