// See model_state.hpp. State of a run = weights and moments of the session, Progress, and the settings that
// determine the next bits. Batches and learning rate are functions of these, so nothing else is saved.
#include "core/training/model_state.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include "core/base/checked.hpp"
#include "core/base/plural.hpp"
#include "core/base/text.hpp"
#include "core/checkpoint/safetensors.hpp"
#include "core/checkpoint/tensor_files.hpp"
#include "core/model/adapters.hpp"
#include "core/model/optimizer_state.hpp"
#include "core/planning/host_buffers.hpp"
#include "core/training/model_folder.hpp"
#include "core/training/shared_save.hpp"

namespace trainhost::training {
namespace {

namespace fs = std::filesystem;
// Index i of both tables is scope i; a run saves the first 1 + moment_count() of them.
constexpr const char* kScopeFile[] = {"weights.safetensors", "moment1.safetensors", "moment2.safetensors"};
constexpr plugin::Scope kScope[] = {plugin::Scope::kWeights, plugin::Scope::kMoment1,
                                    plugin::Scope::kMoment2};
constexpr plugin::Scope kAdapterScope[] = {plugin::Scope::kAdapter, plugin::Scope::kMoment1,
                                           plugin::Scope::kMoment2};

/// Members of the manifest's extras; see Progress.
constexpr const char *kRunKey = "run", *kOptionsKey = "trainer_options", *kOffsetKey = "batch_offset",
                     *kLossesKey = "recent_losses", *kValidationKey = "validation_loss",
                     *kValidationContentKey = "validation_content", *kFrozenKey = "frozen_weights",
                     *kEarlyStoppingKey = "early_stopping";

constexpr const char* kContentKey = "data.content";

/// "key = value" lines; lines of another form are ignored.
std::map<std::string, std::string> lines_of(const std::string& text) {
  std::map<std::string, std::string> out;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);)
    if (auto at = line.find(" = "); at != std::string::npos) out[line.substr(0, at)] = line.substr(at + 3);
  return out;
}

/// Options of the trainer as a text.
std::string trainer_options(const runfile::RunConfig& c, const std::string& backend) {
  std::string text;
  if (const auto options = c.plugin_options.find(backend); options != c.plugin_options.end())
    for (const auto& [key, value] : options->second)
      text += fmt::format("{}{} = {}", text.empty() ? "" : ", ", key, value);
  return text.empty() ? "none" : text;
}

/// A note if the trainer had other options. Only the trainer knows what its options change, so that a
/// difference is reported and not refused.
std::string other_options(const checkpoint::Meta& saved, const runfile::RunConfig& c) {
  const auto before = saved.extra.find(kOptionsKey);
  const std::string now = trainer_options(c, saved.backend);
  if (before == saved.extra.end() || before->second == now) return {};
  return fmt::format(
      "note: the options of the trainer {} were '{}' and are '{}': the results may differ from those of "
      "an uninterrupted run",
      escaped(saved.backend), escaped(before->second, 4096), escaped(now, 4096));
}

/// The value of a key of resume_identity() as the run file has it.
std::string value_of(const std::string& key, const std::string& value) {
  static constexpr const char* kSchedules[] = {"constant", "cosine", "linear",
                                               "wsd"};  // in the order of Schedule
  if (key == "optimizer.schedule" && value.size() == 1 && value[0] >= '0' && value[0] <= '3')
    return kSchedules[value[0] - '0'];
  return value;
}

