// MEM-EXACT-001: for every V, H, L, A, K, I of 1..4 with A dividing H and K dividing A, the closed form
// equals the enumerated tensors. 832 models. Trainers turn pairs of elements by RoPE, so they take those with
// an even head_dim alone (H, A, K = 2,1,1; 4,1,1; 4,2,1; 4,2,2: 256 models); of these the corners, where V, L
// and I are 1 or 4, are created by the judged trainer as well, and what it saves and what its weights take
// must be the closed form's.
#include <fmt/format.h>

#include <vector>

#include "core/model/tensors.hpp"
#include "core/verify/contract_equations.hpp"
#include "core/verify/footprint.hpp"
#include "core/verify/judge_modes.hpp"
#include "core/verify/memory_checks.hpp"
#include "core/verify/trainer_fixture.hpp"

namespace trainhost::verify {
namespace {

constexpr std::uint32_t kSide = 4;

ModelSpec model_of(std::uint32_t V, std::uint32_t H, std::uint32_t L, std::uint32_t A, std::uint32_t K,
                   std::uint32_t I) {
  ModelSpec m;
  m.vocab = V, m.hidden = H, m.layers = L, m.heads = A, m.kv_heads = K, m.intermediate = I;
  m.head_dim = H / A;
  m.tied = true;
  m.max_positions = kSide;
  return m;
}

std::vector<ModelSpec> box() {
  std::vector<ModelSpec> out;
  for (std::uint32_t V = 1; V <= kSide; ++V)
    for (std::uint32_t H = 1; H <= kSide; ++H)
      for (std::uint32_t L = 1; L <= kSide; ++L)
        for (std::uint32_t A = 1; A <= H; ++A)
          for (std::uint32_t K = 1; K <= A; ++K)
            for (std::uint32_t I = 1; I <= kSide; ++I)
              if (H % A == 0 && A % K == 0) out.push_back(model_of(V, H, L, A, K, I));
  return out;
}

bool is_corner(const ModelSpec& m) {
  const auto end = [](std::uint64_t n) { return n == 1 || n == kSide; };
  return m.head_dim % 2 == 0 && end(m.vocab) && end(m.layers) && end(m.intermediate);
}

std::string words(const ModelSpec& m) {
  return fmt::format("V {} H {} L {} A {} K {} I {}", m.vocab, m.hidden, m.layers, m.heads, m.kv_heads,
                     m.intermediate);
}

std::uint64_t enumerated(const ModelSpec& m) {
  std::uint64_t n = 0;
  for (const TensorInfo& t : tensors(m)) n += t.elements();
  return n;
}

/// Models that differ, and the first of them.
struct Differences {
  std::uint64_t tried = 0, count = 0;
  std::string first;
  void look(const ModelSpec& m, const char* what, std::uint64_t got, std::uint64_t expected) {
    if (got == expected) return;
    ++count;
    if (first.empty()) first = fmt::format("; {}: {} {}, the closed form {}", words(m), what, got, expected);
  }
};

Differences enumerate(const std::vector<ModelSpec>& models) {
  Differences d;
  for (const ModelSpec& m : models) {
    ++d.tried;
    d.look(m, "enumerated", enumerated(m), contract_parameters(m));
  }
  return d;
}

Differences allocate(Context& context, const std::string& mode, const std::vector<ModelSpec>& models) {
  Differences d;
  runfile::RunConfig c = in_fp32(context.run);
  c.weights.reset();
  c.run.seq_len = kSide, c.run.micro_batch = c.run.accumulate = 1;
  for (const ModelSpec& m : models) {
    if (!is_corner(m)) continue;
    c.model = m;
    const Footprint f = footprint(context, c, mode, Measured::kCreated);
    const std::uint64_t p = contract_parameters(m), before = d.count;
    ++d.tried;
    d.look(m, "elements saved", f.weight_elements, p);
    if (d.count == before)
      d.look(m, "weight bytes", f.bytes_of({Component::kWeights, Component::kMasterWeights}), 4 * p);
  }
  return d;
}

Finding finding(const Differences& listed, const Differences& created, const std::string& tail) {
  const std::uint64_t n = listed.count + created.count;
  return {
      n == 0, double(n), 0,
      fmt::format("of {} models of 1..4 in every dimension {} differ from their enumerated tensors{}; {}{}",
                  listed.tried, listed.count, listed.first, tail, created.first)};
}

}  // namespace

Result check_small_box(Context& context) {
  const std::vector<ModelSpec> models = box();
  const Differences listed = enumerate(models);
  if (const std::string absent = context.subjects.absent(); !absent.empty())
    return once([&] { return finding(listed, {}, "created by no trainer: " + absent); });
  const Result r = over_modes(context, [&](const std::string& mode) {
    const Differences created = allocate(context, mode, models);
    return finding(
        listed, created,
        fmt::format("of {} with an even head_dim that the {} trainer created {} differ in what it saves or "
                    "allocates",
                    created.tried, context.subjects.backend(), created.count));
  });
  if (r.status != Status::kSkipped) return r;
  return once([&] { return finding(listed, {}, "created by no trainer: " + r.detail); });
}

}  // namespace trainhost::verify
