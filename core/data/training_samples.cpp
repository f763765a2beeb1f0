// See training_samples.hpp. Samples are read as training reads them, and decoded: so what is shown is packed,
// truncated and mixed as it is trained on.
#include "core/data/training_samples.hpp"

#include <algorithm>
#include <cassert>

namespace trainhost::data {
namespace {

/// Sizes and weights of the sources; one that is not mixed has weight 1.
std::vector<MixturePart> parts_of(const Source& s) {
  const std::span<const MixturePart> parts = s.train_samples->parts();
  if (parts.empty()) return {{s.train_samples->size(), 1}};
  return {parts.begin(), parts.end()};
}

/// The text of ids [begin, end) where ids [0, begin) are before them: a tokenizer may drop a space at the
/// begin of a text.
std::string text_between(const Tokenizer& tokenizer, std::span<const std::int32_t> ids, std::size_t begin,
                         std::size_t end) {
  const std::string before = tokenizer.decode(ids.first(begin)), all = tokenizer.decode(ids.first(end));
  return all.starts_with(before) ? all.substr(before.size())
                                 : tokenizer.decode(ids.subspan(begin, end - begin));
}

/// `trained`: one per id.
ShownDocument document_of(const Tokenizer& tokenizer, std::span<const std::int32_t> ids,
                          std::span<const std::uint8_t> trained) {
  ShownDocument out;
  out.tokens = ids.size();
  out.counted = static_cast<std::uint64_t>(std::count(trained.begin(), trained.end(), 1));
  for (std::size_t begin = 0, end = 0; begin < ids.size(); begin = end) {
    const bool special = tokenizer.special(ids[begin]);
    const auto same = [&](std::size_t i) {
      return trained[i] == trained[begin] && tokenizer.special(ids[i]) == special;
    };
    for (end = begin + 1; end < ids.size() && same(end); ++end) {
    }
    out.parts.push_back({text_between(tokenizer, ids, begin, end), special, trained[begin] != 0});
  }
  return out;
}

}  // namespace

std::vector<SourceShare> source_shares(const Source& s, std::uint64_t read) {
  const std::vector<MixturePart> parts = parts_of(s);
  assert(parts.size() == s.sources.size());
  double weights = 0, tokens = 0;
  for (const MixturePart& p : parts) weights += p.weight;
  std::vector<SourceShare> out;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    SourceShare share{s.sources[i], parts[i].samples, parts[i].weight, parts[i].weight / weights, 0, 0};
    const auto samples = static_cast<double>(parts[i].samples);
    share.epochs = share.of_samples * static_cast<double>(read) / samples;
    share.of_tokens = share.of_samples * static_cast<double>(share.source.tokens) / samples;
    tokens += share.of_tokens;
    out.push_back(std::move(share));
  }
  for (SourceShare& share : out) share.of_tokens /= tokens;
  return out;
}

std::vector<ShownSample> show_samples(const Source& s, const Tokenizer& tokenizer, const Order& order,
                                      std::uint32_t seq_len, std::uint64_t first, std::uint64_t count) {
  assert(first > 0);
  const std::vector<MixturePart> parts = parts_of(s);
  std::vector<std::int32_t> tokens(seq_len), targets(seq_len), starts(seq_len), ids;
  std::vector<ShownSample> out;
  for (std::uint64_t position = first; position < first + count; ++position) {
    std::uint64_t sample = order.sample(position - 1);
    s.train_samples->read(sample, tokens, targets, starts);
    std::size_t source = 0;
    for (; sample >= parts[source].samples; ++source) sample -= parts[source].samples;
    ShownSample shown{position, s.sources[source].name, sample + 1, {}, 0};

    ids = tokens;
    std::vector<std::uint8_t> trained = {0};
    for (std::uint32_t i = 0; i + 1 < seq_len; ++i) trained.push_back(targets[i] != kNotCounted);
    if (targets.back() != kNotCounted) ids.push_back(targets.back()), trained.push_back(1);
    for (std::size_t begin = 0, end = 0; begin < ids.size(); begin = end) {
      for (end = begin + 1; end < ids.size() && (end >= seq_len || starts[end] == starts[begin]);) ++end;
      const auto flags = std::span(trained).subspan(begin, end - begin);
      // Every document has a counted target; padding has none.
      if (std::count(flags.begin(), flags.end(), 1) == 0)
        shown.padding += end - begin;
      else
        shown.documents.push_back(document_of(tokenizer, std::span(ids).subspan(begin, end - begin), flags));
    }
    out.push_back(std::move(shown));
  }
  return out;
}

}  // namespace trainhost::data