/// A run may be continued with another train.steps. Returns what changes with it; "" if it is the same. A
/// warm-up that follows from train.steps stays as it was.
std::string change_steps(const std::map<std::string, std::string>& saved, std::uint64_t step,
                         runfile::RunConfig& c) {
  const auto before = saved.find("train.steps");
  if (before == saved.end() || before->second == std::to_string(c.steps)) return {};
  if (c.steps < step)
    throw usage_error(fmt::format("the checkpoint is of step {}, but train.steps = {}", step, c.steps),
                      "set train.steps to at least the step of the checkpoint");
  const auto warmup = saved.find("optimizer.warmup_steps");
  if (warmup != saved.end() && !c.given.count("optimizer.warmup_steps"))
    c.optimizer.warmup_steps = std::strtoull(warmup->second.c_str(), nullptr, 10);
  std::string text = fmt::format("train.steps was {} and is {}", before->second, c.steps);
  if (c.optimizer.schedule != runfile::Schedule::kConstant)
    text += fmt::format(": from step {} on the learning rate follows the schedule of {}", step + 1,
                        plural(c.steps, "step"));
  return text;
}

/// Only keys that both texts have are compared: a later version may add keys, and an old checkpoint must stay
/// usable. Names of files count only if a text has no hash of their content.
void require_same_identity(std::map<std::string, std::string> a, const std::string& current) {
  std::map<std::string, std::string> b = lines_of(current);
  b.erase("train.steps");  // see change_steps()
  if (a.count(kContentKey) && b.count(kContentKey))
    for (const char* name : {"data.train", "data.tokenizer"}) b.erase(name);
  std::string differs;
  for (const auto& [key, value] : b)
    if (auto it = a.find(key); it != a.end() && it->second != value)
      differs += (differs.empty() ? "" : "; ") +
                 (key == kContentKey ? std::string("data.train or data.tokenizer has another content")
                                     : fmt::format("{} was {}, is {}", key, value_of(key, it->second),
                                                   value_of(key, value)));
  if (!differs.empty())
    throw usage_error(
        "the checkpoint was written by a run with other settings: " + differs,
        "set these keys as they were, also those whose default has changed, or train into another "
        "output.dir");
}

}  // namespace

void require_tokenizer_of_model(const runfile::RunConfig& c) {
  const auto is_text = [](const fs::path& p) { return p.extension() != ".bin"; };
  const bool reads_text = c.data.train.empty() ||
                          std::any_of(c.data.train.begin(), c.data.train.end(), is_text) ||
                          std::any_of(c.data.valid.begin(), c.data.valid.end(), is_text);
  if (!reads_text || c.given.count("data.tokenizer") || c.data.tokenizer != "bytes") return;
  const fs::path folder = c.weights ? c.weights->parent_path() : c.model_folder;
  const std::optional<fs::path> tokenizer = runfile::tokenizer_beside(folder);
  if (!c.weights && !tokenizer) return;
  const std::string bytes = "data.tokenizer = \"bytes\" trains on bytes nevertheless";
  const bool is_read =
      tokenizer && (tokenizer->extension() == ".model" || tokenizer->filename() == "tokenizer.json");
  if (tokenizer && !is_read)
    throw usage_error(
        fmt::format("{} has neither tokenizer.json nor tokenizer.model, and its tokenizer is not bytes ({})",
                    escaped(folder.string(), 4096), escaped(tokenizer->filename().string(), 100)),
        "copy the tokenizer.json of the model into the folder, or tokenize the text into a .bin file; " +
            bytes);
  throw usage_error(
      (tokenizer ? fmt::format("the model has a tokenizer, {}", escaped(tokenizer->string(), 4096))
                 : fmt::format("the weights {} are loaded", escaped(c.weights->string(), 4096))) +
          ", but the text would be read as bytes",
      !tokenizer ? "set data.tokenizer; " + bytes
                 : fmt::format("set data.tokenizer = \"{}\"; {}", escaped(tokenizer->string(), 4096), bytes));
}

std::span<const plugin::Scope> state_scopes(const runfile::RunConfig& c) {
  const std::size_t n = 1 + static_cast<std::size_t>(moment_count(c.run.optimizer));
  assert(n <= std::size(kScope));
  return std::span(trains_adapters(c.run) ? kAdapterScope : kScope).first(n);
}

