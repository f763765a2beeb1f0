// The normalizer of tokenizer.json: changes a text before it is split.
#pragma once
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "core/tokenizer/component.hpp"

namespace trainhost::tokenizer {

/// Added tokens divide a text into segments, which are normalized one by one. A long segment is normalized in
/// pieces: whether a piece is at the start and at the end of its segment, where Prepend and Strip act.
struct SegmentEdges {
  bool at_start = true, at_end = true;
};

class Normalizer {
 public:
  Normalizer() = default;  // changes nothing
  explicit Normalizer(const Component& component);

  bool empty() const { return steps_.empty(); }
  /// The normalized text: `text` itself, or `buffer`.
  std::string_view apply(std::string_view text, SegmentEdges edges, std::string& buffer) const;
  /// False if the text before a cut may decide about the text behind it, wherever the cut is.
  bool can_resume() const { return can_resume_; }

 private:
  using Step = std::function<void(std::string& out, std::string_view text, SegmentEdges edges)>;
  void add(const Component& component);
  std::vector<Step> steps_;
  bool can_resume_ = true;
};

}  // namespace trainhost::tokenizer
