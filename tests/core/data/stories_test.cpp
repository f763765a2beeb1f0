// The built-in text and its entropy: the grammar engine compared with enumeration, exact probabilities
// compared with sampling, the layout of the windows, and pinned text.
#include "core/data/stories.hpp"

#include <boost/test/unit_test.hpp>
#include <cmath>
#include <ctime>
#include <map>
#include <numeric>
#include <set>

#include "core/base/error.hpp"
#include "core/base/text.hpp"
#include "core/data/grammar_score.hpp"

using namespace trainhost;
using namespace trainhost::data;

namespace {

// Small enough to list every story; has shared prefixes, excluded entries, a repeated choice, and one real
// ambiguity (the two ways to say "ab").
constexpr const char* kSmall = R"(
@who: name, he
  Ann | she
  Al | he
  Anna | she
@way: name
  in
  inside
tale:
  3 <open> [^a.he] met [b=who-a].\n
  1 [a=who] is <x>.\n
open:
  2 [a=who] went [w=way].
  1 [a=who] went [w=way], [w].
x:
  1 ab
  2 a<y>
y:
  1 b
  1 c
)";

using Told = std::map<std::string, double>;

// Every story of a grammar with its probability, by recursion: the reference for the engine.
void enumerate(const Grammar& g, std::vector<const Symbol*> rest, Slots slots, std::string text, double p,
               Told& told) {
  if (rest.empty()) {
    told[text] += p;
    return;
  }
  const Symbol& s = *rest.front();
  rest.erase(rest.begin());
  if (s.kind == Symbol::kText) return enumerate(g, rest, slots, text + s.text, p, told);
  if (s.kind == Symbol::kUse)
    return enumerate(g, rest, slots, text + g.classes()[s.target].word(slots[s.slot] - 1u, s), p, told);
  if (s.kind == Symbol::kRule) {
    for (const Alternative& a : g.rules()[s.target].alternatives) {
      std::vector<const Symbol*> next;
      for (const Symbol& t : a.symbols) next.push_back(&t);
      next.insert(next.end(), rest.begin(), rest.end());
      enumerate(g, next, slots, text, p * a.weight / g.rules()[s.target].total, told);
    }
    return;
  }
  const WordClass& c = g.classes()[s.target];
  std::vector<std::size_t> may;
  for (std::size_t e = 0; e < c.plain.size(); ++e) {
    bool free = true;
    for (std::uint8_t other : s.apart) free = free && slots[other] != e + 1;
    if (free) may.push_back(e);
  }
  for (std::size_t e : may) {
    Slots bound = slots;
    bound[s.slot] = static_cast<std::uint8_t>(e + 1);
    enumerate(g, rest, bound, text + c.word(e, s), p / static_cast<double>(may.size()), told);
  }
}

Told all_stories(const Grammar& g) {
  Told told;
  Symbol start;
  start.kind = Symbol::kRule;
  enumerate(g, {&start}, {}, "", 1, told);
  return told;
}

double log_p(const Grammar& g, const std::string& text) {
  GrammarScore score(g);
  double sum = 0;
  for (char c : text) sum += score.advance(c);
  return sum;
}

struct Mean {
  double value, error;
};
Mean mean_of(const std::vector<double>& x) {
  const double n = static_cast<double>(x.size()), m = std::accumulate(x.begin(), x.end(), 0.0) / n;
  double squares = 0;
  for (double v : x) squares += (v - m) * (v - m);
  return {m, std::sqrt(squares / (n - 1) / n)};
}

