// The command line of a small training run, and what its files say about it, for tests of the built program
// on one and on several processes.
#pragma once
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/support/process.hpp"

namespace trainhost::test {

/// Words after the program's name: a run of 12 sequences per step, whatever the number of processes. `more`:
/// keys of the run file with their values, which win over those of the small run, and options ("--resume").
inline std::vector<std::string> small_run(const std::filesystem::path& dir, int steps,
                                          const std::vector<std::string>& more = {}) {
  std::vector<std::string> words = {"train", "-q"};
  std::vector<std::string> sets = {"optimizer.warmup_steps=1",
                                   "model.hidden_size=16",
                                   "model.intermediate_size=24",
                                   "model.num_hidden_layers=2",
                                   "model.num_attention_heads=2",
                                   "model.num_key_value_heads=1",
                                   "model.head_dim=8",
                                   "data.seq_len=16",
                                   "train.micro_batch=1",
                                   "train.global_batch=12",
                                   "train.eval_every=0",
                                   "train.threads=1",
                                   "train.steps=" + std::to_string(steps),
                                   "output.dir=" + dir.string()};
  sets.insert(sets.end(), more.begin(), more.end());
  for (const std::string& s : sets)
    if (s.starts_with("--"))
      words.push_back(s);
    else
      words.insert(words.end(), {"--set", s});
  return words;
}

struct Step {
  double loss, norm;
  bool operator==(const Step&) const = default;
};
inline std::ostream& operator<<(std::ostream& o, const Step& s) { return o << s.loss << '/' << s.norm; }

/// The steps in metrics.jsonl of a run.
inline std::vector<Step> steps_of(const std::filesystem::path& dir) {
  std::vector<Step> out;
  std::istringstream lines(read_file(dir / "metrics.jsonl"));
  for (std::string line; std::getline(lines, line);)
    if (const auto e = nlohmann::json::parse(line); e["event"] == "step")
      out.push_back({e["loss"], e["grad_norm"]});
  return out;
}

inline nlohmann::json summary_of(const std::filesystem::path& dir) {
  return nlohmann::json::parse(read_file(dir / "summary.json"));
}

/// The losses of `many` are those of `one` to 1e-5, relative.
inline void same_losses(const std::vector<Step>& one, const std::vector<Step>& many,
                        const std::string& what) {
  BOOST_REQUIRE(many.size() == one.size());
  double worst = 0;
  for (std::size_t i = 0; i < one.size(); ++i)
    worst = std::max(worst, std::abs(many[i].loss - one[i].loss) / one[i].loss);
  BOOST_TEST(worst <= 1e-5, what << ": relative difference " << worst);
}

}  // namespace trainhost::test