const char* state_file(std::size_t scope) { return kScopeFile[scope]; }

std::vector<TensorInfo> state_tensors(const runfile::RunConfig& c, std::size_t scope) {
  return scope == 0 ? saved_tensors(c.model, c.run)
                    : trainhost::state_tensors(c.model, c.run, static_cast<int>(scope));
}

void require_finite_weights(const runfile::RunConfig& c, const PhaseSink& progress) {
  static std::set<fs::path> read_before;  // on the thread of the commands
  const auto is_text = [](const fs::path& p) { return p.extension() != ".bin"; };
  const bool tokenizes = std::any_of(c.data.train.begin(), c.data.train.end(), is_text) ||
                         std::any_of(c.data.valid.begin(), c.data.valid.end(), is_text);
  if (!c.weights || !tokenizes || read_before.contains(*c.weights)) return;
  checkpoint::WeightSource source(*c.weights);
  source.require(tensors(c.model), c.model.tied);
  std::vector<float> piece(std::size_t{1} << 16);
  std::uint64_t done = 0, elements = 0;
  for (const TensorInfo& t : tensors(c.model)) elements += t.elements();
  for (const TensorInfo& t : tensors(c.model)) {
    source.stream(t, piece, [](std::uint64_t, std::span<const float>) {});
    done += t.elements();
    if (progress) progress("checking " + c.weights->filename().string(), 4 * done, 4 * elements);
  }
  read_before.insert(*c.weights);
}

/// Streams in the order of the file's tensors, one piece of `scratch` at a time, so the memory needed does
/// not depend on the model. All tensors are checked before the first byte is passed to the trainer.
void load_tensors(plugin::Session& s, plugin::Scope scope, const ModelSpec& m, const fs::path& file_or_dir,
                  std::span<float> scratch, const PhaseSink& progress) {
  load_tensors(s, scope, tensors(m), m.tied, file_or_dir, scratch, nullptr, progress);
}

void load_tensors(plugin::Session& s, plugin::Scope scope, const std::vector<TensorInfo>& wanted, bool tied,
                  const fs::path& file_or_dir, std::span<float> scratch, checkpoint::Xxh3* hash,
                  const PhaseSink& progress) {
  checkpoint::WeightSource source(file_or_dir);
  source.require(wanted, tied);
  std::uint64_t elements = 0, loaded = 0, stored_bytes = 0;
  for (const TensorInfo& t : wanted) elements += t.elements();
  for (const checkpoint::SafetensorsFile& file : source.files())
    for (const checkpoint::TensorEntry& t : file.tensors()) stored_bytes += t.end - t.begin;
  const std::string phase = "loading " + file_or_dir.filename().string();
  for (const TensorInfo& t : wanted)
    source.stream(t, scratch, [&](std::uint64_t first, std::span<const float> values) {
      if (hash) hash->update(std::as_bytes(values));
      s.load(scope, {t.name, DType::kF32, t.rank, t.dim, values.data(), first, values.size()});
      loaded += values.size();
      if (!progress) return;
      // In bytes of the file, whose types may differ.
      const double share = static_cast<double>(loaded) / static_cast<double>(elements);
      progress(phase, static_cast<std::uint64_t>(share * static_cast<double>(stored_bytes)), stored_bytes);
    });
}

std::string load_frozen_weights(plugin::Session& s, const runfile::RunConfig& c, std::span<float> scratch,
                                const PhaseSink& progress) {
  if (!trains_adapters(c.run)) return {};
  if (!c.weights)
    return fmt::format("random, train.seed {}, initializer_range {}", c.run.seed, c.model.initializer_range);
  checkpoint::Xxh3 hash;
  load_tensors(s, plugin::Scope::kWeights, tensors(c.model), c.model.tied, *c.weights, scratch, &hash,
               progress);
  return "xxh3 " + hash.hex();
}

