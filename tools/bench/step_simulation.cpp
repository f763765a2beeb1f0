// Predicts the step time of a run on the ranks of this machine from measured rates (core/step/
// step_simulation.hpp), and prints it as JSON.
//   bench_step_simulation PLUGINS RATES.json KEY=VALUE...
// RATES.json: {"cores": 2, "between_s": S, "latency_s": S, "gather_per_byte": S, "reduce_per_byte": S,
//   "other": {"per_flop": S, "per_byte": S}, "kinds": {"linear": {"per_flop": S, "per_byte": S}, ...}}
// "cores" are those of the machine; "other" is the rate of kinds of operations that are not listed.
#include <cmath>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>

#include "core/base/json_value.hpp"
#include "core/plugin/registry.hpp"
#include "core/runfile/run_config.hpp"
#include "core/step/step_simulation.hpp"

namespace {

using namespace trainhost;

double number_of(const JsonValue& v, const char* key) {
  const JsonValue* const found = v.find(key);
  if (!found) throw usage_error(std::string("the rates have no \"") + key + "\"", "");
  return found->number;
}
step::OpRate rate_of(const JsonValue& v) { return {number_of(v, "per_flop"), number_of(v, "per_byte")}; }

step::StepRates rates_of(const JsonValue& v, std::uint32_t ranks) {
  step::StepRates r;
  const JsonValue *const kinds = v.find("kinds"), *const other = v.find("other");
  if (!kinds || !other) throw usage_error("the rates have no \"kinds\" or no \"other\"", "");
  for (std::size_t k = 0; k < r.kinds.size(); ++k) {
    const JsonValue* const measured = kinds->find(step::op_info(static_cast<step::OpKind>(k)).name);
    r.kinds[k] = rate_of(measured ? *measured : *other);
  }
  r.between_s = number_of(v, "between_s"), r.data.latency_s = number_of(v, "latency_s");
  r.data.all_reduce_latency_s = 2 * r.data.latency_s;
  r.data.gather_per_byte = number_of(v, "gather_per_byte");
  r.data.reduce_per_byte = number_of(v, "reduce_per_byte");
  r.tensor = r.data;
  // With more ranks than cores some share a core, and the others wait for them.
  const double cores = number_of(v, "cores");
  r.cores = ranks <= cores ? cores / ranks : 1 / std::ceil(ranks / cores);
  return r;
}

int run(int argc, char** argv) {
  if (argc < 3)
    return std::fprintf(stderr, "usage: bench_step_simulation PLUGINS RATES.json KEY=VALUE...\n"), 2;
  std::vector<runfile::Override> settings;
  for (int i = 3; i < argc; ++i) {
    const char* const equals = std::strchr(argv[i], '=');
    if (!equals) return std::fprintf(stderr, "%s is not KEY=VALUE\n", argv[i]), 2;
    settings.push_back({std::string(argv[i], static_cast<std::size_t>(equals - argv[i])), equals + 1});
  }
  runfile::RunConfig c = runfile::load_run({}, settings);
  if (c.run.parallel.data > 1) c.run.parallel.data_rank = 1;
  plugin::HostOptions options;
  options.thread_budget = c.threads;
  plugin::Registry registry({argv[1]}, options);
  registry.scan();
  const step::Program p = step::build_program(c.model, c.run, registry.trainer("cpu").traits(c.model, c.run));
  std::ifstream file(argv[2]);
  if (!file) return std::fprintf(stderr, "cannot read %s\n", argv[2]), 2;
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const step::SimulatedStep s = step::simulate_step(p, rates_of(parse_json(text), c.run.parallel.data));
  std::printf("%s\n", JsonValue{{"ms", 1e3 * s.seconds},
                                {"compute_ms", 1e3 * s.compute_s},
                                {"communication_ms", 1e3 * s.communication_s},
                                {"waited_ms", 1e3 * s.waited_s},
                                {"bytes", s.bytes}}
                          .dump()
                          .c_str());
  return 0;
}

}  // namespace

int main(int argc, char** argv) try { return run(argc, argv); } catch (const std::exception& e) {
  return std::fprintf(stderr, "%s\n", e.what()), 1;
}
