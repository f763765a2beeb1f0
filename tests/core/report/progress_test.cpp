// The status line at every width, with and without UTF-8 and colours; the course of the loss in one line;
// when the lines of a log are written.
#include <boost/test/unit_test.hpp>
#include <chrono>
#include <cmath>
#include <thread>

#include "core/report/fitted_line.hpp"
#include "core/report/progress.hpp"
#include "core/report/sparkline.hpp"
#include "core/report/status_line.hpp"
#include "core/report/text_table.hpp"

using namespace trainhost;
using report::FittedLine;

namespace {

report::Terminal terminal(bool utf8 = true, bool color = false) {
  report::Terminal t;
  t.utf8 = utf8, t.color = color;
  return t;
}

training::StepProgress step(std::uint64_t n, std::uint64_t of) {
  training::StepProgress p;
  p.step = n, p.steps = of;
  p.loss = 2 + 4 * std::exp(-static_cast<double>(n) / 50);
  p.grad_norm = 0.64, p.lr = 3e-3, p.tokens_per_s = 98'100, p.eta_s = 65, p.mfu = 0.55;
  p.memory_bytes = std::uint64_t{3} << 30;
  return p;
}

report::StatusLine after(std::uint64_t steps, std::uint64_t of) {
  report::StatusLine line;
  for (std::uint64_t n = 1; n <= steps; ++n) line.add(step(n, of));
  return line;
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != text.npos; }

}  // namespace

BOOST_AUTO_TEST_SUITE(progress_suite)

BOOST_AUTO_TEST_CASE(a_status_line_fits_every_width_and_begins_with_what_matters) {
  for (const bool utf8 : {true, false}) {
    report::StatusLine line = after(420, 1340);
    for (unsigned columns = 1; columns <= 250; ++columns) {
      const FittedLine::Text t = line.fitted(terminal(utf8), columns);
      BOOST_TEST(report::display_width(t.text) <= columns, t.text);
      BOOST_TEST(t.columns <= columns);
      if (columns >= 9) BOOST_TEST(contains(t.text, "420/1340"), t.text);
      if (!utf8)
        BOOST_TEST(std::all_of(t.text.begin(), t.text.end(), [](char c) { return c >= ' ' && c <= '~'; }));
    }
  }
}

