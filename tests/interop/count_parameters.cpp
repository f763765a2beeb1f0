// What trainhost reads from config.json files: the half of model_families.py that does not need Python.
//   count_parameters            config.json files on standard input, one per line -> "WEIGHTS CACHE NOTES" or
//   "error: ..." count_parameters --presets  the presets that are planned and not trained: "NAME
//   config.json", one per line
// CACHE: bytes of the KV cache and of the states of linear attention of 2 sequences of 48 tokens in f32.
// NOTES: number of fields that no reader knows.
#include <cstdio>
#include <iostream>
#include <string>

#include "core/base/error.hpp"
#include "core/model/architecture.hpp"
#include "core/parallel/rank_memory.hpp"

using namespace trainhost;

static std::uint64_t cache_bytes(const model::Architecture& a) {
  RunSpec r;
  r.mode = RunMode::kInference;
  r.micro_batch = 2, r.seq_len = 48;
  const parallel::Numbers n = parallel::stage_numbers(a, r, 0);
  return n.bytes[static_cast<std::size_t>(Tier::kDevice)][static_cast<std::size_t>(Component::kKvCache)];
}

int main(int argc, char**) {
  if (argc > 1) {
    for (const ModelSpec& m : model::planned_presets())
      std::printf("%s %s\n", m.name.c_str(), m.config_json.c_str());
    return 0;
  }
  std::string line;
  while (std::getline(std::cin, line)) {
    try {
      const model::Architecture a = model::from_config(line, "model");
      std::size_t unknown = 0;
      for (const std::string& note : a.notes) unknown += note.find("is unknown") != note.npos;
      std::printf("%llu %llu %zu\n", static_cast<unsigned long long>(model::count(a).total),
                  static_cast<unsigned long long>(cache_bytes(a)), unknown);
    } catch (const Error& e) {
      std::printf("error: %s\n", e.full().c_str());
    }
  }
  return 0;
}
