// Reads one golden run of tests/golden/runs: model, run, weights, tokens and the float64 results. A few lines
// of its own instead of the host's readers, so that a fault there cannot hide a fault here.
#pragma once
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "core/model/model_spec.hpp"
#include "core/model/run_spec.hpp"
#include "core/model/tensors.hpp"

namespace trainhost::test {

struct GoldenRun {
  ModelSpec model;
  RunSpec run;
  std::uint32_t steps = 0;
  std::map<std::string, std::vector<float>> weights;
  std::vector<std::int32_t> tokens;
  std::vector<double> loss, grad_norm, lr;
  std::map<std::string, double> final_l2;

  /// Samples first .. first+count in order: ids, and targets one further.
  void samples(std::uint64_t first, std::uint64_t count, std::vector<std::int32_t>& ids,
               std::vector<std::int32_t>& targets) const {
    const std::uint64_t s = run.seq_len;
    ids.assign(tokens.begin() + static_cast<long>(first * s),
               tokens.begin() + static_cast<long>((first + count) * s));
    targets.assign(tokens.begin() + static_cast<long>(first * s + 1),
                   tokens.begin() + static_cast<long>((first + count) * s + 1));
  }
};

namespace golden_detail {
inline std::string slurp(const std::filesystem::path& p) {
  std::ifstream f(p, std::ios::binary);
  if (!f) throw std::runtime_error("cannot read " + p.string());
  std::ostringstream all;
  all << f.rdbuf();
  return std::move(all).str();
}
// "key = 1.5 # comment" and "key = [0.9, 0.95]": enough of TOML for these files.
inline std::vector<double> numbers(const std::string& toml, const std::string& key) {
  for (std::size_t at = 0; at < toml.size();) {
    std::size_t end = toml.find('\n', at);
    std::string line = toml.substr(at, end - at);
    at = end == std::string::npos ? toml.size() : end + 1;
    if (line.compare(0, key.size(), key) != 0 || line.find_first_not_of(' ', key.size()) == std::string::npos)
      continue;
    std::size_t eq = line.find_first_not_of(' ', key.size());
    if (line[eq] != '=') continue;
    line = line.substr(eq + 1, line.find('#', eq) - eq - 1);
    for (char& c : line)
      if (c == '[' || c == ']' || c == ',') c = ' ';
    std::vector<double> out;
    char* p = line.data();
    for (char* next;; p = next) {
      double v = std::strtod(p, &next);
      if (next == p) break;
      out.push_back(v);
    }
    return out;
  }
  throw std::runtime_error("no key " + key);
}
}  // namespace golden_detail

/// Tensors of a safetensors file in f32, by name.
inline std::map<std::string, std::vector<float>> read_tensors(const std::filesystem::path& safetensors) {
  const std::string file = golden_detail::slurp(safetensors);
  std::uint64_t header = 0;
  std::memcpy(&header, file.data(), 8);
  std::map<std::string, std::vector<float>> out;
  const nlohmann::json entries = nlohmann::json::parse(file.substr(8, header));
  for (const auto& [name, t] : entries.items()) {
    if (name == "__metadata__") continue;
    const std::uint64_t begin = t["data_offsets"][0], end = t["data_offsets"][1];
    std::vector<float>& v = out[name];
    v.resize((end - begin) / 4);
    std::memcpy(v.data(), file.data() + 8 + header + begin, end - begin);
  }
  return out;
}

inline GoldenRun read_golden(const std::filesystem::path& dir) {
  using namespace golden_detail;
  GoldenRun g;
  const nlohmann::json c = nlohmann::json::parse(slurp(dir / "config.json"));
  ModelSpec& m = g.model;
  m.family = c["model_type"];
  m.vocab = c["vocab_size"], m.hidden = c["hidden_size"], m.layers = c["num_hidden_layers"],
  m.heads = c["num_attention_heads"];
  m.kv_heads = c["num_key_value_heads"], m.intermediate = c["intermediate_size"], m.head_dim = c["head_dim"];
  m.tied = c["tie_word_embeddings"], m.norm_eps = c["rms_norm_eps"], m.rope_theta = c["rope_theta"];
  m.qkv_bias = c["attention_bias"], m.max_positions = c["max_position_embeddings"];

  const std::string toml = slurp(dir / "run.toml");
  auto one = [&](const char* key) { return numbers(toml, key).at(0); };
  RunSpec& r = g.run;
  r.seq_len = static_cast<std::uint32_t>(one("seq_len"));
  r.micro_batch = static_cast<std::uint32_t>(one("micro_batch"));
  r.accumulate = static_cast<std::uint32_t>(one("grad_accum"));
  g.steps = static_cast<std::uint32_t>(one("steps"));
  r.beta1 = numbers(toml, "betas").at(0), r.beta2 = numbers(toml, "betas").at(1);
  r.eps = one("eps"), r.weight_decay = one("weight_decay"), r.clip_norm = one("grad_clip");

  g.weights = read_tensors(dir / "model.safetensors");
  const std::string ids = slurp(dir / "tokens.bin");
  for (std::size_t i = 0; i + 1 < ids.size(); i += 2)
    g.tokens.push_back(static_cast<unsigned char>(ids[i]) | static_cast<unsigned char>(ids[i + 1]) << 8);

  const nlohmann::json e = nlohmann::json::parse(slurp(dir / "expected.json"));
  g.loss = e["loss"].get<std::vector<double>>();
  g.grad_norm = e["grad_norm"].get<std::vector<double>>();
  g.lr = e["lr"].get<std::vector<double>>();
  for (const auto& [name, t] : e["final_weights"].items()) g.final_l2[name] = t["l2"];
  return g;
}

}  // namespace trainhost::test