BOOST_AUTO_TEST_CASE(a_status_line_of_40_80_and_200_columns_has_what_fits) {
  report::StatusLine line = after(420, 1340);
  const std::string narrow = line.fitted(terminal(), 39).text;
  BOOST_TEST(narrow == " 420/1340 loss 2.0015 98.1K/s ETA 1:05");
  const std::string usual = line.fitted(terminal(), 79).text;
  for (const char* part :
       {"██", "step  420/1340", "loss 2.00", "█▃▁▁", "98.1K tok/s", "ETA 1:05", "3.00 GiB"})
    BOOST_TEST(contains(usual, part), usual);
  BOOST_TEST(report::display_width(usual) > 70u, usual);
  const std::string wide = line.fitted(terminal(), 199).text;
  for (const char* part : {"mem 3.00 GiB", "MFU 55 %", "norm 0.64", "lr 3.00e-03"})
    BOOST_TEST(contains(wide, part), wide);
  // With many steps the narrow line has the share of them.
  BOOST_TEST(after(420, 100'000).fitted(terminal(), 39).text == "0.4 % loss 2.0015 98.1K tok/s ETA 1:05");
}

BOOST_AUTO_TEST_CASE(of_several_ranks_a_line_of_80_columns_has_their_times) {
  report::StatusLine line;
  training::StepProgress p = step(420, 1340);
  p.ranks = {4, 0.121, 3, 0.08};
  line.add(p);
  const std::string usual = line.fitted(terminal(), 79).text;
  for (const char* part : {"420/1340", "98.1K/s", "24.5K/rank", "wait 12 %", "slowest 3", "ETA 1:05"})
    BOOST_TEST(contains(usual, part), usual);
  const std::string wide = line.fitted(terminal(), 140).text;
  for (const char* part : {"98.1K tok/s", "slowest rank 3 +8 %", "█", "3.00 GiB"})
    BOOST_TEST(contains(wide, part), wide);
  BOOST_TEST(
      contains(line.plain(), "98.1K tok/s  MFU 55 %  24.5K/rank  wait 12 %  slowest rank 3 +8 %  ETA 1:05"),
      line.plain());
}

BOOST_AUTO_TEST_CASE(fields_keep_their_place_when_their_texts_become_shorter) {
  report::StatusLine line = after(1, 1340);
  training::StepProgress p = step(2, 1340);
  const auto place_of_eta = [&](double eta_s, double rate) {
    p.eta_s = eta_s, p.tokens_per_s = rate;
    line.add(p);
    const std::string text = line.fitted(terminal(false), 120).text;
    BOOST_TEST(contains(text, "MFU"), text);
    return text.find("ETA");
  };
  const std::size_t place = place_of_eta(3600 * 12, 98'100);
  BOOST_TEST(place_of_eta(59, 95.5) == place);
  BOOST_TEST(place_of_eta(3, 1'000'000) == place);
}

BOOST_AUTO_TEST_CASE(styles_are_codes_that_take_no_columns) {
  report::StatusLine line = after(420, 1340), same = after(420, 1340);
  const FittedLine::Text plain = line.fitted(terminal(true, false), 79),
                         styled = same.fitted(terminal(true, true), 79);
  BOOST_TEST(!contains(plain.text, "\x1b"));
  BOOST_TEST(contains(styled.text, "\x1b[36m"));
  BOOST_TEST(plain.columns == styled.columns);
}

BOOST_AUTO_TEST_CASE(a_history_is_bounded_and_its_means_are_those_of_equal_parts) {
  report::History h;
  for (int i = 0; i < 100'000; ++i) h.add(i);
  h.add(NAN);
  const std::vector<double> means = h.means(10);
  BOOST_REQUIRE(means.size() == 10u);
  for (std::size_t i = 0; i < 10; ++i) BOOST_TEST(std::abs(means[i] - (10'000.0 * i + 5'000)) < 300);
  BOOST_TEST(h.means(100'000).size() <= 512u);
  report::History few;
  for (const double v : {3.0, 2.0, 1.0}) few.add(v);
  BOOST_TEST(few.means(40) == (std::vector<double>{3, 2, 1}), boost::test_tools::per_element());
  BOOST_TEST(few.means(2) == (std::vector<double>{3, 1.5}), boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(a_sparkline_goes_from_the_highest_to_the_lowest_character) {
  BOOST_TEST(report::sparkline({}, true) == "");
  BOOST_TEST(report::sparkline({1, 1, 1}, true) == "▁▁▁");
  BOOST_TEST(report::sparkline({8, 7, 6, 5, 4, 3, 2, 1}, true) == "██▇▆▅▃▂▁");  // the largest eighth is cut
  BOOST_TEST(report::sparkline({4, 3, 2, 1}, false) == "'-._");
}

BOOST_AUTO_TEST_CASE(a_track_has_the_width_it_is_given) {
  for (const bool utf8 : {true, false})
    for (unsigned width = 3; width < 40; ++width)
      for (const double share : {-1.0, 0.0, 0.013, 0.5, 0.999, 1.0, 2.0})
        BOOST_TEST(report::display_width(report::track(share, width, utf8)) == width);
  BOOST_TEST(report::track(0.4, 12, false) == "[####......]");
  BOOST_TEST(report::track(0.5, 4, true) == "██░░");
}

BOOST_AUTO_TEST_CASE(a_phase_shows_its_share_its_bytes_and_the_end_of_a_long_name) {
  report::PhaseLine line;
  const std::string name = "tokenizing a-very-long-name-of-a-file-that-does-not-fit/part-0001.txt";
  line.add(name, 120 << 20, 240 << 20, 5);
  for (const bool utf8 : {true, false})
    for (unsigned columns = 1; columns <= 200; ++columns)
      BOOST_TEST(report::display_width(line.fitted(terminal(utf8), columns).text) <= columns);
  const std::string narrow = line.fitted(terminal(), 39).text;
  BOOST_TEST(narrow.starts_with("tokenizing …rt-0001.txt"), narrow);
  BOOST_TEST(contains(narrow, " 50 %"), narrow);
  const std::string wide = line.fitted(terminal(), 119).text;
  for (const char* part : {"120 MiB of 240 MiB", "24.0 MiB/s", "ETA 0:05", "██░"})
    BOOST_TEST(contains(wide, part), wide);
  BOOST_TEST(line.plain() == name + ": 50 %, 120 MiB of 240 MiB, ETA 0:05");
}

BOOST_AUTO_TEST_CASE(a_log_has_the_first_and_the_last_step_and_no_short_phase) {
  std::string log;
  report::Progress p(report::Progress::Mode::kPlain, terminal(), [&](const std::string& s) { log += s; });
  p.phase("reading x", 1, 100);
  p.phase("reading x", 100, 100);
  for (std::uint64_t n = 1; n <= 50; ++n) p.step(step(n, 50));
  BOOST_TEST(log ==
             "step  1/50  loss 5.9208  norm 0.64  lr 3.00e-03  98.1K tok/s  MFU 55 %  ETA 1:05\n"
             "step 50/50  loss 3.4715  norm 0.64  lr 3.00e-03  98.1K tok/s  MFU 55 %  ETA 1:05\n");
}

BOOST_AUTO_TEST_CASE(a_phase_is_shown_after_half_a_second_and_removed_at_its_end) {
  std::string screen;
  report::Progress p(report::Progress::Mode::kLive, terminal(), [&](const std::string& s) { screen += s; });
  p.phase("reading x", 1, 100);
  p.phase("reading x", 2, 100);
  BOOST_TEST(screen == "");
  std::this_thread::sleep_for(std::chrono::milliseconds(520));
  p.phase("reading x", 50, 100);
  BOOST_TEST(contains(screen, "\rreading x"), screen);
  BOOST_TEST(contains(screen, " 50 %"), screen);
  screen.clear();
  p.print_line("a message");  // above the line
  BOOST_TEST(screen.starts_with("\r\x1b[Ka message\n\rreading x"), screen);
  screen.clear();
  p.phase("loading y", 1, 100);  // another phase ends the one before
  BOOST_TEST(screen == "\r\x1b[K");
}

BOOST_AUTO_TEST_CASE(the_loss_is_smoothed_and_the_first_one_is_itself) {
  report::StatusLine line;
  training::StepProgress p = step(1, 100);
  p.loss = 5;
  line.add(p);
  BOOST_TEST(contains(line.fitted(terminal(), 200).text, "loss 5.0000"));
  p.step = 2, p.loss = 4;
  line.add(p);
  BOOST_TEST(contains(line.fitted(terminal(), 200).text, "loss 4.4872"));  // (0.95 * 5 + 4) / 1.95
  BOOST_TEST(contains(line.plain(), "loss 4.0000"));
}

BOOST_AUTO_TEST_SUITE_END()
