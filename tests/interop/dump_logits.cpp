// Loads a model directory into the CPU trainer and writes the logits of a token sequence, float32 [tokens,
// vocab], to a file: the trainhost half of the comparison with other software (hf_logits.py).
//   dump_logits MODEL_DIR OUT.bin ID ID ID ...
#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

#include "core/plugin/registry.hpp"
#include "core/runfile/run_config.hpp"
#include "core/training/model_state.hpp"

using namespace trainhost;

int main(int argc, char** argv) {
  if (argc < 4) return 2;
  try {
    plugin::Registry registry({std::string(TRAINHOST_BINARY_DIR) + "/lib/trainhost/plugins"}, {});
    registry.scan();
    ModelSpec m = runfile::read_model_config(std::string(argv[1]) + "/config.json");
    RunSpec r;
    r.mode = RunMode::kInference;
    r.seq_len = static_cast<std::uint32_t>(argc - 3);
    auto session = registry.trainer("cpu").create(m, r);
    std::vector<float> scratch(1 << 20), logits(m.vocab);
    training::load_tensors(*session, plugin::Scope::kWeights, m, argv[1], scratch);
    session->init(0);
    std::ofstream out(argv[2], std::ios::binary);
    for (int i = 3; i < argc; ++i) {
      session->next_logits(std::atoi(argv[i]), static_cast<std::uint32_t>(i - 3), logits);
      out.write(reinterpret_cast<const char*>(logits.data()),
                static_cast<std::streamsize>(logits.size() * sizeof(float)));
    }
    return out.good() ? 0 : 1;
  } catch (const Error& e) {
    std::fprintf(stderr, "%s\n", e.full().c_str());
    return 1;
  }
}
