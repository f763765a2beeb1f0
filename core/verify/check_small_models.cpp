// MEM-EXACT-001: for every V, H, L, A, K, I in 1..4 where A divides H and K divides A (832 models), the
// closed form equals the enumerated tensors. RoPE rotates pairs of elements, so trainers accept only an even
// head_dim (H, A, K = 2,1,1; 4,1,1; 4,2,1; 4,2,2: 256 models). Of these, the tested trainer creates the
// corners, where V, L and I are 1 or 4; the elements that it saves and the bytes of its weights must match
// the closed form.
#include <fmt/format.h>

#include <cassert>
#include <vector>

#include "core/model/tensors.hpp"
#include "core/verify/contract_equations.hpp"
#include "core/verify/contract_table.hpp"
#include "core/verify/footprint.hpp"
#include "core/verify/judge_modes.hpp"
#include "core/verify/trainer_fixture.hpp"

namespace trainhost::verify {
namespace {

constexpr std::uint32_t kMaxDimension = 4;

// A tied head: the closed form of the contract assumes one.
ModelSpec model_of(std::uint32_t V, std::uint32_t H, std::uint32_t L, std::uint32_t A, std::uint32_t K,
                   std::uint32_t I) {
  ModelSpec m;
  m.vocab = V, m.hidden = H, m.layers = L, m.heads = A, m.kv_heads = K, m.intermediate = I;
  m.head_dim = H / A;
  m.tied = true;
  m.max_positions = kMaxDimension;
  return m;
}

std::vector<ModelSpec> all_small_models() {
  std::vector<ModelSpec> out;
  for (std::uint32_t V = 1; V <= kMaxDimension; ++V)
    for (std::uint32_t H = 1; H <= kMaxDimension; ++H)
      for (std::uint32_t L = 1; L <= kMaxDimension; ++L)
        for (std::uint32_t A = 1; A <= H; ++A)
          for (std::uint32_t K = 1; K <= A; ++K)
            for (std::uint32_t I = 1; I <= kMaxDimension; ++I)
              if (H % A == 0 && A % K == 0) out.push_back(model_of(V, H, L, A, K, I));
  assert(out.size() == 832);
  return out;
}

// Corners differ in every term of the closed form; all 256 would take minutes on a device.
bool is_corner(const ModelSpec& m) {
  const auto end = [](std::uint64_t n) { return n == 1 || n == kMaxDimension; };
  // Not the trainer's limit alone: validate() refuses an odd head_dim.
  return m.head_dim % 2 == 0 && end(m.vocab) && end(m.layers) && end(m.intermediate);
}

std::string dimensions_text(const ModelSpec& m) {
  return fmt::format("V {} H {} L {} A {} K {} I {}", m.vocab, m.hidden, m.layers, m.heads, m.kv_heads,
                     m.intermediate);
}

// By enumeration of the tensors, independent of the closed form.
std::uint64_t enumerated_elements(const ModelSpec& m) {
  std::uint64_t n = 0;
  for (const TensorInfo& t : tensors(m)) n += t.elements();
  return n;
}

/// How many models differ, and the first of them.
struct Differences {
  std::uint64_t tried = 0, count = 0;
  std::string first;
  void compare(const ModelSpec& m, const char* what, std::uint64_t got, std::uint64_t expected) {
    if (got == expected) return;
    ++count;
    if (first.empty())
      first = fmt::format("; {}: {} {}, the closed form {}", dimensions_text(m), what, got, expected);
  }
};

Differences compare_enumerated(const std::vector<ModelSpec>& models) {
  Differences d;
  for (const ModelSpec& m : models) {
    ++d.tried;
    d.compare(m, "enumerated", enumerated_elements(m), contract_parameters(m));
  }
  return d;
}

Differences compare_created(Context& context, const std::string& mode, const std::vector<ModelSpec>& models) {
  Differences d;
  runfile::RunConfig c = in_fp32(context.run);
  c.weights.reset();
  // The smallest run that has a step: its activations are not compared.
  c.run.seq_len = kMaxDimension, c.run.micro_batch = c.run.accumulate = 1;
  for (const ModelSpec& m : models) {
    if (!is_corner(m)) continue;
    c.model = m;
    const Footprint f = measure_footprint(context, c, mode, Measured::kCreated);
    const std::uint64_t p = contract_parameters(m), before = d.count;
    ++d.tried;
    d.compare(m, "elements saved", f.weight_elements, p);
    // A model with a wrong number of elements would also have wrong bytes; it counts once.
    if (d.count == before)
      d.compare(m, "weight bytes", f.bytes_of({Component::kWeights, Component::kMasterWeights}), 4 * p);
  }
  return d;
}

Finding finding(const Differences& enumerated, const Differences& created, const std::string& tail) {
  const std::uint64_t n = enumerated.count + created.count;
  return {n == 0, double(n), 0,
          fmt::format("of {} models with dimensions 1..4, {} differ from their enumerated tensors{}; {}{}",
                      enumerated.tried, enumerated.count, enumerated.first, tail, created.first)};
}

}  // namespace

Result check_small_models(Context& context) {
  const std::vector<ModelSpec> models = all_small_models();
  // Without a trainer the enumeration is still tested; only the text says that nothing was created.
  const Differences enumerated = compare_enumerated(models);
  if (const std::string unavailable = context.trainers.unavailable_reason(); !unavailable.empty())
    return run_once([&] { return finding(enumerated, {}, "no trainer created them: " + unavailable); });
  const Result r = run_in_every_mode(context, [&](const std::string& mode) {
    const Differences created = compare_created(context, mode, models);
    return finding(
        enumerated, created,
        fmt::format(
            "of {} with an even head_dim that the {} trainer created, {} differ in the elements saved or "
            "the bytes allocated",
            created.tried, context.trainers.backend(), created.count));
  });
  // Skipped in every mode: the result of the enumeration must not be lost with it.
  if (r.status != Status::kSkipped) return r;
  return run_once([&] { return finding(enumerated, {}, "no trainer created them: " + r.detail); });
}

}  // namespace trainhost::verify
