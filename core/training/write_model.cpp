// See write_model.hpp.
#include "core/training/write_model.hpp"

#include <fmt/format.h>

#include <fstream>
#include <iterator>
#include <map>

#include "core/base/text.hpp"
#include "core/checkpoint/tensor_files.hpp"
#include "core/training/model_folder.hpp"
#include "core/training/model_state.hpp"
#include "core/training/shared_save.hpp"

namespace trainhost::training {
namespace {

namespace fs = std::filesystem;

/// The tokenizer is copied, so that the model can be used without the run file; so is everything else that
/// the model of model.path had.
std::map<std::string, std::string> files_beside_model(const runfile::RunConfig& c,
                                                      const RunHistory& history) {
  std::map<std::string, std::string> others;
  if (c.given.count("model.path")) others = files_beside_weights(c.model_folder);
  // max_length is the training length: `generate` and Hugging Face software use it as the default context.
  others.emplace("generation_config.json",
                 fmt::format("{{\n  \"do_sample\": true,\n  \"max_length\": {}\n}}\n", c.run.seq_len));
  if (c.data.tokenizer != "bytes") {
    const fs::path source = c.data.tokenizer;
    const bool json = source.extension() == ".json";
    std::ifstream in(source, std::ios::binary);
    others[json ? "tokenizer.json" : "tokenizer.model"] = std::string(std::istreambuf_iterator<char>(in), {});
    if (!in)
      throw run_error("cannot read " + escaped(source.string(), 4096) + " to copy it to the trained model");
    // Names of special tokens and the chat template.
    for (auto& [name, text] : files_beside_weights(json ? source.parent_path() : fs::path()))
      if (name == "tokenizer_config.json" || name == "special_tokens_map.json" ||
          name == "chat_template.jinja")
        others[name] = std::move(text);
  }
  others[kTrainerStateName] = trainer_state_json(history);
  return others;
}

}  // namespace

/// The result is published as one directory, see write_model_dir(). A run that trains all weights has them in
/// the first scope of its state.
void write_model(plugin::Session& s, const runfile::RunConfig& c, const fs::path& dir,
                 const RunHistory& history, Ranks& ranks) {
  checkpoint::ModelFiles files;
  files.dtype = c.output.dtype == DType::kBF16 ? "BF16" : c.output.dtype == DType::kF16 ? "F16" : "F32";
  const std::vector<TensorInfo> all = tensors(c.model);
  if (!ranks.several()) {
    checkpoint::write_model_dir(dir, runfile::model_config_json(c.model, c.output.dtype), all,
                                state_of(s, c)(0), files_beside_model(c, history), files);
    return;
  }
  // The first rank creates the files, each writes its part of them, and the first one publishes them.
  std::map<std::string, std::string> others;
  fs::path staged;
  ranks.together([&] {
    if (!ranks.first()) return;
    others = files_beside_model(c, history);
    staged = checkpoint::stage_model_dir(dir, all, others, files);
  });
  try {
    staged = ranks.of_first(staged.string());
    ranks.together([&] {
      checkpoint::write_model_part(staged, all, own_part_of(s, plugin::Scope::kWeights, c, all), files);
    });
    ranks.together([&] {
      if (ranks.first())
        checkpoint::publish_model_dir(staged, dir, runfile::model_config_json(c.model, c.output.dtype), all,
                                      others, files);
    });
  } catch (...) {
    if (ranks.first()) checkpoint::discard_model_dir(dir, others, files);
    throw;
  }
}

}  // namespace trainhost::training
