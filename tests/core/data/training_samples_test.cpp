// The data of a run as training reads it: shares of sources compared with counting, samples compared with the
// records they were made of.
#include "core/data/training_samples.hpp"

#include <boost/test/unit_test.hpp>
#include <map>

#include "tests/core/data/data_files.hpp"

using namespace trainhost;
using namespace trainhost::data;

namespace {

OpenOptions options_of_records(const Folder& f, std::vector<std::filesystem::path> train) {
  OpenOptions o;
  o.train = std::move(train);
  o.seq_len = 24;
  o.cache_dir = f.path() / "cache";
  o.records.packing = true;
  return o;
}

/// Records with a prompt of 3 and a completion of `letters` bytes.
std::string records_of(int n, int letters, char letter) {
  std::string text;
  for (int i = 0; i < n; ++i)
    text += "{\"prompt\": \"ab:\", \"completion\": \"" +
            std::string(static_cast<std::size_t>(letters), letter) + "\"}\n";
  return text;
}

/// What is counted in the loss in brackets.
std::string shown_text(const ShownDocument& d) {
  std::string text;
  for (const records::Part& p : d.parts) text += p.trained ? "[" + p.text + "]" : p.text;
  return text;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(training_samples)

// Reads the samples of several passes, and counts tokens and samples of each source by their letters.
BOOST_AUTO_TEST_CASE(shares_and_epochs_are_those_of_the_samples_that_are_read) {
  const Folder f;
  OpenOptions o = options_of_records(
      f, {f.text("x.jsonl", records_of(40, 5, 'x')), f.text("y.jsonl", records_of(90, 15, 'y'))});
  o.weights = {1, 3}, o.source_files = {1, 1};
  const Source s = open_source(o);
  const std::uint64_t read = 3 * s.train_samples->size();
  const std::vector<SourceShare> shares = source_shares(s, read);
  BOOST_REQUIRE(shares.size() == 2u);
  BOOST_TEST(shares[0].source.name == "x.jsonl");
  BOOST_TEST(shares[0].source.documents == 40u);
  BOOST_TEST(shares[1].source.documents == 90u);
  BOOST_TEST(shares[0].samples + shares[1].samples == s.train_samples->size());

  const Order order = Order::of(*s.train_samples, true, 5);
  std::map<char, double> samples, tokens;
  std::vector<std::int32_t> ids(24), targets(24), starts(24);
  for (std::uint64_t at = 0; at < read; ++at) {
    s.train_samples->read(order.sample(at), ids, targets, starts);
    const char letter = std::count(ids.begin(), ids.end(), 'x') ? 'x' : 'y';
    ++samples[letter];
    tokens[letter] += static_cast<double>(24 - std::count(ids.begin(), ids.end(), 0));
  }
  for (const SourceShare& share : shares) {
    const char letter = share.source.name[0];
    const auto one_sample = 1.0 / static_cast<double>(read);
    BOOST_TEST(std::abs(share.of_samples - samples[letter] * one_sample) <= one_sample);
    BOOST_TEST(std::abs(share.of_tokens - tokens[letter] / (tokens['x'] + tokens['y'])) <= 0.02);
    BOOST_TEST(share.epochs == samples[letter] / static_cast<double>(share.samples),
               boost::test_tools::tolerance(0.03));
  }
  BOOST_TEST(shares[0].of_tokens + shares[1].of_tokens == 1.0, boost::test_tools::tolerance(1e-12));
}

BOOST_AUTO_TEST_CASE(samples_are_shown_in_the_order_of_training_with_their_documents) {
  const Folder f;
  OpenOptions o = options_of_records(
      f, {f.text("x.jsonl", records_of(3, 4, 'x')), f.text("y.jsonl", records_of(4, 30, 'y'))});
  o.weights = {1, 1}, o.source_files = {1, 1};
  const Source s = open_source(o);
  const auto tokenizer = make_tokenizer("bytes");
  const Order order = Order::of(*s.train_samples, false, 5);
  const std::vector<ShownSample> shown = show_samples(s, *tokenizer, order, 24, 1, 4);
  BOOST_REQUIRE(shown.size() == 4u);
  std::map<std::string, int> sources;
  for (std::size_t i = 0; i < shown.size(); ++i) {
    BOOST_TEST(shown[i].position == i + 1);
    ++sources[shown[i].source];
    // Three documents of 7 tokens in a sequence of 25 and 4 of padding, the last of which is no input.
    if (shown[i].source == "x.jsonl") {
      BOOST_REQUIRE(shown[i].documents.size() == 3u);
      for (const ShownDocument& d : shown[i].documents) {
        BOOST_TEST(shown_text(d) == "ab:[xxxx]");
        BOOST_TEST(d.tokens == 7u);
        BOOST_TEST(d.counted == 4u);
      }
      BOOST_TEST(shown[i].padding == 3u);
    } else {  // truncated; the last target is shown
      BOOST_REQUIRE(shown[i].documents.size() == 1u);
      BOOST_TEST(shown_text(shown[i].documents[0]) == "ab:[" + std::string(22, 'y') + "]");
      BOOST_TEST(shown[i].padding == 0u);
    }
  }
  BOOST_TEST(sources["x.jsonl"] == 2);
  BOOST_TEST(sources["y.jsonl"] == 2);
  // From the middle, the same.
  const std::vector<ShownSample> last = show_samples(s, *tokenizer, order, 24, 4, 1);
  BOOST_REQUIRE(last.size() == 1u);
  BOOST_TEST(last[0].source == shown[3].source);
  BOOST_TEST(last[0].sample == shown[3].sample);
}

BOOST_AUTO_TEST_CASE(a_text_is_one_source_whose_samples_are_counted_whole) {
  const Folder f;
  OpenOptions o;
  o.train = {f.text("t.txt", "0123456789abcdefghijk"), f.text("u.txt", "lmnopqrstuv")};
  o.seq_len = 8;
  const Source s = open_source(o);
  const std::vector<SourceShare> shares = source_shares(s, 6);
  BOOST_REQUIRE(shares.size() == 1u);
  BOOST_TEST(shares[0].source.name == "2 files");
  BOOST_TEST(shares[0].source.documents == 0u);
  BOOST_TEST(shares[0].source.tokens == 32u);
  BOOST_TEST(shares[0].of_tokens == 1.0);
  BOOST_TEST(shares[0].epochs == 2.0);  // 3 samples
  const auto tokenizer = make_tokenizer("bytes");
  const auto shown = show_samples(s, *tokenizer, Order::of(*s.train_samples, false, 1), 8, 2, 1);
  BOOST_REQUIRE(shown.size() == 1u);
  BOOST_TEST(shown_text(shown[0].documents.at(0)) == "8[9abcdefg]");
}

BOOST_AUTO_TEST_SUITE_END()
