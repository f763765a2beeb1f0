// See sample_tokens.hpp.
#include "core/training/sample_tokens.hpp"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <numeric>
#include <random>
#include <vector>

#include "core/base/text.hpp"

namespace trainhost::training {

/// Inverse transform sampling in one pass over the ids in ascending order, so that equal `u` and logits give
/// equal tokens on every machine. top_k and top_p both become a threshold on the probability; ids with
/// exactly the threshold are all kept.
std::int32_t sample_token(std::span<float> logits, const SampleOptions& o, double u) {
  assert(!logits.empty() && u >= 0 && u < 1);
  auto most_likely = std::max_element(logits.begin(), logits.end());
  if (o.temperature <= 0 || o.top_k == 1) return static_cast<std::int32_t>(most_likely - logits.begin());
  // The maximum is subtracted before exp(): the largest term is 1, and no overflow is possible.
  float top = *most_likely;
  for (float& x : logits) x = static_cast<float>(std::exp((x - top) / o.temperature));

  float threshold = 0;  // smallest unnormalised probability that can be sampled
  bool limited = (o.top_k > 0 && o.top_k < logits.size()) || o.top_p < 1;
  if (limited) {
    std::vector<float> sorted(logits.begin(), logits.end());
    std::sort(sorted.begin(), sorted.end(), std::greater<>());
    if (o.top_k > 0 && o.top_k < sorted.size()) sorted.resize(o.top_k);
    double all = std::accumulate(sorted.begin(), sorted.end(), 0.0), sum = 0;
    for (float p : sorted) {
      threshold = p;
      if ((sum += p) >= o.top_p * all) break;
    }
  }
  double total = 0;
  for (float p : logits)
    if (p >= threshold) total += p;
  double at = u * total;
  // Rounding can leave a remainder after the last candidate; `last` is then the answer.
  std::int32_t last = static_cast<std::int32_t>(most_likely - logits.begin());
  for (std::size_t i = 0; i < logits.size(); ++i) {
    if (logits[i] < threshold || logits[i] == 0) continue;
    last = static_cast<std::int32_t>(i);
    if ((at -= logits[i]) < 0) break;
  }
  return last;
}

/// One token per call of next_logits(); the trainer keeps keys and values of the context.
void generate_tokens(plugin::Session& s, const data::Tokenizer& tokenizer, std::vector<std::int32_t> ids,
                     const SampleOptions& o, std::uint32_t seq_len, std::span<float> logits,
                     const std::function<void(const std::string&)>& emit) {
  if (ids.empty()) throw usage_error("the prompt is empty");
  if (ids.size() >= seq_len)
    throw usage_error("the prompt has " + std::to_string(ids.size()) + " tokens and the context has only " +
                      std::to_string(seq_len));
  std::mt19937_64 random(o.seed);
  std::uint32_t position = 0;
  for (std::int32_t id : ids) s.next_logits(id, position++, logits);
  tokenizer::TextDecoder text(tokenizer, ids);
  for (std::uint32_t n = 0; n < o.tokens; ++n) {
    // 53 random bits: every double of the form k / 2^53 in [0, 1) with equal probability.
    double u = static_cast<double>(random() >> 11) * 0x1.0p-53;
    // A model may have more ids than its tokenizer (a padded vocabulary); those are never sampled.
    ids.push_back(sample_token(
        logits.first(tokenizer.vocab() < logits.size() ? tokenizer.vocab() : logits.size()), o, u));
    if (ids.back() == tokenizer.eos()) break;
    if (const std::string piece = text.next(ids.back()); !piece.empty()) emit(piece);
    // One position must remain for the token sampled last.
    if (position + 1 >= seq_len) {  // the context is full: restart it with its second half
      position = 0;
      for (std::size_t i = ids.size() - seq_len / 2; i + 1 < ids.size(); ++i)
        s.next_logits(ids[i], position++, logits);
    }
    assert(position < seq_len);
    s.next_logits(ids.back(), position++, logits);
  }
  if (const std::string piece = text.rest(); !piece.empty()) emit(piece);
}

/// Continues validation text, which the model has not seen in training; without it, a newline, which starts a
/// story of the built-in text.
std::optional<std::string> sample_of_trained_model(plugin::Session& s, const data::Tokenizer& tokenizer,
                                                   const data::Source& source, const ModelSpec& m,
                                                   const RunSpec& r, std::span<float> logits) {
  if (!s.can_generate() || source.unknown_text || tokenizer.vocab() > m.vocab) return std::nullopt;
  std::vector<std::int32_t> ids(std::min<std::uint64_t>(source.valid ? 16 : 0, r.seq_len / 2));
  // With fewer tokens than that, the prompt stays a newline.
  if (!ids.empty() && source.valid->size() >= ids.size())
    source.valid->read(0, ids);
  else
    ids = tokenizer.encode("\n");
  if (ids.empty()) return std::nullopt;  // the tokenizer drops newlines
  SampleOptions options;
  options.tokens = 320;
  options.seed = r.seed;
  std::string text = tokenizer.decode(ids);
  generate_tokens(s, tokenizer, ids, options, r.seq_len, logits,
                  [&](const std::string& piece) { text += piece; });
  std::string shown;  // escaped: generated text may contain control sequences
  for (std::size_t at = 0; at <= text.size();) {
    std::size_t end = std::min(text.find('\n', at), text.size());
    shown += (at ? "\n  " : "  ") + escaped(std::string_view(text).substr(at, end - at), text.size() * 4 + 1);
    at = end + 1;
  }
  return shown;
}

}  // namespace trainhost::training
