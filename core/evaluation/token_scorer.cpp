// See token_scorer.hpp. A job occupies a sequence until its last text is scored. A pass takes rows from one
// sequence after the other until it is full, so a long text is computed in several passes and short ones
// together.
#include "core/evaluation/token_scorer.hpp"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <thread>

namespace trainhost::evaluation {

double log_probability(std::span<const float> logits, std::int32_t target) {
  assert(target >= 0 && static_cast<std::size_t>(target) < logits.size());
  const float largest = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float x : logits) sum += static_cast<double>(std::exp(x - largest));
  return static_cast<double>(logits[static_cast<std::size_t>(target)]) - static_cast<double>(largest) -
         std::log(sum);
}

/// A sequence of the decoder and the job in it.
struct TokenScorer::Slot {
  const Job* job = nullptr;
  std::size_t job_index = 0, text = 0;
  std::size_t cached = 0;  // ids of the current text that are in the cache
  std::vector<double> log_probabilities;
  const ScoredText& current() const { return job->texts[text]; }
  /// Ids whose rows are needed: all but the last.
  std::size_t needed() const { return current().ids.size() - 1; }
};

TokenScorer::TokenScorer(const ScorerModel& model) : m_(model) {
  assert(m_.sequences >= 1 && m_.rows >= 1 && m_.threads >= 1 && m_.logits.size() >= m_.rows * m_.vocab);
}

/// Keeps the part of the cache that the next text shares, at most up to the row before its first scored id,
/// which has to be computed again because its logits were not kept.
void TokenScorer::begin_text(Slot& slot) {
  const ScoredText& t = slot.current();
  assert(t.scored.size() == t.ids.size() && t.ids.size() >= 2 && t.ids.size() - 1 <= m_.context);
  const auto first = std::find(t.scored.begin(), t.scored.end(), std::uint8_t{1});
  assert(first != t.scored.begin() && first != t.scored.end());
  std::size_t common = 0;
  if (slot.text > 0) {
    const ScoredText& before = slot.job->texts[slot.text - 1];
    const auto end = before.ids.end() - 1;  // the last id has no row
    common = static_cast<std::size_t>(
        std::mismatch(before.ids.begin(), end, t.ids.begin(), t.ids.end()).first - before.ids.begin());
  }
  slot.cached = std::min(common, static_cast<std::size_t>(first - t.scored.begin()) - 1);
  slot.log_probabilities.clear();
}

void TokenScorer::compute_log_probabilities(std::span<const std::int32_t> targets,
                                            std::vector<double>& out) const {
  out.resize(targets.size());
  const std::size_t threads = std::min<std::size_t>(m_.threads, targets.size());
  const auto part = [&](std::size_t thread) {
    for (std::size_t i = thread; i < targets.size(); i += threads)
      out[i] = log_probability(m_.logits.subspan(i * m_.vocab, m_.vocab), targets[i]);
  };
  std::vector<std::jthread> others;
  for (std::size_t i = 1; i < threads; ++i) others.emplace_back(part, i);
  if (threads > 0) part(0);
}

void TokenScorer::run(std::span<const Job> jobs, const Done& done,
                      const std::function<void(std::uint64_t)>& progress) {
  std::vector<Slot> slots(m_.sequences);
  std::size_t next = 0;
  std::uint64_t ids_done = 0;
  std::vector<plugin::DecodeRow> rows;
  std::vector<std::int32_t> targets;
  std::vector<Slot*> owners;  // owners[i]: the slot of targets[i]
  std::vector<double> values;
  while (true) {
    rows.clear(), targets.clear(), owners.clear();
    for (std::size_t s = 0; s < slots.size() && rows.size() < m_.rows; ++s) {
      Slot& slot = slots[s];
      if (!slot.job) {
        if (next == jobs.size()) continue;
        slot = Slot{};
        slot.job = &jobs[next], slot.job_index = next++;
        begin_text(slot);
      }
      const ScoredText& t = slot.current();
      const std::size_t count = std::min<std::size_t>(m_.rows - rows.size(), slot.needed() - slot.cached);
      for (std::size_t k = 0; k < count; ++k, ++slot.cached) {
        const bool scored = t.scored[slot.cached + 1];
        rows.push_back({t.ids[slot.cached], static_cast<std::uint32_t>(s),
                        static_cast<std::uint32_t>(slot.cached), scored});
        if (scored) targets.push_back(t.ids[slot.cached + 1]), owners.push_back(&slot);
      }
    }
    if (rows.empty()) return;
    m_.decoder.forward(rows, m_.logits);
    computed_rows_ += rows.size();
    compute_log_probabilities(targets, values);
    for (std::size_t i = 0; i < values.size(); ++i) owners[i]->log_probabilities.push_back(values[i]);
    for (Slot& slot : slots) {
      if (!slot.job || slot.cached < slot.needed()) continue;
      ids_done += slot.current().ids.size();
      done(slot.job_index, slot.text, slot.log_probabilities);
      if (++slot.text < slot.job->texts.size())
        begin_text(slot);
      else
        slot.job = nullptr;
    }
    if (progress) progress(ids_done);
  }
}

}  // namespace trainhost::evaluation
