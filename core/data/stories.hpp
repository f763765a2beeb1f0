// The built-in text: short stories sampled from a probabilistic grammar, so its exact entropy is known, which
// is a lower bound on the validation loss. Uses no file, no network and no memory. The window layout and its
// reason are in README.md; the words are in stories_text.cpp.
#pragma once
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "core/data/dataset.hpp"
#include "core/data/grammar.hpp"

namespace trainhost::data {

std::string_view stories_grammar_text();
const Grammar& stories_grammar();

enum class StoryStream : std::uint64_t { kTrain = 1, kValid = 2 };

/// Windows of the training text; no run reads all of them.
inline constexpr std::uint64_t kTrainWindows = std::uint64_t{1} << 26;
/// Windows of the validation text: 2^16 tokens in total, but at least 8 and at most 512 windows.
std::uint64_t valid_windows(std::uint32_t seq_len);

/// The text as tokens, one per character. Window w is tokens [w*S, w*S + S], S = seq_len: first the last
/// character of window w-1 (a newline if w = 0), which carries no information, then the first S characters of
/// a new story. So the S targets of a sample are exactly the first S characters of a story. Size: windows*S +
/// 1 tokens. A pure function of seed, stream, window and S.
std::unique_ptr<Tokens> story_tokens(std::uint64_t seed, StoryStream stream, std::uint64_t windows,
                                     std::uint32_t seq_len);

/// The first `length` characters of the story of that window; its S targets if length = S.
std::string story_text(std::uint64_t seed, StoryStream stream, std::uint64_t window, std::size_t length);

struct StoryEntropy {
  double nats = 0;   // mean -log p per target
  double error = 0;  // standard error of the mean over the windows
};
/// Exact entropy of the targets of all windows: the loss of a model that knows the grammar.
StoryEntropy story_entropy(std::uint64_t seed, StoryStream stream, std::uint64_t windows,
                           std::uint32_t seq_len);

}  // namespace trainhost::data