namespace {

/// The trainer decides how large the pieces are; tensor_files.cpp checks that they are complete and in order.
checkpoint::TensorSource source_of(plugin::Session& s, plugin::Scope scope) {
  return [&s, scope](const checkpoint::TensorSink& sink) {
    s.save(scope, [&](const plugin::TensorPiece& p) {
      if (p.dtype != DType::kF32)
        throw run_error("the trainer saved '" + p.name + "' in a type other than f32");
      sink(p.name, p.first, {static_cast<const float*>(p.data), p.count});
    });
  };
}

}  // namespace

/// Every key that changes a bit of the trained weights. Missing one here would let a resumed run differ
/// silently, so a new key of the run file that affects training is added here, too.
std::string resume_identity(const runfile::RunConfig& c, const std::string& data_content) {
  const RunSpec& r = c.run;
  const ModelSpec& m = c.model;
  std::string out;
  auto add = [&](const char* key, auto value) { out += fmt::format("{} = {}\n", key, value); };
  add("model.family", m.family);
  add("model.vocab_size", m.vocab);
  add("model.hidden_size", m.hidden);
  add("model.num_hidden_layers", m.layers);
  add("model.num_attention_heads", m.heads);
  add("model.num_key_value_heads", m.kv_heads);
  add("model.head_dim", m.head_dim);
  add("model.intermediate_size", m.intermediate);
  add("model.tie_word_embeddings", m.tied);
  add("model.sliding_window", m.sliding_window);
  add("model.rms_norm_eps", m.norm_eps);
  add("model.rope_theta", m.rope_theta);
  const RopeScaling& rope = m.rope;
  add("model.rope_scaling",
      rope.kind == RopeKind::kDefault
          ? "none"
          : fmt::format("{} factor {} low {} high {} original {}",
                        rope.kind == RopeKind::kLinear ? "linear" : "llama3", rope.factor,
                        rope.low_freq_factor, rope.high_freq_factor, rope.original_max_positions));
  add("model.attention_bias", fmt::format("qkv {} o {}", m.qkv_bias, m.o_bias));
  add("model.mlp_bias", m.mlp_bias);
  add("model.qk_norm", m.qk_norm);
  add("model.first_window_layer", m.first_window_layer);
  // File names without folders: moving the data must not make a checkpoint useless.
  std::string files;
  for (const fs::path& p : c.data.train) files += (files.empty() ? "" : ",") + p.filename().string();
  add("data.train", files.empty() ? "stories" : files);
  add("data.tokenizer", fs::path(c.data.tokenizer).filename().string());
  if (!data_content.empty()) add(kContentKey, data_content);
  add("data.dtype", c.data.dtype);
  add("data.order", c.data.order == runfile::Order::kShuffled ? "shuffled" : "sequential");
  add("data.valid_fraction", c.data.valid_fraction);
  add("data.seq_len", r.seq_len);
  add("train.precision", c.precision);
  add("train.micro_batch", r.micro_batch);
  // Of all ranks: a run may go on with another number of them, if a step has the same sequences.
  add("train.grad_accum", std::uint64_t{r.accumulate} * (r.parallel.data_rank ? r.parallel.data : 1));
  add("train.steps", c.steps);
  add("train.seed", r.seed);
  std::string rules = r.trainable;
  std::ranges::replace(rules, '\n', ' ');
  add("train.trainable", rules.empty() ? "all" : rules);
  add("train.adapters", trains_adapters(r) ? "lora" : "none");
  if (trains_adapters(r)) {
    add("lora.rank", r.lora_rank);
    add("lora.alpha", c.lora.alpha);
    add("lora.rslora", c.lora.rslora);
    add("lora.dora", r.memory.dora);
    add("lora.dropout", r.memory.lora_dropout);
    if (ties_adapter(r)) add("lora.ensure_weight_tying", true);
    add("lora.targets", fmt::format("{}", fmt::join(runfile::names_of_targets(r.lora_targets), ",")));
    std::string rules_of_adapters = r.lora_rules;
    std::ranges::replace(rules_of_adapters, '\n', ',');
    if (!rules_of_adapters.empty()) add("lora.rules", rules_of_adapters);
    add("lora.base", r.mode == RunMode::kQlora ? "nf4" : name(r.weight));
    add("lora.double_quant", r.memory.double_quantized);
  }
  add("optimizer.name", name(r.optimizer));
  add("optimizer.lr", c.optimizer.lr);
  add("optimizer.min_lr", c.optimizer.min_lr);
  add("optimizer.schedule", static_cast<int>(c.optimizer.schedule));
  add("optimizer.warmup_steps", c.optimizer.warmup_steps);
  if (c.optimizer.schedule == runfile::Schedule::kWsd) {
    add("optimizer.decay", static_cast<int>(c.optimizer.decay));
    // A part of the steps changes with train.steps, and may: a run goes on from before its decay.
    if (c.given.count("optimizer.decay_steps"))
      add("optimizer.decay_steps", c.optimizer.decay_steps);
    else
      add("optimizer.decay_ratio", c.optimizer.decay_ratio.value_or(runfile::kDefaultDecayRatio));
  }
  add("optimizer.betas", fmt::format("[{}, {}]", r.beta1, r.beta2));
  add("optimizer.eps", r.eps);
  add("optimizer.weight_decay", r.weight_decay);
  add("optimizer.grad_clip", r.clip_norm);
  return out;
}