/// Log-probability in nats of every character given those before it; `text` starts with a story.
std::vector<double> story_log_probs(std::string_view text) {
  GrammarScore score(stories_grammar());
  std::vector<double> log_probs;
  log_probs.reserve(text.size());
  for (char c : text) log_probs.push_back(score.advance(c));
  return log_probs;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(data_stories)

BOOST_AUTO_TEST_CASE(probabilities_equal_those_of_the_enumerated_stories) {
  const Grammar g(kSmall);
  const Told told = all_stories(g);
  double total = 0;
  for (const auto& [text, p] : told) {
    total += p;
    BOOST_TEST(std::exp(log_p(g, text)) == p, boost::test_tools::tolerance(1e-12));
  }
  BOOST_TEST(total == 1.0, boost::test_tools::tolerance(1e-12));
  BOOST_TEST(told.size() == 30u);
}

BOOST_AUTO_TEST_CASE(the_probability_of_a_prefix_is_the_sum_over_its_stories) {
  const Grammar g(kSmall);
  const Told told = all_stories(g);
  for (const auto& [text, p] : told) {
    GrammarScore score(g);
    double log_prefix = 0;
    for (std::size_t n = 1; n <= text.size(); ++n) {
      log_prefix += score.advance(text[n - 1]);
      double expected = 0;
      for (const auto& [other, q] : told) expected += other.compare(0, n, text, 0, n) == 0 ? q : 0;
      BOOST_TEST(std::exp(log_prefix) == expected, boost::test_tools::tolerance(1e-12));
    }
  }
}

BOOST_AUTO_TEST_CASE(the_sampler_generates_stories_with_their_probability) {
  const Grammar g(kSmall);
  const Told told = all_stories(g);
  std::map<std::string, int> counts;
  constexpr int kStories = 60000;
  GrammarSampler sampler(g, 5);
  std::string text;
  for (int i = 0; i < kStories;) {
    text += sampler.next();
    if (text.back() != '\n') continue;
    ++counts[text];
    text.clear();
    ++i;
  }
  BOOST_TEST(counts.size() == told.size());
  double chi_square = 0;
  for (const auto& [story, p] : told)
    chi_square += std::pow(counts[story] - kStories * p, 2) / (kStories * p);
  BOOST_TEST(chi_square < 66);  // 29 degrees of freedom; exceeded once in 10,000
}

BOOST_AUTO_TEST_CASE(a_text_outside_the_grammar_has_probability_zero_from_there_on) {
  GrammarScore score(stories_grammar());
  BOOST_TEST(std::isinf(score.advance('~')));
  BOOST_TEST(std::isinf(score.advance('A')));
  BOOST_TEST(score.live() == 0u);
  score.restart();
  BOOST_TEST(std::isfinite(score.advance('A')));
}

BOOST_AUTO_TEST_CASE(next_characters_sum_to_one_and_agree_with_advance) {
  GrammarScore score(stories_grammar());
  for (std::uint64_t w = 0; w < 60; ++w) {
    score.restart();
    for (char c : story_text(7, StoryStream::kTrain, w, 300)) {
      const auto p = score.next();
      BOOST_REQUIRE_SMALL(std::accumulate(p.begin(), p.end(), 0.0) - 1, 1e-12);
      BOOST_REQUIRE_SMALL(std::log(p[static_cast<unsigned char>(c)]) - score.advance(c), 1e-12);
    }
  }
}

// E[-log p(c)] equals E[entropy of p(.)]: the first from sampled text, the second from the distributions
// alone, on windows of different streams.
BOOST_AUTO_TEST_CASE(log_probabilities_of_sampled_text_agree_with_the_distributions) {
  constexpr std::uint32_t kLength = 128;
  std::vector<double> told, expected;
  for (std::uint64_t w = 0; w < 3000; ++w) {
    const std::vector<double> log_probs = story_log_probs(story_text(1, StoryStream::kTrain, w, kLength));
    told.push_back(-std::accumulate(log_probs.begin(), log_probs.end(), 0.0) / kLength);
    GrammarScore score(stories_grammar());
    double entropy = 0;
    for (char c : story_text(2, StoryStream::kValid, w, kLength)) {
      for (double p : score.next()) entropy -= p > 0 ? p * std::log(p) : 0;
      score.advance(c);
    }
    expected.push_back(entropy / kLength);
  }
  const Mean a = mean_of(told), b = mean_of(expected);
  BOOST_TEST_MESSAGE("told " << a.value << " +- " << a.error << ", expected " << b.value << " +- "
                             << b.error);
  BOOST_TEST(std::abs(a.value - b.value) < 4 * std::hypot(a.error, b.error));
}

BOOST_AUTO_TEST_CASE(the_entropy_is_the_mean_over_the_validation_targets_with_its_standard_error) {
  const auto tokens = story_tokens(3, StoryStream::kValid, 64, 50);
  std::vector<double> windows;
  for (std::uint64_t w = 0; w < 64; ++w) {
    std::vector<std::int32_t> sample(51);
    tokens->read(w * 50,
                 sample);  // the first token is an input without information, the others are the targets
    const std::vector<double> log_probs = story_log_probs(std::string(sample.begin() + 1, sample.end()));
    windows.push_back(-std::accumulate(log_probs.begin(), log_probs.end(), 0.0) / 50);
  }
  const Mean expected = mean_of(windows);
  const StoryEntropy entropy = story_entropy(3, StoryStream::kValid, 64, 50);
  BOOST_TEST(entropy.nats == expected.value, boost::test_tools::tolerance(1e-12));
  BOOST_TEST(entropy.error == expected.error, boost::test_tools::tolerance(1e-9));
}

BOOST_AUTO_TEST_CASE(any_range_reads_as_the_same_part_of_the_whole_text) {
  const auto tokens = story_tokens(11, StoryStream::kTrain, 9, 37);
  BOOST_TEST(tokens->size() == 9u * 37 + 1);
  BOOST_TEST(tokens->held_bytes() == 0u);
  std::vector<std::int32_t> all(tokens->size());
  tokens->read(0, all);
  BOOST_TEST(all[0] == '\n');
  for (std::size_t w = 0; w < 9; ++w)
    BOOST_TEST(std::string(all.begin() + static_cast<long>(w * 37 + 1),
                           all.begin() + static_cast<long>(w * 37 + 38)) ==
               story_text(11, StoryStream::kTrain, w, 37));
  for (std::size_t first = 0; first < all.size(); first += 5)
    for (std::size_t n : {0u, 1u, 2u, 36u, 37u, 38u, 80u}) {
      if (first + n > all.size()) continue;
      std::vector<std::int32_t> part(n);
      tokens->read(first, part);
      BOOST_TEST(std::equal(part.begin(), part.end(), all.begin() + static_cast<long>(first)));
    }
}

BOOST_AUTO_TEST_CASE(seeds_streams_and_windows_give_different_stories) {
  std::set<std::string> texts;
  for (std::uint64_t seed : {1u, 2u})
    for (StoryStream stream : {StoryStream::kTrain, StoryStream::kValid})
      for (std::uint64_t w = 0; w < 250; ++w) texts.insert(story_text(seed, stream, w, 300));
  BOOST_TEST(texts.size() == 1000u);
}

BOOST_AUTO_TEST_CASE(the_grammar_has_the_documented_size) {
  BOOST_TEST(stories_grammar().rules().size() >= 40u);
  std::set<std::string> words;
  for (std::uint64_t w = 0; w < 4000; ++w) {
    const std::string text = story_text(1, StoryStream::kTrain, w, 400);
    std::string word;
    for (char c : text.substr(0, text.rfind(' '))) {
      const char lower = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
      if (lower >= 'a' && lower <= 'z')
        word += lower;
      else if (!word.empty())
        words.insert(std::exchange(word, ""));
    }
  }
  BOOST_TEST_MESSAGE(words.size() << " words, " << stories_grammar().rules().size() << " rules");
  BOOST_TEST(words.size() >= 300u);
}

BOOST_AUTO_TEST_CASE(stories_read_like_stories) {
  std::string text = story_text(21, StoryStream::kTrain, 0, 400'000);
  text.resize(text.rfind("\n\n") + 2);
  std::size_t stories = 0;
  for (std::size_t at = 0; at < text.size(); ++stories) {
    const std::size_t end = text.find("\n\n", at);
    const std::string story = text.substr(at, end - at);
    BOOST_REQUIRE_MESSAGE(story.size() > 40 && story.size() < 400, story);
    BOOST_REQUIRE_MESSAGE(story.front() >= 'A' && story.front() <= 'Z', story);
    BOOST_REQUIRE_MESSAGE(story.back() == '.' || story.back() == '"' || story.back() == '?', story);
    for (const char* wrong :
         {" a a", " a e", " a i", " a o", "A a", "A e", "A i", "A o", "  ", " .", "\n", "..", " ,"})
      BOOST_REQUIRE_MESSAGE(story.find(wrong) == std::string::npos, wrong << " in: " << story);
    at = end + 2;
  }
  BOOST_TEST(stories > 2000u);
}

// A text has one derivation: at every start of a story there are as many derivations as at the first.
BOOST_AUTO_TEST_CASE(the_grammar_is_unambiguous_at_every_story_end) {
  GrammarScore score(stories_grammar());
  const std::size_t at_start = score.live();
  std::size_t ends = 0;
  char before = 0;
  for (char c : story_text(5, StoryStream::kTrain, 0, 40'000)) {
    score.advance(c);
    if (c == '\n' && before == '\n') {
      BOOST_REQUIRE(score.live() == at_start);
      ++ends;
    }
    before = c;
  }
  BOOST_TEST(ends > 200u);
}

BOOST_AUTO_TEST_CASE(the_text_is_the_same_on_every_machine) {
  std::uint64_t digest = 0xcbf29ce484222325ULL;
  for (StoryStream stream : {StoryStream::kTrain, StoryStream::kValid})
    for (std::uint64_t w : {0u, 1u, 511u, 67108863u})
      digest = fnv1a(story_text(1337, stream, w, 500), digest);
  BOOST_TEST(digest == 4414513090880932672ULL);
  BOOST_TEST(story_text(1337, StoryStream::kTrain, 0, 60) ==
             "Finn has a little bee. Every year the bee hums and he shiver");
  BOOST_TEST(story_entropy(1337, StoryStream::kValid, 512, 128).nats == 0.24966121092105328,
             boost::test_tools::tolerance(1e-9));
}

BOOST_AUTO_TEST_CASE(generating_text_is_far_faster_than_training) {
  const auto tokens = story_tokens(1, StoryStream::kTrain, kTrainWindows, 128);
  std::vector<std::int32_t> sample(128);
  const std::clock_t start = std::clock();
  for (std::uint64_t i = 0; i < 20'000; ++i) tokens->read(i * 977 * 128, sample);
  const double seconds = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
  BOOST_TEST_MESSAGE(20'000 * 128 / seconds / 1e6 << " MB/s");
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) && defined(NDEBUG)
  BOOST_TEST(20'000 * 128 / seconds > 20e6);
#endif
}

BOOST_AUTO_TEST_CASE(an_error_in_a_grammar_names_its_line) {
  const std::vector<std::pair<const char*, const char*>> mistakes{
      {"s:\n  1 <t>\n", "line 2: no rule t"},
      {"s:\n  1 [a=x]\n", "line 2: no word class x"},
      {"@w: n\n  one\ns:\n  1 [a]\n", "line 4: a slot that nothing chooses"},
      {"@w: n\n  one | two\n", "line 2: an entry of w needs 1 fields"},
      {"@w: n\n  one\ns:\n  1 [a=w.z]\n", "line 4: w has no field z"},
      {"s:\n  one\n", "line 2: an alternative begins with its weight"},
      {"s:\n  1 <t\n", "line 2: an open bracket"},
      {"s:\n  1 x\ns:\n  1 y\n", "line 3: rule s twice"},
      {"@w: n\n  one\ns:\n  1 [a=w] [b=w-a]\n", "line 4: too few entries in w"},
  };
  for (const auto& [source, expected] : mistakes) {
    std::string what = "no error";
    try {
      Grammar g(source);
    } catch (const std::logic_error& e) {
      what = e.what();
    }
    BOOST_TEST(what.find(expected) != std::string::npos, what << " instead of " << expected);
  }
}

BOOST_AUTO_TEST_SUITE_END()
