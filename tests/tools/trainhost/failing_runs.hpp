// Runs of the failing trainer (failing_trainer.cpp) on a text of 64 batches, and the weight that such a run
// must end with.
#pragma once
#include <signal.h>

#include <cstring>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "tests/support/files.hpp"
#include "tests/support/process.hpp"

namespace trainhost::test {

inline constexpr int kTokens = 16;  // of a batch

struct Mark {
  int batch;
  char letter;  // 'N' or 'S'
};

/// 64 batches; every batch has another sum.
inline std::string text_of(const std::vector<Mark>& marks) {
  std::string text;
  for (int b = 0; b < 64; ++b) text += std::string(kTokens - 1, 'a') + char('a' + b % 26);
  text += "a";
  for (const Mark& m : marks) text[std::size_t(m.batch * kTokens + 7)] = m.letter;
  return text;
}

/// The last weight after training the given batches in this order, as the trainer computes it.
inline float weight_after(const std::string& text, const std::vector<int>& batches) {
  float w = 0, moment = 0;
  for (const int b : batches) {
    float sum = 0;
    for (int i = 0; i < kTokens; ++i) sum += static_cast<float>(text[std::size_t(b * kTokens + i)]);
    moment = 0.5f * moment + sum / 1000;
    w -= static_cast<float>(0.01) * moment;
  }
  return w;
}
inline std::vector<int> range(int from, int to, const std::set<int>& without = {}) {
  std::vector<int> out;
  for (int b = from; b < to; ++b)
    if (!without.count(b)) out.push_back(b);
  return out;
}
inline std::vector<int> operator+(std::vector<int> a, const std::vector<int>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

/// A folder with a text and runs of the failing trainer on it.
struct FailingRuns {
  TemporaryDirectory tmp;
  std::string text;
  std::filesystem::path out = tmp / "out";

  void data(const std::vector<Mark>& marks) {
    text = text_of(marks);
    tmp.write("input.txt", text);
    std::filesystem::create_directories(tmp / "plugins");
    std::filesystem::copy_file(TEST_PLUGINS_DIR "/failing_trainer.so", tmp / "plugins/failing.so",
                               std::filesystem::copy_options::overwrite_existing);
  }
  /// A run of 20 steps; `more` = settings, options begin with "--".
  Outcome train(const std::vector<std::string>& more, const RunOptions& o = {}) {
    std::vector<std::string> words = {"train", "--plugin-path", (tmp / "plugins").string(),
                                      "--backend=failing"};
    std::vector<std::string> sets = {"data.train=" + (tmp / "input.txt").string(),
                                     "data.order=sequential",
                                     "data.seq_len=16",
                                     "train.micro_batch=1",
                                     "train.steps=20",
                                     "optimizer.schedule=constant",
                                     "optimizer.lr=0.01",
                                     "optimizer.warmup_steps=0",
                                     "model.hidden_size=8",
                                     "model.intermediate_size=8",
                                     "model.num_hidden_layers=1",
                                     "model.num_attention_heads=1",
                                     "model.num_key_value_heads=1",
                                     "model.head_dim=8",
                                     "output.dir=" + out.string()};
    for (const std::string& m : more) (m.starts_with("--") ? words : sets).push_back(m);
    for (const std::string& s : sets) words.insert(words.end(), {"--set", s});
    return run_program(words, o);
  }
  float weight() const {
    const std::string file = read_file(out / "model/model.safetensors");
    float w = 0;
    if (file.size() >= sizeof w) std::memcpy(&w, file.data() + file.size() - sizeof w, sizeof w);
    return w;
  }
  std::string metrics() const { return read_file(out / "metrics.jsonl"); }
  std::size_t events(const std::string& part) const {
    std::size_t n = 0;
    const std::string all = metrics();
    for (std::size_t at = 0; (at = all.find(part, at)) != all.npos; ++at) ++n;
    return n;
  }
};

}  // namespace trainhost::test