std::string first_nonfinite_weight(plugin::Session& s, const runfile::RunConfig& c) {
  std::string found;
  s.save(state_scopes(c).front(), [&](const plugin::TensorPiece& p) {
    if (!found.empty() || p.dtype != DType::kF32) return;
    const std::span<const float> values(static_cast<const float*>(p.data), p.count);
    if (!std::all_of(values.begin(), values.end(), [](float x) { return std::isfinite(x); })) found = p.name;
  });
  return found;
}

StateSource state_of(plugin::Session& s, const runfile::RunConfig& c) {
  return [&s, scopes = state_scopes(c)](std::size_t scope) { return source_of(s, scopes[scope]); };
}

checkpoint::Meta checkpoint_meta(plugin::Session& s, const runfile::RunConfig& c, const std::string& backend,
                                 const std::string& data_content, const Progress& progress,
                                 const std::string& frozen_content) {
  checkpoint::Meta meta;
  meta.step = progress.step;
  meta.kernel_set = s.info("kernel_set");
  meta.program_version = TRAINHOST_VERSION;
  meta.backend = backend;
  meta.extra[kRunKey] = resume_identity(c, data_content);
  meta.extra[kOptionsKey] = trainer_options(c, backend);
  if (!frozen_content.empty()) meta.extra[kFrozenKey] = frozen_content;
  if (progress.batch_offset) meta.extra[kOffsetKey] = std::to_string(progress.batch_offset);
  if (!progress.recent_losses.empty()) meta.extra[kLossesKey] = progress.recent_losses;
  if (progress.validation_loss) meta.extra[kValidationKey] = fmt::format("{}", *progress.validation_loss);
  if (!progress.early_stopping.empty()) meta.extra[kEarlyStoppingKey] = progress.early_stopping;
  if ((progress.validation_loss || !progress.early_stopping.empty()) && !progress.validation_content.empty())
    meta.extra[kValidationContentKey] = progress.validation_content;
  return meta;
}

Progress progress_of(const checkpoint::Meta& meta) {
  Progress p;
  p.step = meta.step;
  const auto text = [&](const char* key) {
    const auto it = meta.extra.find(key);
    return it == meta.extra.end() ? std::string() : it->second;
  };
  p.batch_offset = std::strtoull(text(kOffsetKey).c_str(), nullptr, 10);
  p.recent_losses = text(kLossesKey);
  if (const std::string loss = text(kValidationKey); !loss.empty())
    p.validation_loss = std::strtod(loss.c_str(), nullptr);
  p.validation_content = text(kValidationContentKey);
  p.early_stopping = text(kEarlyStoppingKey);
  return p;
}

