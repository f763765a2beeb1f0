// See sample_tokens.hpp.
#include "core/training/sample_tokens.hpp"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <numeric>
#include <set>
#include <vector>

#include "core/base/text.hpp"
#include "core/training/inference_model.hpp"
#include "core/training/text_generator.hpp"

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

void apply_repetition_penalty(std::span<float> logits, std::span<const std::int32_t> ids, double penalty) {
  if (penalty == 1.0) return;
  std::vector<std::int32_t> once(ids.begin(), ids.end());
  std::sort(once.begin(), once.end());
  once.erase(std::unique(once.begin(), once.end()), once.end());
  const float by = static_cast<float>(penalty);
  for (std::int32_t id : once)
    if (static_cast<std::size_t>(id) < logits.size()) {
      float& x = logits[static_cast<std::size_t>(id)];
      x = x > 0 ? x / by : x * by;
    }
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
  SessionDecoder decoder(s, m.vocab);
  std::set<std::int32_t> ends;
  if (const auto eos = tokenizer.eos()) ends.insert(*eos);
  TextGenerator generator({decoder, tokenizer, m.vocab, r.seq_len, r.seq_len, 1, logits}, options, ends);
  text += generator.run({&ids, 1}, {}, true).front().text;
  std::string shown;  // escaped: generated text may contain control sequences
  for (std::size_t at = 0; at <= text.size();) {
    std::size_t end = std::min(text.find('\n', at), text.size());
    shown += (at ? "\n  " : "  ") + escaped(std::string_view(text).substr(at, end - at), text.size() * 4 + 1);
    at = end + 1;
  }
  return shown;
}

}  // namespace trainhost::training
