// Nearest names, see text.hpp: what a user may have meant by a word that is not known. Inputs are untrusted:
// every loop is bounded by the length of its input.
#include <algorithm>
#include <utility>

#include "core/base/misspelling.hpp"
#include "core/base/text.hpp"

namespace trainhost {
namespace {

constexpr std::size_t kMaxWord = 128;  // no suggestion for longer words: the distance is quadratic
constexpr std::size_t kMinPrefix = 3;

/// Edit distance in which a transposition costs 1 (optimal string alignment). Three rows instead of a matrix:
/// row i needs rows i - 1 and i - 2. O(|a|·|b|), hence kMaxWord.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> before_last(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) last[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        row[j] = std::min(row[j], before_last[j - 2] + 1);
    }
    before_last.swap(last);
    last.swap(row);
  }
  return last[b.size()];
}

/// Names that PyTorch, Transformers, CUDA and Megatron-LM use for one thing, in the form of comparable().
constexpr std::string_view kSameThing[][6] = {
    {"bf16", "bfloat16"},
    {"fp16", "f16", "float16", "half"},
    {"fp32", "f32", "float32", "float"},
    {"fp8", "float8", "e4m3"},
    {"nf4", "4bit", "bnb4bit"},
    {"int8", "8bit"},
    {"adamw8bit", "pagedadamw8bit", "adamw8bitpaged", "adam8bit"},
    {"sgdmomentum", "momentum", "nesterov"},
    {"wsd", "warmupstabledecay", "trapezoidal"},
    {"materialised", "materialized", "eager"},
    {"flash", "flashattention", "flashattention2", "sdpa"},
    {"cpu", "host", "ram"},
    {"nvme", "disk", "ssd"},
    {"none", "off", "false", "no", "disabled"},
    {"stop", "raise", "abort", "error"},
    {"pytorch", "torch", "fsdp", "ddp"},
    {"transformers", "huggingface", "hf"},
    {"megatron", "megatronlm", "megatroncore", "mcore"},
};

bool are_one_thing(std::string_view a, std::string_view b) {
  for (const auto& names : kSameThing) {
    const auto is = [&](std::string_view word) {
      return std::find(std::begin(names), std::end(names), word) != std::end(names);
    };
    if (is(a) && is(b)) return true;
  }
  return false;
}

}  // namespace

std::string comparable(std::string_view name) {
  std::string out;
  for (const char c : name) {
    if (c >= 'A' && c <= 'Z')
      out += static_cast<char>(c - 'A' + 'a');
    else if (std::string_view("-_ .:/").find(c) == std::string_view::npos)
      out += c;
  }
  return out;
}

/// Distances up to a third of the length: enough for two slips in a key, too few to suggest unrelated names.
/// d below the longer length: at least one character must agree. Case and separators do not count, except
/// between names that differ in nothing else. A number, such as a version, is no misspelling of another one.
std::optional<std::string> nearest(std::string_view word, std::span<const std::string> candidates) {
  const std::string plain = comparable(word.substr(0, kMaxWord + 1));
  if (plain.empty() || word.size() > kMaxWord) return std::nullopt;
  const bool is_number = plain.find_first_not_of("0123456789") == plain.npos;
  const std::string* best = nullptr;
  std::pair<std::size_t, std::size_t> best_distance;
  for (const std::string& c : candidates) {
    if (c.size() > kMaxWord) continue;
    const std::string other = comparable(c);
    const std::size_t longer = std::max(plain.size(), other.size());
    const std::size_t d = edit_distance(plain, other);
    if (d > std::max<std::size_t>(1, longer / 3) || d >= longer || (d > 0 && is_number)) continue;
    const std::pair distance(d, d == 0 ? edit_distance(word, c) : 0);
    if (!best || distance < best_distance) best = &c, best_distance = distance;
  }
  if (best && best_distance.first == 0) return *best;
  // Another name of the same thing is meant rather than one that is only spelt alike.
  for (const std::string& c : candidates)
    if (are_one_thing(plain, comparable(c))) return c;
  if (best) return *best;
  // A beginning ("h200" for "h200-141gb"), or more than the name ("cosine_with_restarts"), has a large
  // distance.
  for (const std::string& c : candidates)
    if (plain.size() >= kMinPrefix && comparable(c).starts_with(plain)) return c;
  for (const std::string& c : candidates)
    if (c.size() > kMinPrefix && c.size() < word.size() && (word[c.size()] == '_' || word[c.size()] == '-') &&
        comparable(word.substr(0, c.size())) == comparable(c) && (!best || best->size() < c.size()))
      best = &c;
  if (best) return *best;
  return std::nullopt;
}

bool is_misspelling(std::string_view word, std::string_view known) {
  constexpr std::size_t kShort = 8;
  const std::string plain = comparable(word), other = comparable(known);
  const std::size_t shorter = std::min(plain.size(), other.size()),
                    longer = std::max(plain.size(), other.size()), most = shorter < kShort ? 1 : 2;
  if (longer - shorter > most || longer > kMaxWord) return false;
  return plain != other && edit_distance(plain, other) <= most;
}

std::string did_you_mean(std::string_view word, std::span<const std::string> candidates) {
  const auto found = nearest(word, candidates);
  return found ? "; did you mean '" + *found + "'?" : std::string();
}

}  // namespace trainhost
