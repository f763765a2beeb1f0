// See model_state.hpp. State of a run = weights and moments of the session, Progress, and the settings that
// determine the next bits (run_identity.hpp). Batches and learning rate are functions of these, so nothing
// else is saved.
#include "core/training/model_state.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstdlib>
#include <set>

#include "core/base/checked.hpp"
#include "core/base/text.hpp"
#include "core/checkpoint/safetensors.hpp"
#include "core/checkpoint/tensor_files.hpp"
#include "core/model/adapters.hpp"
#include "core/model/optimizer_state.hpp"
#include "core/planning/host_buffers.hpp"
#include "core/training/run_identity.hpp"

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
    const std::string change = compare_with_identity(run->second, found->meta.step, data_content, c);
    if (!change.empty()) say(change);
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

}  // namespace trainhost::training
