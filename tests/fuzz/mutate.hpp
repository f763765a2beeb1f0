// Random mutations of bytes: flipped bits, boundary numbers, cuts, copies, words of the format. The same seed
// gives the same inputs on every machine. No coverage feedback; fuzzer.cpp has that.
#pragma once
#include <algorithm>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

namespace trainhost::fuzz {

class Mutator {
 public:
  Mutator(std::vector<std::string> seeds, std::vector<std::string> words, std::uint64_t seed)
      : seeds_(std::move(seeds)), words_(std::move(words)), random_(seed) {}

  /// One of the seeds after one to eight changes; at most 64 KiB.
  std::string next() {
    std::string text = seeds_[below(seeds_.size())];
    for (std::uint64_t n = 1 + below(8); n > 0; --n) change(text);
    text.resize(std::min<std::size_t>(text.size(), 1 << 16));
    return text;
  }

 private:
  std::uint64_t below(std::uint64_t n) { return random_() % n; }

  void change(std::string& t) {
    if (t.empty()) t = "\n";
    const std::size_t at = below(t.size()), bytes = 1 + below(std::min<std::size_t>(t.size() - at, 32));
    switch (below(7)) {
      case 0:
        t[at] = static_cast<char>(t[at] ^ (1 << below(8)));
        break;
      case 1:
        t[at] = static_cast<char>(random_());
        break;
      case 2:
        t.resize(at);
        break;
      case 3:
        t.erase(at, bytes);
        break;
      case 4:
        t.insert(below(t.size() + 1), t.substr(at, bytes));
        break;
      case 5:
        t.insert(at, word());
        break;
      case 6: {
        const std::string w = word();
        t.replace(at / 4 * 4, w.size(), w);  // aligned, where a field may start
      }
    }
  }
  std::string word() { return words_[below(words_.size())]; }

  std::vector<std::string> seeds_, words_;
  std::mt19937_64 random_;
};

}  // namespace trainhost::fuzz
