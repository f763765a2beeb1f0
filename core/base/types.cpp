// One table of names per enum of types.hpp. name() of a value without a row is "unknown". The names are those
// of JSON, the run file and the command line: changing one breaks readers. Tables are searched linearly; they
// have at most 12 rows, and no inner loop asks for a name.
#include "core/base/types.hpp"

#include <algorithm>
#include <utility>

#include "core/base/memory_report.hpp"

namespace trainhost {
namespace {

template <class E, std::size_t N>
using Table = std::array<std::pair<E, std::string_view>, N>;

constexpr Table<DType, 12> kDTypes{{{DType::kNone, "none"},
                                    {DType::kF32, "f32"},
                                    {DType::kF16, "f16"},
                                    {DType::kBF16, "bf16"},
                                    {DType::kI32, "i32"},
                                    {DType::kU8, "u8"},
                                    {DType::kTF32, "tf32"},
                                    {DType::kF64, "f64"},
                                    {DType::kF8, "fp8"},
                                    {DType::kI8, "int8"},
                                    {DType::kNF4, "nf4"},
                                    {DType::kI4, "int4"}}};
constexpr Table<Tier, 4> kTiers{
    {{Tier::kDevice, "device"}, {Tier::kPinned, "pinned"}, {Tier::kHost, "host"}, {Tier::kDisk, "disk"}}};
constexpr Table<Claim, 3> kClaims{{{Claim::kExact, "exact"},
                                   {Claim::kUpperBound, "upper_bound"},
                                   {Claim::kApproximation, "approximation"}}};
// In the order in which reports list components: model state first, then what a step needs, then overhead.
constexpr Table<Component, 12> kComponents{{{Component::kWeights, "weights"},
                                            {Component::kMasterWeights, "master_weights"},
                                            {Component::kGradients, "gradients"},
                                            {Component::kOptimizerState, "optimizer_state"},
                                            {Component::kActivations, "activations"},
                                            {Component::kLogits, "logits"},
                                            {Component::kWorkspace, "workspace"},
                                            {Component::kCommunication, "communication"},
                                            {Component::kKvCache, "kv_cache"},
                                            {Component::kAdapters, "adapters"},
                                            {Component::kFragmentation, "fragmentation"},
                                            {Component::kRuntime, "runtime"}}};
// A mask of all phases is "every phase"; other masks of several phases have no name.
constexpr Table<Phase, 8> kPhases{{{static_cast<Phase>(kAlways), "every phase"},
                                   {kLoad, "load"},
                                   {kForward, "forward"},
                                   {kBackward, "backward"},
                                   {kUpdate, "update"},
                                   {kEval, "eval"},
                                   {kSave, "save"},
                                   {kGenerate, "generate"}}};
constexpr Table<Optimizer, 7> kOptimizers{{{Optimizer::kAdamW, "adamw"},
                                           {Optimizer::kSgd, "sgd"},
                                           {Optimizer::kSgdMomentum, "sgd-momentum"},
                                           {Optimizer::kAdafactor, "adafactor"},
                                           {Optimizer::kLion, "lion"},
                                           {Optimizer::kMuon, "muon"},
                                           {Optimizer::kAdamW8bit, "adamw-8bit"}}};
constexpr Table<Recompute, 5> kRecomputes{{{Recompute::kNone, "none"},
                                           {Recompute::kSelective, "selective"},
                                           {Recompute::kFull, "full"},
                                           {Recompute::kAuto, "auto"},
                                           {Recompute::kLayers, "layers"}}};

// Names of the run file where they differ from JSON (types.hpp): "fp32" is what users know from other
// frameworks, "f32" what the C interface and the reports use.
constexpr Table<DType, 9> kRunFileTypes{{{DType::kNone, "none"},
                                         {DType::kF32, "fp32"},
                                         {DType::kTF32, "tf32"},
                                         {DType::kBF16, "bf16"},
                                         {DType::kF16, "fp16"},
                                         {DType::kF8, "fp8"},
                                         {DType::kI8, "int8"},
                                         {DType::kI4, "int4"},
                                         {DType::kNF4, "nf4"}}};
// Both kinds of host memory are "cpu"; reading "cpu" gives kHost, the first row.
constexpr Table<Tier, 4> kOffloadNames{
    {{Tier::kDevice, "none"}, {Tier::kHost, "cpu"}, {Tier::kPinned, "cpu"}, {Tier::kDisk, "nvme"}}};

/// `otherwise`: the result for a value that is not in the table, such as a number from a newer plugin.
template <class E, std::size_t N>
constexpr std::string_view name_in(const Table<E, N>& table, E value,
                                   std::string_view otherwise = "unknown") {
  for (const auto& [v, text] : table)
    if (v == value) return text;
  return otherwise;
}

template <class E, std::size_t N>
std::optional<E> value_in(const Table<E, N>& table, std::string_view text) {
  for (const auto& [v, t] : table)
    if (t == text) return v;
  return std::nullopt;
}

std::string with_spaces(std::string_view name) {
  std::string out(name);
  std::replace(out.begin(), out.end(), '_', ' ');
  return out;
}

}  // namespace

/// Types narrower than a byte have no size per element; use bits_of() and round up per tensor. No default
/// case: the compiler then warns about a new type that is missing here.
std::uint32_t size_of(DType t) {
  switch (t) {
    case DType::kF64:
      return 8;
    case DType::kF32:
    case DType::kI32:
    case DType::kTF32:
      return 4;
    case DType::kF16:
    case DType::kBF16:
      return 2;
    case DType::kU8:
    case DType::kF8:
    case DType::kI8:
      return 1;
    case DType::kNF4:
    case DType::kI4:
    case DType::kNone:
      break;
  }
  return 0;
}
std::uint32_t bits_of(DType t) { return t == DType::kNF4 || t == DType::kI4 ? 4 : 8 * size_of(t); }

std::string_view name(DType t) { return name_in(kDTypes, t); }
std::string_view name(Tier t) { return name_in(kTiers, t); }
std::string_view name(Claim c) { return name_in(kClaims, c); }
std::string_view name(Component c) { return name_in(kComponents, c); }
std::string_view name(Phase p) { return name_in(kPhases, p); }
std::string_view name(Optimizer o) { return name_in(kOptimizers, o); }
std::string_view name(Recompute r) { return name_in(kRecomputes, r); }
std::string display_name(Component c) {
  return c == Component::kKvCache ? "key/value cache" : with_spaces(name(c));
}
std::string display_name(Claim c) { return with_spaces(name(c)); }
std::optional<Optimizer> optimizer_from(std::string_view text) { return value_in(kOptimizers, text); }
std::optional<Recompute> recompute_from(std::string_view text) { return value_in(kRecomputes, text); }

std::string_view run_file_name(DType t) { return name_in(kRunFileTypes, t, name(t)); }
std::optional<DType> type_of_run_file_name(std::string_view word) { return value_in(kRunFileTypes, word); }
std::string_view offload_name(Tier t) { return name_in(kOffloadNames, t, name(t)); }
std::optional<Tier> tier_of_offload_name(std::string_view word) { return value_in(kOffloadNames, word); }

}  // namespace trainhost
