// Runs that train adapters, and adapters of PEFT with their merged weights (tests/golden/runs), for the tests
// of adapters.
#pragma once
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>

#include "tests/support/files.hpp"
#include "tests/support/golden_run.hpp"
#include "tests/support/process.hpp"
#include "tests/tools/trainhost/planned_memory.hpp"

namespace trainhost::test {

namespace fs = std::filesystem;
using nlohmann::json;

inline const fs::path kGoldenRuns = fs::path(TRAINHOST_SOURCE_DIR) / "tests/golden/runs";

inline std::vector<std::string> lora_run(const fs::path& dir, std::vector<std::string> settings,
                                         std::vector<std::string> more = {}) {
  std::vector<std::string> w = {"train", "--json", "-q"};
  const std::vector<std::string> model = small_model_options();
  w.insert(w.end(), model.begin(), model.end());
  settings.insert(settings.begin(), {"output.dir=" + dir.string(), "train.steps=3", "lora.rank=4",
                                     "train.backend=cpu", "train.threads=2"});
  for (const std::string& s : settings) w.insert(w.end(), {"--set", s});
  w.insert(w.end(), more.begin(), more.end());
  return w;
}

/// The golden run whose weights an adapter of PEFT belongs to (tests/interop/peft_lora.py).
inline std::string base_of(const std::string& kind) {
  return kind.ends_with("-vocabulary") || kind == "lora-modules-untied" ? "mha" : "gqa-tied";
}

/// A run over the weights of `base` that starts from the adapter in `folder`.
inline std::vector<std::string> continued(const fs::path& folder, const fs::path& out,
                                          const std::vector<std::string>& more = {},
                                          const std::string& base = "gqa-tied") {
  std::vector<std::string> w = {"train", (kGoldenRuns / base / "run.toml").string(), "--json", "-q"};
  std::vector<std::string> settings = {"model.adapter=" + folder.string(),
                                       "output.dir=" + out.string(),
                                       "train.backend=cpu",
                                       "train.precision=fp32",
                                       "train.micro_batch=2",
                                       "train.grad_accum=1",
                                       "data.seq_len=64",
                                       "train.steps=20",
                                       "optimizer.schedule=constant",
                                       "optimizer.warmup_steps=0",
                                       "optimizer.grad_clip=0.5"};
  settings.insert(settings.end(), more.begin(), more.end());
  for (const std::string& s : settings) w.insert(w.end(), {"--set", s});
  return w;
}

/// Trains an adapter with these settings into `dir`. The plan is exact, and its memory is what was measured.
inline void uses_the_memory_of_its_plan(const fs::path& dir, const std::vector<std::string>& settings) {
  const Outcome r = run_program(lora_run(dir, settings));
  std::string what;
  for (const std::string& s : settings) what += s + " ";
  BOOST_REQUIRE_MESSAGE(r.code == 0, what << r.err);
  memory_is_that_of_the_plan(done_of(r.out), what);
}

/// The adapter of PEFT with other values of adapter_config.json; null removes a key.
inline fs::path changed_adapter(const TemporaryDirectory& tmp, const json& changes) {
  json config = json::parse(read_file(kGoldenRuns / "lora/adapter_config.json"));
  config.merge_patch(changes);
  tmp.write("changed/adapter_config.json", config.dump(2));
  fs::copy_file(kGoldenRuns / "lora/adapter_model.safetensors", tmp / "changed/adapter_model.safetensors",
                fs::copy_options::overwrite_existing);
  return tmp / "changed";
}

struct FileTensor {
  std::string name;
  std::vector<std::uint64_t> shape;
  std::vector<float> values;
};
inline void write_tensors(const fs::path& file, const std::vector<FileTensor>& tensors) {
  json header;
  std::string data;
  for (const FileTensor& t : tensors) {
    const std::size_t begin = data.size();
    data.append(reinterpret_cast<const char*>(t.values.data()), 4 * t.values.size());
    header[t.name] = {{"dtype", "F32"}, {"shape", t.shape}, {"data_offsets", {begin, data.size()}}};
  }
  const std::string text = header.dump();
  const std::uint64_t size = text.size();
  std::ofstream(file, std::ios::binary).write(reinterpret_cast<const char*>(&size), 8) << text << data;
}

/// A tensor of a safetensors file.
inline std::vector<float> stored_tensor(const fs::path& file, const std::string& name) {
  return read_tensors(file).at(name);
}

}  // namespace trainhost::test
