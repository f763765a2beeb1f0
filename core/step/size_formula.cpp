// See size_formula.hpp: one row per role. This list and buffer_names.hpp are the only lists of roles. A
// formula is for people: it is printed in `plan --explain` and must give the bytes of the entry when its
// symbols are replaced; a test evaluates every formula and compares.
#include "core/step/size_formula.hpp"

#include <string_view>

#include "core/step/buffer_names.hpp"
#include "core/step/scratch_sizes.hpp"

namespace trainhost::step {
namespace {

struct Shape {
  std::string_view role, rows, cols;  // "M": the rows of the section; "": 1
};

// The state of a parameter has the shape of its weight: roles without their "w.", "grad.", "m." or "v.".
constexpr Shape kParams[] = {
    {"embed", "V", "H"},    {"norm1", "H", ""},      {"qkv", "(A+2K)*D", "H"},   {"qkv_bias", "(A+2K)*D", ""},
    {"q_norm", "D", ""},    {"k_norm", "D", ""},     {"o", "H", "A*D"},          {"o_bias", "H", ""},
    {"norm2", "H", ""},     {"gate_up", "2I", "H"},  {"gate_up_bias", "2I", ""}, {"down", "H", "I"},
    {"down_bias", "H", ""}, {"final_norm", "H", ""}, {"head", "V", "H"},
};

// Symbols are those of docs/memory-model.md, and M rows of the section, T threads, W slots, C rows of a chunk
// of logits, Q and R rows and columns of an attention tile, N bytes that follow from no dimension.
constexpr Shape kOthers[] = {
    {role::kX, "M", "H"},
    {role::kH1, "M", "H"},
    {role::kRstd1, "M", ""},
    {role::kQkv, "M", "(A+2K)*D"},
    {role::kQkPre, "M", "(A+K)*D"},
    {role::kQkRstd, "M", "(A+K)"},
    {role::kAttnOut, "M", "A*D"},
    {role::kLse, "M", "A"},
    {role::kXMid, "M", "H"},
    {role::kH2, "M", "H"},
    {role::kRstd2, "M", ""},
    {role::kGateUp, "M", "2I"},
    {role::kAct, "M", "I"},
    {role::kXOut, "M", "H"},
    {role::kHf, "M", "H"},
    {role::kRstdF, "M", ""},
    {role::kDx, "M", "H"},
    {role::kDAct, "M", "I"},
    {role::kDH2, "M", "H"},
    {role::kDAttnOut, "M", "A*D"},
    {role::kDQkv, "M", "(A+2K)*D"},
    {role::kDH1, "M", "H"},
    {role::kDHf, "M", "H"},
    {role::kH1All, "M", "H"},
    {role::kH2All, "M", "H"},
    {role::kHfAll, "M", "H"},
    {role::kDxDown, "M", "H"},
    {role::kDxO, "M", "H"},
    {role::kDxEmbed, "M", "H"},
    {role::kEmbedSum, "M", "H"},
    {role::kOSum, "M", "H"},
    {role::kDownSum, "M", "H"},
    {role::kDH1Sum, "M", "H"},
    {role::kDH2Sum, "M", "H"},
    {role::kCacheK, "S", "K*D"},
    {role::kCacheV, "S", "K*D"},
    {role::kNf4Scales, "N", ""},
    {role::kNf4Staging, "N", ""},
    {role::kRopeTable, "S", "D"},
    {role::kVendorWorkspace, "N", ""},
    {role::kAttnBwdScratch, "T", "Q*(2R+D+2)"},
    {role::kNorm1Partials, "W", "H"},
    {role::kNorm2Partials, "W", "H"},
    {role::kFinalPartials, "W", "H"},
    {role::kQkPartials, "W", "2D"},
    {role::kSquarePartials, "W", ""},
    {role::kLosses, "C", ""},
    {role::kHidden, "M", "H"},
    {role::kDHidden, "M", "H"},
    {role::kIds, "M", ""},
    {role::kTargets, "M", ""},
    {role::kOrder, "M", ""},
    {role::kStarts, "M", ""},
    {role::kMicroBatch, "2", ""},
    {role::kQkvUnscaled, "M", "(A+2K)*D"},
    {role::kOUnscaled, "M", "H"},
    {role::kGateUpUnscaled, "M", "2I"},
    {role::kDownUnscaled, "M", "H"},
    {role::kCollectiveScratch, "N", ""},
    {role::kHeadStats, "N", ""},
    {role::kFeed, "N", ""},
    {role::kStaging, "N", ""},
};

/// The role of the parameter of which `role` is the gradient, a moment, the master copy or a dequantized
/// copy; empty for others.
std::string_view without_state(std::string_view role) {
  for (std::string_view prefix : {"w.", "grad.", "m.", "v.", "master.", "deq.", "deq_bwd."})
    if (role.starts_with(prefix)) return role.substr(prefix.size());
  return {};
}

/// False for shards, for the pieces of several TP ranks, and for 8-bit and factored moments; their formula is
/// a plain number.
bool has_shape_of_weight(const Program& p, const Buffer& b) {
  if (b.whole || (b.copy >= kDirection && p.run.parallel.tensor > 1)) return false;
  for (const Param& q : p.params)
    for (const BufferId moment : {q.m, q.v})
      if (moment != kNoBuffer && &p[moment] == &b)
        return b.rows == p[q.weight].rows && b.cols == p[q.weight].cols;
  return true;
}

Shape shape_of(const Program& p, const Buffer& b) {
  // With sequence parallelism a rank has a part of the rows of some activations.
  if (p.run.parallel.sequence && b.rows * p.run.parallel.tensor == p.run.tokens_per_micro_batch() &&
      !b.persistent && b.component == Component::kActivations)
    return {};
  const bool one_token = b.copy == kOfGenerate;
  const std::string_view r = b.role;
  if (b.dtype == DType::kU8 && r.starts_with("w."))
    return {r, "N", ""};  // codes and scales of a quantized weight
  if (const std::string_view param = without_state(r); !param.empty())
    for (const Shape& s : kParams)
      if (s.role == param && has_shape_of_weight(p, b)) return s;
  // One role with two meanings: chunk of the micro-batch's rows, or all rows where the logits are
  // materialised.
  if (r == role::kLogits && b.cols != p.model.vocab) return {r, "N", ""};  // of all TP ranks
  if (r == role::kLogits) {
    const bool chunked = !one_token && b.rows < p.run.tokens_per_micro_batch();
    return {r, chunked ? "C" : "M", "V"};
  }
  const bool on_device = b.tier == Tier::kDevice;
  if (r == role::kAttnBwdScratch && on_device) return {r, "M", "A"};
  if (r == role::kAttnScratch) return one_token ? Shape{r, "A", "S"} : Shape{r, "T", "Q*(2R+D+2)"};
  for (const Shape& s : kOthers)
    if (s.role == r) return s;
  return {};
}

void append_factor(std::string& product, std::string_view factor) {
  if (factor.empty()) return;
  if (!product.empty()) product += "*";
  product += factor;
}

/// `count` buffers of this role are live at the same time; L if that is one per layer. The last factor is the
/// size of an element in bytes.
std::string in_symbols(const Program& p, const Buffer& b, std::uint64_t count) {
  std::string f;
  if (count > 1) append_factor(f, b.layer >= 0 && count == p.model.layers ? "L" : std::to_string(count));
  const Shape s = shape_of(p, b);
  // A role without a row: plain numbers, so that the formula is still correct.
  if (s.role.empty()) {
    if (b.rows != 1) append_factor(f, std::to_string(b.rows));
    if (b.cols != 1) append_factor(f, std::to_string(b.cols));
  } else {
    if (s.rows == "M")
      append_factor(f, b.copy == kOfGenerate ? "" : "B*S");
    else
      append_factor(f, s.rows);
    append_factor(f, s.cols);
  }
  append_factor(f, std::to_string(size_of(b.dtype)));
  return f;
}

/// Each symbol is one letter, so a formula can be evaluated without a parser.
std::uint64_t value_of(char symbol, const Program& p, const Buffer& b) {
  const ModelSpec& m = p.model;
  switch (symbol) {
    case 'V':
      return m.vocab;
    case 'H':
      return m.hidden;
    case 'L':
      return m.layers;
    case 'A':
      return m.heads;
    case 'K':
      return m.kv_heads;
    case 'D':
      return m.head_dim;
    case 'I':
      return m.intermediate;
    case 'S':
      return p.run.seq_len;
    case 'B':
      return p.run.micro_batch;
    case 'C':
      return head_chunk(p.traits, p.run.tokens_per_micro_batch());
    case 'T':
      return p.traits.threads;
    case 'W':
      return p.traits.slots;
    case 'Q':
      return p.traits.attention_tile_q;
    case 'R':
      return p.traits.attention_tile_k;
    default:
      return b.rows * b.cols;  // N: bytes of a vendor library's work space or of a transfer buffer
  }
}

/// "(A+2K)*D" as "(32+2*8)*128": every symbol replaced by its value.
std::string in_numbers(const Program& p, const Buffer& b, std::string_view symbols) {
  std::string out;
  for (const char c : symbols) {
    if (c < 'A' || c > 'Z') {
      out += c;
      continue;
    }
    // "2I" is a product: digits before a number need a multiplication sign.
    if (!out.empty() && out.back() >= '0' && out.back() <= '9') out += '*';
    out += std::to_string(value_of(c, p, b));
  }
  return out;
}

}  // namespace

/// A formula without symbols is printed once.
std::string formula(const Program& p, const Buffer& b, std::uint64_t count) {
  const std::string symbols = in_symbols(p, b, count), numbers = in_numbers(p, b, symbols);
  return symbols == numbers ? symbols : symbols + " = " + numbers;
}

}  // namespace trainhost::step
