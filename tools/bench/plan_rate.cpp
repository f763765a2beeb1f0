// Benchmark of planning: processor time of each request in a file, one JSON object per line, as the planner's
// page makes them (tools/web/plan_request.hpp; tests/interop/plan_cases.py prints random ones). Each answer
// is what the page shows: the plan as JSON and as HTML. Prints median, requests above a limit and the
// slowest. Usage: bench_plan REQUESTS [ROUNDS [ANSWERS]]: the least of ROUNDS; ANSWERS is a file for all
// answers, to be compared with those of another build.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fstream>
#include <string>
#include <vector>

#include "core/plugin/trial_load.hpp"
#include "core/report/plan_report.hpp"
#include "tools/trainhost/planned_results.hpp"
#include "tools/web/plan_request.hpp"

namespace {

using namespace trainhost;

double processor_milliseconds() {
  timespec t{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return double(t.tv_sec) * 1e3 + double(t.tv_nsec) / 1e6;
}

struct Answer {
  std::string plan, html;
};

Answer answer(const JsonValue& request) {
  try {
    const planning::PlanResult v = cli::plan_of(web::arguments_of(request));
    return {report::plan_json(v), report::plan_html(v)};
  } catch (const Error& e) {
    return {e.full(), ""};
  }
}

struct Timed {
  std::string text;
  double ms;
};

void print(std::vector<Timed> all) {
  constexpr double kLimit = 50;
  constexpr std::size_t kShown = 15;
  std::ranges::sort(all, std::greater(), &Timed::ms);
  double sum = 0;
  for (const Timed& t : all) sum += t.ms;
  const auto above = std::ranges::count_if(all, [](const Timed& t) { return t.ms > kLimit; });
  fmt::print("{} requests: median {:.1f} ms, longest {:.1f} ms, {} above {:.0f} ms; sum {:.0f} ms\n",
             all.size(), all[all.size() / 2].ms, all.front().ms, above, kLimit, sum);
  for (std::size_t i = 0; i < std::min(kShown, all.size()); ++i)
    fmt::print("{:8.1f} ms  {}\n", all[i].ms, all[i].text);
}

}  // namespace

int main(int argc, char** argv) {
  // A plugin that is not in the cache yet is loaded in this program as well.
  if (argc == 2 && std::strcmp(argv[1], plugin::kTrialLoadArgument) == 0) plugin::serve_trial_load();
  if (argc < 2) {
    fmt::print(stderr, "bench_plan REQUESTS [ROUNDS [ANSWERS]]\n");
    return 2;
  }
  const int rounds = argc > 2 ? std::max(1, std::atoi(argv[2])) : 1;
  std::vector<Timed> all;
  std::ifstream in(argv[1]);
  for (std::string line; std::getline(in, line);)
    if (!line.empty()) all.push_back({line, 1e9});
  if (all.empty()) {
    fmt::print(stderr, "no request in {}\n", argv[1]);
    return 2;
  }
  std::ofstream answers;
  if (argc > 3) answers.open(argv[3], std::ios::binary);
  for (int round = 0; round < rounds; ++round)
    for (Timed& t : all) {
      const JsonValue request = parse_json(t.text);
      const double begin = processor_milliseconds();
      const Answer a = answer(request);
      t.ms = std::min(t.ms, processor_milliseconds() - begin);
      if (round == 0 && answers.is_open()) answers << t.text << '\n' << a.plan << '\n' << a.html << '\n';
    }
  print(std::move(all));
  return 0;
}
