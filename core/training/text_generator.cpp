// See text_generator.hpp. A text occupies a sequence from its prompt to its end; a free sequence takes the
// next prompt.
#include "core/training/text_generator.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <chrono>
#include <list>
#include <memory>

#include "core/base/error.hpp"

namespace trainhost::training {
namespace {

using Clock = std::chrono::steady_clock;
/// The text with U+FFFD in place of the first bytes of a character at its end.
std::string whole_characters(std::string text) {
  for (std::size_t back = 1; back <= std::min<std::size_t>(3, text.size()); ++back) {
    const auto c = static_cast<unsigned char>(text[text.size() - back]);
    if ((c & 0xC0) == 0x80) continue;
    const std::size_t need = c >= 0xF0 ? 4 : c >= 0xE0 ? 3 : c >= 0xC0 ? 2 : 1;
    if (need > back) text.replace(text.size() - back, back, "\xEF\xBF\xBD");
    break;
  }
  return text;
}

double seconds_since(Clock::time_point t) { return std::chrono::duration<double>(Clock::now() - t).count(); }

}  // namespace

const char* name(Finish f) {
  switch (f) {
    case Finish::kEndToken:
      return "stop";
    case Finish::kLength:
      return "length";
    case Finish::kContextFull:
      return "context";
    case Finish::kStopped:
      return "interrupted";
  }
  return "";
}

/// `waiting`: ids that the cache of the sequence does not have yet; the logits of the last one give the next
/// token.
struct TextGenerator::Text {
  Text(std::size_t i, std::uint32_t s, const std::vector<std::int32_t>& prompt, const SampleOptions& o,
       const tokenizer::Tokenizer& tokenizer)
      : index(i), sequence(s), ids(prompt), waiting(prompt), random(o.seed + i), decoder(tokenizer, prompt) {
    result.prompt_tokens = prompt.size();
  }
  std::size_t index;
  std::uint32_t sequence;
  std::vector<std::int32_t> ids, waiting;
  std::mt19937_64 random;
  tokenizer::TextDecoder decoder;
  Continuation result;
};

TextGenerator::TextGenerator(const Inference& inference, const SampleOptions& options,
                             std::set<std::int32_t> end_ids)
    : in_(inference), options_(options), end_ids_(std::move(end_ids)), cached_(inference.sequences) {
  assert(in_.sequences >= 1 && in_.rows >= in_.sequences && in_.logits.size() >= in_.sequences * in_.vocab);
}

/// Computes the waiting ids of a text in passes of at most in_.rows; the logits of the last one go to the
/// start of in_.logits. The ids are recorded before each pass: a pass that fails leaves fewer in the
/// decoder's cache, so the record is cut back first.
void TextGenerator::feed(Text& t, const Callbacks& callbacks) {
  std::vector<std::int32_t>& cached = cached_[t.sequence];
  std::vector<plugin::DecodeRow> rows;
  for (std::size_t at = 0; at < t.waiting.size() && !(callbacks.stopped && callbacks.stopped());) {
    const std::size_t count = std::min<std::size_t>(in_.rows, t.waiting.size() - at);
    rows.clear();
    for (std::size_t i = 0; i < count; ++i)
      rows.push_back({t.waiting[at + i], t.sequence, static_cast<std::uint32_t>(cached.size() + i), 0});
    rows.back().wants_logits = at + count == t.waiting.size();
    in_.decoder.forward(rows, in_.logits);
    cached.insert(cached.end(), t.waiting.begin() + static_cast<std::ptrdiff_t>(at),
                  t.waiting.begin() + static_cast<std::ptrdiff_t>(at + count));
    at += count;
  }
}

/// Samples the next token of a text. Returns false if the text has ended.
bool TextGenerator::sample(Text& t, std::span<float> logits, const Callbacks& callbacks, bool restart) {
  const auto end = [&](Finish f) {
    t.result.finish = f;
    if (const std::string piece = whole_characters(t.decoder.rest()); !piece.empty()) {
      t.result.text += piece;
      if (callbacks.text) callbacks.text(t.index, piece);
    }
    return false;
  };
  if (callbacks.stopped && callbacks.stopped()) return end(Finish::kStopped);
  if (t.result.ids.size() == options_.tokens) return end(Finish::kLength);
  // A model may have more ids than its tokenizer (a padded vocabulary); those are never sampled.
  logits = logits.first(std::min<std::uint64_t>(in_.tokenizer.vocab(), in_.vocab));
  apply_repetition_penalty(logits, t.ids, options_.repetition_penalty);
  // 53 random bits: every double of the form k / 2^53 in [0, 1) with equal probability.
  const double u = static_cast<double>(t.random() >> 11) * 0x1.0p-53;
  const std::int32_t id = sample_token(logits, options_, u);
  t.ids.push_back(id), t.result.ids.push_back(id);
  ++speed_.new_tokens;
  if (end_ids_.contains(id)) return end(Finish::kEndToken);
  if (const std::string piece = t.decoder.next(id); !piece.empty()) {
    t.result.text += piece;
    if (callbacks.text) callbacks.text(t.index, piece);
  }
  if (t.result.ids.size() == options_.tokens) return end(Finish::kLength);
  t.waiting = {id};
  // One position must remain for the token sampled last.
  if (cached_[t.sequence].size() + 1 < in_.context) return true;
  if (!restart) return end(Finish::kContextFull);
  cached_[t.sequence].clear();
  t.waiting.assign(t.ids.end() - in_.context / 2, t.ids.end());
  return true;
}

/// One forward pass for one waiting id of each text; row i of in_.logits is that of texts[i].
void TextGenerator::step(std::vector<Text*>& texts) {
  std::vector<plugin::DecodeRow> rows;
  for (const Text* t : texts)
    rows.push_back(
        {t->waiting.front(), t->sequence, static_cast<std::uint32_t>(cached_[t->sequence].size()), 1});
  in_.decoder.forward(rows, in_.logits);
  for (const Text* t : texts) cached_[t->sequence].push_back(t->waiting.front());
}

std::vector<Continuation> TextGenerator::run(std::span<const std::vector<std::int32_t>> prompts,
                                             const Callbacks& callbacks, bool restart) {
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    const std::string which = prompts.size() > 1 ? fmt::format("prompt {}", i + 1) : "the prompt";
    if (prompts[i].empty()) throw usage_error(which + " is empty");
    if (prompts[i].size() >= in_.context)
      throw usage_error(
          fmt::format("{} has {} tokens and the context has only {}", which, prompts[i].size(), in_.context),
          "--context N sets the context");
  }
  std::vector<Continuation> results(prompts.size());
  std::list<Text> texts;
  std::vector<std::uint32_t> free;
  for (std::uint32_t s = in_.sequences; s-- > 0;) free.push_back(s);
  std::size_t next = 0;
  const auto finish = [&](const Text& t) {
    results[t.index] = t.result;
    free.push_back(t.sequence);
    if (callbacks.done) callbacks.done(t.index, t.result);
  };
  // Starts or restarts a text: its waiting ids are more than one. Its next token is sampled at once, because
  // the next pass overwrites the logits.
  const auto prepare = [&](Text& t) {
    const auto start = Clock::now();
    feed(t, callbacks);
    speed_.prompt_tokens += t.waiting.size();
    speed_.prompt_seconds += seconds_since(start);
    return sample(t, in_.logits.first(in_.vocab), callbacks, restart);
  };
  while (next < prompts.size() || !texts.empty()) {
    while (next < prompts.size() && !free.empty()) {
      const std::uint32_t sequence = free.back();
      free.pop_back();
      texts.emplace_back(next, sequence, prompts[next], options_, in_.tokenizer);
      ++next;
      Text& t = texts.back();
      // What the prompt shares with the cache is kept, except its last id: that one's logits are needed.
      std::vector<std::int32_t>& cached = cached_[sequence];
      const auto [mismatch, unused] =
          std::mismatch(cached.begin(), cached.end(), t.ids.begin(), t.ids.end() - 1);
      cached.erase(mismatch, cached.end());
      t.waiting.erase(t.waiting.begin(), t.waiting.begin() + static_cast<std::ptrdiff_t>(cached.size()));
      bool running = prepare(t);
      while (running && t.waiting.size() > 1) running = prepare(t);  // a tiny context restarts at once
      if (!running) finish(t), texts.pop_back();
    }
    if (texts.empty()) continue;
    std::vector<Text*> active;
    for (Text& t : texts) active.push_back(&t);
    const auto start = Clock::now();
    step(active);
    ++speed_.steps;
    std::vector<Text*> ended;
    for (std::size_t i = 0; i < active.size(); ++i)
      if (!sample(*active[i], in_.logits.subspan(i * in_.vocab, in_.vocab), callbacks, restart))
        ended.push_back(active[i]);
    speed_.step_seconds += seconds_since(start);
    for (Text* t : active) {
      bool running = std::find(ended.begin(), ended.end(), t) == ended.end();
      while (running && t->waiting.size() > 1) running = prepare(*t);
      if (running) continue;
      finish(*t);
      texts.remove_if([&](const Text& other) { return &other == t; });
    }
  }
  return results;
}

}  // namespace trainhost::training
