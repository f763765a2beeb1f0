// Windows of the built-in text (layout: stories.hpp) and its exact entropy. Every window has its own random
// stream, so any part can be generated without the parts before it.
#include "core/data/stories.hpp"

#include <algorithm>
#include <cassert>
#include <cmath>

#include "core/base/checked.hpp"
#include "core/data/grammar_score.hpp"

namespace trainhost::data {
namespace {

/// The key of a window's random stream. Two rounds of mixing: seeds and windows are small consecutive
/// numbers, and without mixing neighbouring windows would start with correlated numbers. The constants only
/// separate the inputs from each other.
std::uint64_t window_key(std::uint64_t seed, StoryStream stream, std::uint64_t window) {
  const std::uint64_t key =
      KeyedRandom::mix(seed + 0x5851f42d4c957f2dULL * static_cast<std::uint64_t>(stream));
  return KeyedRandom::mix(key ^ KeyedRandom::mix(window + 0x2545f4914f6cdd1dULL));
}

// Passes the first `length` characters of a window's stories to `take`, one piece at a time. The sampler
// cannot start in the middle: reading a part of a window generates all characters before it, at most S.
template <class Take>  // take(position, piece)
void generate_story(std::uint64_t key, std::size_t length, Take take) {
  GrammarSampler sampler(stories_grammar(), key);
  for (std::size_t done = 0; done < length;) {
    const std::string_view piece = sampler.next().substr(0, length - done);
    take(done, piece);
    done += piece.size();
  }
}

class StoryTokens final : public Tokens {
 public:
  StoryTokens(std::uint64_t seed, StoryStream stream, std::uint64_t windows, std::uint32_t seq_len)
      : seed_(seed), stream_(stream), windows_(windows), seq_len_(seq_len) {}

  std::uint64_t size() const override { return windows_ * seq_len_ + 1; }
  std::uint64_t held_bytes() const override { return 0; }

  // Character r of the story of window w is token w*S + 1 + r; only token 0 belongs to no story. After that
  // token, `at` counts characters of stories from 0.
  void read(std::uint64_t first, std::span<std::int32_t> out) const override {
    assert(out.size() <= size() && first <= size() - out.size());
    if (out.empty()) return;
    if (first == 0) {
      out[0] = '\n';
      return read(1, out.subspan(1));
    }
    for (std::uint64_t at = first - 1; !out.empty();) {
      const std::uint64_t skip = at % seq_len_;
      const std::size_t n = std::min<std::uint64_t>(out.size(), seq_len_ - skip);
      copy_part(at / seq_len_, skip, out.first(n));
      out = out.subspan(n);
      at += n;
    }
  }

 private:
  void copy_part(std::uint64_t window, std::size_t skip, std::span<std::int32_t> out) const {
    generate_story(window_key(seed_, stream_, window), skip + out.size(),
                   [&](std::size_t at, std::string_view piece) {
                     // A piece may begin before `skip` and end behind it.
                     for (std::size_t i = at < skip ? skip - at : 0; i < piece.size(); ++i)
                       out[at + i - skip] = static_cast<unsigned char>(piece[i]);
                   });
  }

  std::uint64_t seed_;
  StoryStream stream_;
  std::uint64_t windows_;
  std::uint32_t seq_len_;
};

}  // namespace

/// Parsed at the first use and kept. A local static is initialised once, even if several threads ask at the
/// same time.
const Grammar& stories_grammar() {
  static const Grammar grammar(stories_grammar_text());
  return grammar;
}

/// About 2^16 tokens for any window length; at least 8 windows, because the standard error needs several.
std::uint64_t valid_windows(std::uint32_t seq_len) {
  return std::clamp<std::uint64_t>((std::uint64_t{1} << 16) / std::max(seq_len, 1u), 8, 512);
}

std::unique_ptr<Tokens> story_tokens(std::uint64_t seed, StoryStream stream, std::uint64_t windows,
                                     std::uint32_t seq_len) {
  // windows * S + 1 tokens must fit, since positions are computed with 64-bit products everywhere else.
  checked_add(checked_mul(windows, seq_len), 1, "the size of the built-in text");
  if (windows == 0 || seq_len == 0)
    throw usage_error("the built-in text needs a sequence length of 1 or more");
  return std::make_unique<StoryTokens>(seed, stream, windows, seq_len);
}

std::string story_text(std::uint64_t seed, StoryStream stream, std::uint64_t window, std::size_t length) {
  std::string text;
  text.reserve(length);
  generate_story(window_key(seed, stream, window), length,
                 [&](std::size_t, std::string_view piece) { text += piece; });
  return text;
}

/// Each window contributes its mean, and the standard error is computed over windows: characters of one story
/// are not independent, windows are.
StoryEntropy story_entropy(std::uint64_t seed, StoryStream stream, std::uint64_t windows,
                           std::uint32_t seq_len) {
  GrammarScore score(stories_grammar());
  double sum = 0, squares = 0;  // over the mean of each window
  for (std::uint64_t w = 0; w < windows; ++w) {
    double nats = 0;
    score.restart();
    for (char c : story_text(seed, stream, w, seq_len)) nats -= score.advance(c);
    nats /= seq_len;
    sum += nats;
    squares += nats * nats;
  }
  const double n = static_cast<double>(windows), mean = sum / n;
  // max(): rounding can make the variance of nearly equal means slightly negative.
  const double variance = windows > 1 ? std::max(0.0, (squares - n * mean * mean) / (n - 1)) : 0.0;
  return {mean, std::sqrt(variance / n)};
}

}  // namespace trainhost::data