/// The store compares the number of bytes with the free space before writing.
fs::path save_checkpoint(checkpoint::Store& store, const checkpoint::Meta& meta, const runfile::RunConfig& c,
                         const StateSource& state) {
  return store.save(meta, planning::state_bytes(c), [&](const fs::path& tmp) {
    for (std::size_t i = 0; i < state_scopes(c).size(); ++i)
      checkpoint::write_tensors(tmp / kScopeFile[i], state_tensors(c, i), state(i));
  });
}

Progress resume_checkpoint(plugin::Session& s, runfile::RunConfig& c, const std::string& data_content,
                           const checkpoint::Store& store, std::span<float> scratch,
                           const std::function<void(const std::string&)>& say,
                           const std::string& frozen_content, const PhaseSink& progress) {
  auto found = store.newest(progress);
  if (!found)
    throw usage_error(fmt::format("--resume: {} has no checkpoint", escaped(c.output.dir.string(), 4096)),
                      "train without --resume first, and set output.checkpoint_every");
  for (const std::string& skipped : found->skipped) say("skipped " + skipped);
  if (const auto run = found->meta.extra.find(kRunKey); run != found->meta.extra.end()) {
    const std::map<std::string, std::string> saved = lines_of(run->second);
    if (const std::string change = change_steps(saved, found->meta.step, c); !change.empty()) say(change);
    require_same_identity(saved, resume_identity(c, data_content));
  }
  if (const auto frozen = found->meta.extra.find(kFrozenKey);
      frozen != found->meta.extra.end() && frozen->second != frozen_content)
    throw usage_error(fmt::format("the checkpoint has adapters of other weights: they were '{}' and are '{}'",
                                  escaped(frozen->second, 200), escaped(frozen_content, 200)),
                      "set model.weights, or train.seed for random weights, as they were, or train into "
                      "another output.dir");
  // Another kernel set (another CPU or GPU) rounds differently. The run is still correct, so it is only
  // noted.
  if (std::string now = s.info("kernel_set"); now != found->meta.kernel_set)
    say(
        fmt::format("note: the checkpoint was computed with the kernels '{}', this machine uses '{}': the "
                    "results will not be "
                    "bit-identical",
                    found->meta.kernel_set, now));
  if (const std::string note = other_options(found->meta, c); !note.empty()) say(note);
  // Weights and moments in the order of kScope. Missing files of a moment are an error of WeightSource.
  for (std::size_t i = 0; i < state_scopes(c).size(); ++i)
    load_tensors(s, state_scopes(c)[i], state_tensors(c, i), c.model.tied, found->dir / kScopeFile[i],
                 scratch, nullptr, progress);
  return progress_of(found->meta);
}

void load_checkpoint_weights(plugin::Session& s, const runfile::RunConfig& c, const fs::path& checkpoint,
                             std::span<float> scratch) {
  load_tensors(s, state_scopes(c).front(), trained_tensors(c.model, c.run), c.model.tied,
               checkpoint / kScopeFile[0], scratch);
}

namespace {

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

/// The result is published as one directory, see write_model_dir().
void write_model(plugin::Session& s, const runfile::RunConfig& c, const fs::path& dir,
                 const RunHistory& history, Ranks& ranks) {
  checkpoint::ModelFiles files;
  files.dtype = c.output.dtype == DType::kBF16 ? "BF16" : c.output.dtype == DType::kF16 ? "F16" : "F32";
  const std::vector<TensorInfo> all = tensors(c.model);
  if (!ranks.several()) {
    checkpoint::write_model_dir(dir, runfile::model_config_json(c.model, c.output.dtype), all,
                                source_of(s, plugin::Scope::kWeights), files_beside_model(c, history), files);
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
