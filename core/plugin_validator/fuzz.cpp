// See fuzz.hpp. A case is a function of its seed alone, also across machines and builds: the same order of
// draws, integers only. Changing the order of draws changes the cases of all seeds.
#include "core/plugin_validator/fuzz.hpp"

#include <iterator>
#include <random>

namespace trainhost::plugin_validator {
namespace {

/// Uses a generator whose sequence the C++ standard defines, and its own division, so a seed gives the same
/// case on every machine.
class RandomSource {
 public:
  // The multiplication makes consecutive seeds differ in many bits.
  explicit RandomSource(std::uint64_t seed) : random_(seed * 0x9e3779b97f4a7c15u + 1) {}
  // The bias of the remainder is below 2^-32.
  std::uint64_t below(std::uint64_t n) { return random_() % n; }
  bool one_in(std::uint64_t n) { return below(n) == 0; }
  std::uint32_t from(std::uint32_t first, std::uint32_t last) {
    return first + static_cast<std::uint32_t>(below(last - first + 1));
  }
  template <class T, std::size_t N>
  T of(const T (&all)[N]) {
    return all[below(N)];
  }

 private:
  std::mt19937_64 random_;
};

// Values around which sizes overflow, divisions fail or loops become long.
constexpr std::uint32_t kEdges[] = {0, 1, 2, 3, 7, 63, 4097, 65535, 1u << 20, 0x7fffffffu, 0xffffffffu};
constexpr DType kTypes[] = {DType::kF32, DType::kBF16, DType::kF16, DType::kF32, DType::kTF32, DType::kF8};

/// Replaces one field by an edge value.
void set_edge_value(RandomSource& d, Sample& s) {
  ModelSpec& m = s.model;
  RunSpec& r = s.run;
  // Every 32-bit field that a plugin multiplies, divides by or loops over.
  std::uint32_t* const fields[] = {&m.hidden,
                                   &m.layers,
                                   &m.heads,
                                   &m.kv_heads,
                                   &m.head_dim,
                                   &m.intermediate,
                                   &m.sliding_window,
                                   &r.micro_batch,
                                   &r.seq_len,
                                   &r.accumulate,
                                   &r.parallel.data,
                                   &r.parallel.tensor,
                                   &r.parallel.pipeline,
                                   &r.parallel.zero,
                                   &r.lora_rank,
                                   &r.lora_targets};
  *fields[d.below(std::size(fields))] = d.of(kEdges);
  if (d.one_in(8)) m.vocab = d.one_in(2) ? 0 : UINT64_MAX >> d.below(40);
  // Beyond the defined enumerators: a later host may have more.
  if (d.one_in(8)) r.optimizer = static_cast<Optimizer>(d.below(12));
  if (d.one_in(8)) r.mode = static_cast<RunMode>(d.below(8));
  if (d.one_in(8)) r.weight = static_cast<DType>(d.below(14));
  // An empty family, or one with quotes and a two-byte character, for texts in messages and JSON.
  if (d.one_in(8)) m.family = d.one_in(2) ? "" : "fam\xc3\xadlia \"x\"";
}

}  // namespace

Sample draw_sample(const Sample& like, std::uint64_t case_seed) {
  RandomSource d(case_seed);
  Sample s = like;
  ModelSpec& m = s.model;
  RunSpec& r = s.run;
  // Valid ratios first: most cases must reach the arithmetic and not be rejected at once.
  m.kv_heads = d.from(1, 8), m.heads = m.kv_heads * d.from(1, 8);
  m.head_dim = 2 * d.from(1, 64), m.hidden = d.one_in(4) ? d.from(1, 4096) : m.heads * m.head_dim;
  m.layers = d.one_in(8) ? d.from(1, 96) : d.from(1, 4), m.intermediate = d.from(1, 4 * m.hidden),
  m.vocab = d.from(1, 70000);
  m.tied = d.one_in(2), m.qkv_bias = d.one_in(4), m.o_bias = d.one_in(8), m.mlp_bias = d.one_in(8),
  m.qk_norm = d.one_in(4);
  m.sliding_window = d.one_in(4) ? d.from(1, 600) : 0;
  r.micro_batch = d.from(1, 16), r.seq_len = d.from(1, 2048), r.accumulate = d.one_in(2) ? 1 : d.from(1, 64);
  m.max_positions = d.one_in(8) ? d.from(1, 4096) : 4096;
  r.optimizer = static_cast<Optimizer>(d.from(1, 3));
  r.recompute = static_cast<Recompute>(d.from(1, 3));
  r.weight = d.of(kTypes), r.grad = d.of(kTypes), r.compute = d.of(kTypes);
  r.master = d.one_in(2) ? DType::kF32 : DType::kNone, r.moment = d.one_in(4) ? DType::kBF16 : DType::kF32;
  if (d.one_in(4))
    r.mode = static_cast<RunMode>(d.from(1, 4)), r.lora_rank = d.from(1, 64), r.lora_targets = d.from(1, 127);
  if (d.one_in(4)) r.parallel.data = d.from(1, 64), r.parallel.zero = d.from(0, 3);
  if (d.one_in(6)) r.parallel.tensor = d.from(1, 8), r.parallel.pipeline = d.from(1, 8);
  // After all valid draws: one field is spoiled in a third of the cases.
  if (d.one_in(3)) set_edge_value(d, s);
  write_config(m);
  // Cut at a random byte: not valid JSON.
  if (d.one_in(10)) m.config_json.resize(d.below(m.config_json.size()));
  return s;
}

/// Valid by construction and tiny; the trainer may refuse a combination, but most are trained.
Sample draw_training_run(const Sample& like, std::uint64_t case_seed) {
  RandomSource d(case_seed);
  Sample s = like;
  ModelSpec& m = s.model;
  RunSpec& r = s.run;
  m.kv_heads = d.from(1, 3), m.heads = m.kv_heads * d.from(1, 3), m.head_dim = 2 * d.from(1, 8);
  m.hidden = d.one_in(3) ? d.from(1, 40) : m.heads * m.head_dim, m.intermediate = d.from(1, 60);
  m.layers = d.from(1, 3), m.vocab = d.from(2, 130), m.tied = d.one_in(4);
  r.micro_batch = d.from(1, 3), r.seq_len = d.from(1, 20), r.accumulate = d.from(1, 3);
  r.optimizer = static_cast<Optimizer>(d.from(1, 3)), r.recompute = static_cast<Recompute>(d.from(1, 3));
  write_config(m);
  return s;
}

std::string describe_case(const Sample& s, std::uint64_t case_seed) {
  const ModelSpec& m = s.model;
  const RunSpec& r = s.run;
  return fmt::format(
      "case {} ({} layers, hidden {}, {}/{} heads of {}, intermediate {}, vocab {}, batch {} x {} x {} "
      "tokens, optimizer {}, mode {}, ranks {} x {} x {})",
      case_seed, m.layers, m.hidden, m.heads, m.kv_heads, m.head_dim, m.intermediate, m.vocab, r.accumulate,
      r.micro_batch, r.seq_len, static_cast<unsigned>(r.optimizer), static_cast<unsigned>(r.mode),
      r.parallel.data, r.parallel.tensor, r.parallel.pipeline);
}

/// By number of cases, so that a seed gives the same cases everywhere; by time only with --fuzz. The seed of
/// case n is seed + n, so --seed with that number repeats it as the first case.
void for_each_case(WatchedPlugin& plugin, int cases, const std::function<void(std::uint64_t)>& f) {
  using Clock = std::chrono::steady_clock;
  const auto begin = Clock::now();
  const double seconds = plugin.environment().fuzz_seconds;
  std::uint64_t done = 0;
  for (;; ++done) {
    const bool time_up = std::chrono::duration<double>(Clock::now() - begin).count() >= seconds;
    if (seconds > 0 ? time_up : done >= static_cast<std::uint64_t>(cases)) break;
    const std::uint64_t case_seed = plugin.seed() + done;
    try {
      f(case_seed);
    } catch (const CheckFailed& e) {
      throw CheckFailed(fmt::format("{}; --seed {} repeats it", e.what(), case_seed));
    }
  }
  plugin.note_measurement(fmt::format("{} cases from seed {}", done, plugin.seed()));
}

}  // namespace trainhost::plugin_validator
