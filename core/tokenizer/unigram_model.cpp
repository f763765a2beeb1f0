// Unigram: the split of a word into pieces with the largest sum of scores (Viterbi). The result is that of
// the `tokenizers` package 0.23, also for equal sums.
#include <algorithm>
#include <cassert>
#include <limits>

#include "core/base/error.hpp"
#include "core/tokenizer/component.hpp"
#include "core/tokenizer/flat_map.hpp"
#include "core/tokenizer/model.hpp"
#include "core/tokenizer/pre_tokenizer.hpp"
#include "core/tokenizer/unicode.hpp"
#include "core/tokenizer/word_cache.hpp"

namespace trainhost::tokenizer {
namespace {

class Unigram final : public Model {
 public:
  Unigram(const ModelData& data, bool bytes, const std::string& file);
  const char* type() const override { return "Unigram"; }
  void encode(std::string_view word, std::vector<std::int32_t>& ids, std::vector<Cut>* cuts) const override;

 private:
  static constexpr double kUnknownPenalty =
      10;  // an unknown character scores this much below the worst piece
  void append_best(std::string_view word, std::vector<std::int32_t>& ids) const;
  void append_unknown(std::string_view text, std::vector<std::int32_t>& ids) const;

  std::string file_;
  std::vector<std::string> texts_;
  std::vector<double> scores_;  // by id
  std::unordered_map<std::string_view, std::int32_t> ids_;
  std::vector<std::int32_t> byte_tokens_;
  Trie trie_;
  double unknown_score_ = 0;
  std::optional<std::int32_t> unk_;
  bool byte_fallback_ = false;
  std::uint64_t number_ = new_model_number();
};

Unigram::Unigram(const ModelData& data, bool bytes, const std::string& file) : file_(file) {
  if (bytes) throw usage_error("tokenizer " + file + ": model Unigram after ByteLevel is not supported");
  const Component options{data.options, file, "model"};
  byte_fallback_ = options.boolean("byte_fallback", false);
  if (const JsonValue* v = data.options.find("unk_id"); v && !v->is_null()) {
    const std::size_t unk = options.count("unk_id");
    if (unk >= data.pieces.size())
      throw usage_error("tokenizer " + file + ": the unk_id " + std::to_string(unk) +
                        " of the model is not below its " + std::to_string(data.pieces.size()) + " pieces");
    unk_ = static_cast<std::int32_t>(unk);
  }
  double lowest = std::numeric_limits<double>::infinity();
  texts_.reserve(data.pieces.size());
  for (const auto& [text, score] : data.pieces) {
    const auto id = static_cast<std::int32_t>(texts_.size());
    texts_.push_back(text);
    scores_.push_back(score);
    ids_[texts_.back()] = id;
    if (!text.empty()) trie_.add(text, id);
    lowest = std::min(lowest, score);
  }
  unknown_score_ = lowest - kUnknownPenalty;
  byte_tokens_ = byte_token_ids(ids_);
}

/// Neighbouring unknown characters are one unknown text.
void Unigram::append_unknown(std::string_view text, std::vector<std::int32_t>& ids) const {
  if (const auto at = ids_.find(text); at != ids_.end()) {
    ids.push_back(at->second);
    return;
  }
  if (byte_fallback_ && std::all_of(text.begin(), text.end(), [&](char b) {
        return byte_tokens_[static_cast<unsigned char>(b)] >= 0;
      })) {
    for (char b : text) ids.push_back(byte_tokens_[static_cast<unsigned char>(b)]);
    return;
  }
  ids.push_back(*unk_);
}

void Unigram::append_best(std::string_view word, std::vector<std::int32_t>& ids) const {
  struct Node {
    double score = 0;
    std::size_t begin = SIZE_MAX;  // of the last piece of the best split that ends here
    std::int32_t id = 0;
  };
  static thread_local std::vector<Node> best;
  best.assign(word.size() + 1, Node{});
  for (std::size_t at = 0; at < word.size();) {
    const std::size_t length = std::min(utf8_length(word[at]), word.size() - at);
    const double before = best[at].score;
    bool single = false;  // a piece is this character alone
    const auto offer = [&](std::size_t bytes, double score, std::int32_t id) {
      Node& end = best[at + bytes];
      if (end.begin == SIZE_MAX || score > end.score) end = {score, at, id};
    };
    trie_.prefixes(word.substr(at), [&](std::size_t bytes, std::int32_t id) {
      offer(bytes, scores_[static_cast<std::size_t>(id)] + before, id);
      single = single || bytes == length;
    });
    if (!single) {
      if (!unk_)
        throw usage_error("tokenizer " + file_ +
                          ": the text has a character that is in no piece, and the model has no unk_id");
      offer(length, unknown_score_ + before, *unk_);
    }
    at += length;
  }
  static thread_local std::vector<std::pair<std::size_t, std::size_t>> pieces;
  pieces.clear();
  for (std::size_t end = word.size(); end > 0; end = best[end].begin)
    pieces.emplace_back(best[end].begin, end);
  for (std::size_t i = pieces.size(); i-- > 0;) {
    const auto id = best[pieces[i].second].id;
    if (id != unk_) {
      ids.push_back(id);
      continue;
    }
    const std::size_t begin = pieces[i].first;
    while (i > 0 && best[pieces[i - 1].second].id == unk_) --i;
    append_unknown(word.substr(begin, pieces[i].second - begin), ids);
  }
}

void Unigram::encode(std::string_view word, std::vector<std::int32_t>& ids, std::vector<Cut>*) const {
  const bool keeps = word.size() <= WordCache::kMaxBytes;
  WordCache& cache = WordCache::of(number_);
  if (keeps && cache.find(word, ids)) return;
  const std::size_t before = ids.size();
  append_best(word, ids);
  if (keeps) cache.keep(word, ids.data() + before, ids.size() - before);
}

}  // namespace

std::unique_ptr<Model> make_unigram(const ModelData& data, bool bytes, const std::string& file) {
  return std::make_unique<Unigram>(data, bytes, file);
}

}  // namespace trainhost::tokenizer
