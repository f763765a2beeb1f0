// The built-in text: endless little stories told by a grammar whose exact probabilities are known, so that a
// training run can show its validation loss beside the floor that no model can beat. No file, no network,
// nothing held in memory. The layout of the text in windows, and why, is in README.md; the words are in
// stories_text.cpp.
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

/// Windows of the training text: more than any run reads once.
inline constexpr std::uint64_t kTrainWindows = std::uint64_t{1} << 26;
/// Windows of the validation text: 2^16 tokens in all, but at least 8 windows and at most 512.
std::uint64_t valid_windows(std::uint32_t seq_len);

/// Token i of the text is a character. Window w is tokens [w*S, w*S + S]: the last character of window w-1 (a
/// newline where w = 0), which tells nothing, then the first S characters from a fresh story start. So a
/// sample's S targets are exactly the story's first S characters. Size: windows*S + 1 tokens. A pure function
/// of seed, stream, window and S.
std::unique_ptr<Tokens> story_tokens(std::uint64_t seed, StoryStream stream, std::uint64_t windows,
                                     std::uint32_t seq_len);

/// The first `length` characters from the story start of that window: its S targets, when length = S.
std::string story_text(std::uint64_t seed, StoryStream stream, std::uint64_t window, std::size_t length);

/// Log-probability in nats of every character of a text that begins at a story start, given those before it.
std::vector<double> story_log_probs(std::string_view text);

struct Floor {
  double nats = 0;   // mean -log p of a target
  double error = 0;  // standard error of that mean, over the windows
};
/// The loss of a model that knows the grammar, over the targets of all windows.
Floor story_floor(std::uint64_t seed, StoryStream stream, std::uint64_t windows, std::uint32_t seq_len);

}  // namespace trainhost::data
