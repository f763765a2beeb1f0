// What a user sees of a run on a terminal: a line that fits, also while the window is resized; without
// colours and without UTF-8 where the environment says so.
#include <boost/test/unit_test.hpp>

#include "tests/support/files.hpp"
#include "tests/support/process.hpp"
#include "tests/support/terminal.hpp"

namespace {

namespace fs = std::filesystem;
using namespace trainhost::test;

std::vector<std::string> words_of_run(const fs::path& dir, const std::string& steps) {
  std::vector<std::string> words = {
      "train", "--backend=cpu",     "--steps", steps, "--set", "output.dir=" + dir.string(),
      "--set", "train.eval_every=0"};
  for (const std::string& w : small_model_options()) words.push_back(w);
  return words;
}

/// The texts of the live line, one per draw, without styles.
std::vector<std::string> texts_drawn(const std::string& screen) {
  std::vector<std::string> out;
  for (std::size_t at = 0; (at = screen.find('\r', at)) != screen.npos; ++at) {
    const std::size_t end = screen.find("\x1b[K", at);
    if (end == screen.npos) break;
    const std::string part = screen.substr(at, end - at);
    if (part.size() > 1 && part[1] != '\n' && part[1] != '\r') out.push_back(rows_of(part, 1000).front());
  }
  return out;
}

std::size_t width_in_columns(const std::string& text) {
  return static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](unsigned char c) { return (c & 0xC0) != 0x80; }));
}

}  // namespace

BOOST_AUTO_TEST_SUITE(progress_on_a_terminal)

BOOST_AUTO_TEST_CASE(a_line_fits_the_window_also_while_it_is_resized) {
  TemporaryDirectory tmp;
  Terminal t(words_of_run(tmp / "out", "1000000"),
             {80, {{"TERM", "xterm"}, {"LC_ALL", "C.UTF-8"}, {"COLUMNS", ""}, {"NO_COLOR", ""}}});
  BOOST_REQUIRE_MESSAGE(t.shows("ETA"), t.screen);
  const auto see_draws = [&](int n) {
    while (n-- > 0) BOOST_REQUIRE_MESSAGE(t.shows("\x1b[K"), t.screen);
  };
  for (const unsigned short columns : {40, 120, 20, 200}) {
    t.resize(columns);
    see_draws(3);  // some may have been under way with the width before
    const std::size_t before = t.screen.size();
    see_draws(3);
    for (const std::string& line : texts_drawn(t.screen.substr(before))) {
      BOOST_TEST(width_in_columns(line) < columns, line);
      BOOST_TEST(has(line, "loss"), line);
      BOOST_TEST(has(line, "ETA") == (columns > 20), line);
      BOOST_TEST(has(line, "mem") == (columns > 40), line);
      BOOST_TEST((columns < 200 || has(line, "norm")), line);
    }
  }
  t.resize(80);
  t.signal(SIGINT);
  BOOST_TEST(t.end() == 75);
  // The live line is removed: messages alone remain.
  const std::vector<std::string> rows = rows_of(t.screen, 200);
  const auto at = std::find_if(rows.begin(), rows.end(),
                               [](const std::string& r) { return has(r, "stopped by SIGINT"); });
  BOOST_REQUIRE((at != rows.end()));
  BOOST_TEST(std::none_of(at, rows.end(), [](const std::string& r) { return has(r, "ETA"); }), t.screen);
}

// The window is narrowed below a line that is shown: its rows are erased before the next one is drawn.
BOOST_AUTO_TEST_CASE(a_line_that_a_narrower_window_has_wrapped_is_erased) {
  TemporaryDirectory tmp;
  Terminal t(words_of_run(tmp / "out", "1000000"), {150, {{"TERM", "xterm"}, {"COLUMNS", ""}}});
  BOOST_REQUIRE_MESSAGE(t.shows("ETA"), t.screen);
  t.resize(50);
  BOOST_REQUIRE_MESSAGE(t.shows("\r\x1b[2A\x1b[J"), t.screen);  // 149 columns are 3 rows of 50
  t.signal(SIGINT);
  BOOST_TEST(t.end() == 75);
}

BOOST_AUTO_TEST_CASE(without_utf8_and_colours_the_line_is_ascii) {
  TemporaryDirectory tmp;
  Terminal t(words_of_run(tmp / "out", "300"),
             {80, {{"TERM", "xterm"}, {"LC_ALL", "C"}, {"NO_COLOR", "1"}, {"COLUMNS", ""}}});
  BOOST_TEST(t.end() == 0);
  const std::vector<std::string> lines = texts_drawn(t.screen);
  BOOST_REQUIRE(lines.size() >= 2u);
  for (const std::string& line : lines)
    BOOST_TEST(std::all_of(line.begin(), line.end(), [](char c) { return c >= ' ' && c <= '~'; }), line);
  BOOST_TEST(has(lines.back(), "[#####]"), lines.back());
  BOOST_TEST(!has(t.screen, "\x1b[3"));
}

BOOST_AUTO_TEST_CASE(a_terminal_that_cannot_rewrite_a_line_gets_lines) {
  for (const char* term : {"dumb", ""}) {
    TemporaryDirectory tmp;
    Terminal t(words_of_run(tmp / "out", "3"), {80, {{"TERM", term}}});
    BOOST_TEST(t.end() == 0);
    BOOST_TEST(!has(t.screen, "\x1b"), t.screen);
    BOOST_TEST(has(t.screen, "step 3/3  loss "), t.screen);
  }
}

BOOST_AUTO_TEST_SUITE_END()
