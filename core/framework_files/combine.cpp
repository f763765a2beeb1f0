// See combine.hpp.
#include "core/framework_files/combine.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <optional>

#include "core/base/checked.hpp"
#include "core/base/text.hpp"
#include "core/framework_files/file_kinds.hpp"
#include "core/model/architecture.hpp"
#include "core/model/framework_release.hpp"
#include "core/model/model_names.hpp"
#include "core/runfile/named_values.hpp"
#include "core/runfile/paths.hpp"

namespace fs = std::filesystem;

namespace trainhost::framework_files {
namespace {

/// The job after all files were read.
class Finish {
 public:
  explicit Finish(Job& job) : job_(job) {}

  /// The Trainer and axolotl refuse both.
  void one_kind_of_sharding() const {
    const Given* fsdp = job_.find(kSharded);
    if (fsdp && job_.framework == "deepspeed")
      throw usage_error(
          fmt::format("{} shards the run with FSDP, but the files also configure DeepSpeed", fsdp->key),
          "remove one of the two", fsdp->where);
  }

  void devices() {
    // Devices = tensor x pipeline x context x data-parallel ranks.
    const std::uint64_t model_ranks =
        number("parallel.tensor", 1) * number("parallel.pipeline", 1) * number("parallel.context", 1);
    if (const Given* all = job_.find(kRanks); all && !job_.find("parallel.data"))
      set_data(count_of(*all), model_ranks, *all);
    if (const Given* per_node = job_.find(kPerNode); per_node && !job_.find("parallel.data"))
      set_data(count_of(*per_node) * number(kNodes, 1), model_ranks, *per_node);
    // Needs the data-parallel ranks, and may find them.
    accumulation();
    // What a framework does only where there are several ranks: torchtune and litgpt shard then.
    const bool many = number("parallel.data", 1) > 1;
    if (const Given* g = job_.find(kReentrantAlone))
      job_.set_default("plan.checkpoint_reentrant",
                       many && job_.framework == "transformers" && !shards() ? "false" : "true", *g);
    if (const Given* g = job_.find(kZeroOfMany); g && many) job_.set_default("parallel.zero", g->value, *g);
    if (const Given* g = job_.find(kRecomputeOfMany); g && many)
      job_.set_default("train.recompute", g->value, *g);
    const Given* zero = job_.find("parallel.zero");
    // Nothing to shard over, but FSDP2 and DeepSpeed work in the same way on one rank. Weights in 8 bits are
    // a matter of the distributed optimizer, also on one rank.
    const bool alone_too =
        job_.framework == "deepspeed" ||
        ((job_.framework == "transformers" || job_.framework == "llama-factory") && !is_flat());
    if (zero && !alone_too && zero->by_default && zero->value != "0" && job_.find("parallel.data") && !many &&
        number("parallel.context", 1) == 1 && !job_.find("plan.fp8_weights"))
      return job_.erase("parallel.zero");
    // Sharded memory per rank depends on the number of ranks: a guess would be wrong by its factor.
    // A stage that there is none of is an error of the run file.
    if (zero && (zero->value == "1" || zero->value == "2" || zero->value == "3") &&
        !job_.find("parallel.data"))
      ask(fmt::format("{}: parallel.zero = {} shards over data-parallel ranks, but no file says "
                      "how many devices there are",
                      zero->key, zero->value),
          "for example --set parallel.data=8", zero->where);
    // Experts are divided over data- and tensor-parallel ranks.
    const Given* expert = job_.find("parallel.expert");
    if (expert && !job_.is_option("parallel.expert") && !job_.find("parallel.data") &&
        count_of(*expert) > number("parallel.context", 1) * number("parallel.tensor", 1))
      ask(fmt::format(
              "{}: parallel.expert = {} divides experts over ranks, but no file says how many devices "
              "there are",
              expert->key, expert->value),
          fmt::format("for example --set parallel.data={}", expert->value), expert->where);
  }

  /// The preset or the config.json of what the files name.
  void model() {
    // First the command line, then a config.json, then the name in a file, then fields of the model in a file
    // (Megatron-LM).
    const Given *named = job_.find(kModel), *config = job_.find(kConfigFile);
    const bool option = job_.is_option("model.preset") || job_.is_option("model.config");
    if (option || config)
      job_.erase_if([&](const std::string& key) {  // the model of the files does not count
        return key.starts_with("model.") && !job_.is_option(key);
      });
    if (option) {
      if (const Given* preset = job_.find("model.preset")) set_stored_type(*preset);
    } else if (config) {
      job_.set_default("model.config", config->value, *config);
      if (named) set_stored_type(*named);
    } else if (named) {
      set_model(*named);
    } else if (const Given* other = job_.find(kOtherModel)) {
      throw usage_error(
          fmt::format("{} describes a model that run files have no fields for", other->key),
          "add --model=config.json with the model's file, or --model=PRESET of `trainhost models`",
          other->where);
    } else if (job_.find("model.hidden_size") || job_.find("model.config")) {
      if (!job_.find("model.vocab_size"))
        ask("no file gives the size of the vocabulary, which the tokenizer decides",
            "add it, for example --set model.vocab_size=128256");
    } else {
      ask("no file names a known model", "add --model=PRESET or --model=config.json");
    }
    job_.erase(kModel), job_.erase(kConfigFile);
    linear_layers();
    experts();
  }

  /// Kernels of axolotl for adapters, and the allocator that a launcher sets, are replayed for their
  /// framework; under DeepSpeed the framework is another one.
  void under_deepspeed() {
    if (job_.framework != "deepspeed") return;
    // Its loop is planned with the newest modules.
    if (const Given* release = job_.find("plan.framework_version");
        release && !job_.is_option("plan.framework_version")) {
      for (runfile::FileKey& k : job_.keys)
        if (k.key == release->key && k.where.line == release->where.line)
          k.use = runfile::KeyUse::kNotModelled, k.note = "planned is transformers 5";
      job_.erase("plan.framework_version");
    }
    if (const Given* kernels = job_.find("plan.adapter_kernels");
        kernels && !job_.is_option("plan.adapter_kernels")) {
      if (kernels->value != "none")
        for (runfile::FileKey& k : job_.keys)
          if (k.key == kernels->key && k.where.line == kernels->where.line)
            k.use = runfile::KeyUse::kNotModelled, k.note = "kernels that keep fewer activations";
      job_.erase("plan.adapter_kernels");
    }
    const Given *launcher = job_.find(kAllocatorOfRanks), *own = job_.find(kAllocatorOfFramework);
    if (own) job_.set_default("plan.allocator", own->value, *own);
    if (launcher && number("parallel.data", 1) > 1)
      job_.set_default("plan.allocator", launcher->value, *launcher);
  }

  /// Paged moments need no device memory where they are replayed: AdamW of the Trainer without sharding.
  void paged_moments() {
    const Given* paged = job_.find(kPaged);
    if (!paged) return;
    const Given from = *paged;
    const Given* zero = job_.find("parallel.zero");
    const bool sharded = zero && zero->value != "0";
    const std::string& f = job_.framework;
    const Given* optimizer = job_.find("optimizer.name");
    if (!optimizer || !optimizer->value.starts_with("adamw")) return;
    if (!sharded && (f == "transformers" || f == "axolotl" || f == "llama-factory"))
      return job_.set_default("plan.optimizer_paged", "true", from);
    job_.keys.push_back({from.key, "paged", from.where, runfile::KeyUse::kNotModelled,
                         "moments that the driver moves to host memory where the device is full"});
  }

  /// Settings of FSDP1 count in its version alone.
  void flat_parameters() {
    if (is_flat())
      for (const char* name : {"backward_prefetch", "forward_prefetch", "use_orig_params"})
        if (const Given* given = job_.find(std::string("@flat.") + name))
          job_.set_default(std::string("plan.") + name, given->value, Given(*given));
    job_.erase_if([](const std::string& key) { return key.starts_with("@flat."); });
  }

  void sequence() {
    if (!job_.find("data.seq_len"))
      ask("no file gives the length of the sequences",
          "add it, for example --set data.seq_len=2048: the number of tokens of one training sequence");
  }

 private:
  /// FSDP1, if the run has FSDP.
  bool is_flat() const {
    const Given *chosen = job_.find("plan.fsdp_version"), *release = job_.find("plan.framework_version");
    const auto version =
        chosen ? std::optional<std::int64_t>(chosen->value == "1" ? 1 : 2) : std::optional<std::int64_t>();
    return has_flat_parameters(job_.framework, release ? release->value : "", version);
  }

  bool shards() const {
    const Given* zero = job_.find("parallel.zero");
    return zero && zero->value != "0";
  }

  bool knows_devices() const {
    return job_.find("parallel.data") || job_.find(kRanks) || job_.find(kPerNode);
  }

  std::uint64_t number(const char* key, std::uint64_t otherwise) const {
    const Given* g = job_.find(key);
    return g ? count_of(*g) : otherwise;
  }

  /// Throws the error for a key that a file leaves to another one ("auto"), where none gives it.
  void ask_left_open(const std::string& run_key, const std::string& example) const {
    const auto open = job_.left_open.find(run_key);
    if (open == job_.left_open.end()) return;
    const Given& g = open->second;
    ask(fmt::format("{} = \"auto\", and no other file gives its value", g.key),
        fmt::format("give the file with the arguments of the Trainer too, or --set {}={}", run_key, example),
        g.where);
  }

  /// Throws the error for a value that no file gives, with the options for further ones that none gives.
  [[noreturn]] void ask(const std::string& what, std::string option, const Where& where = {}) const {
    std::string more;
    const auto add = [&](bool missing, const std::string& setting) {
      if (missing && option.find(setting.substr(0, setting.find('='))) == option.npos)
        more += (more.empty() ? "" : " ") + setting;
    };
    add(!job_.find("data.seq_len"), "--set data.seq_len=2048");
    add(!job_.find("train.micro_batch") && !divides_global_batch(), "--set train.micro_batch=1");
    add((shards() || number("parallel.expert", 1) > 1) && !knows_devices(), "--set parallel.data=8");
    if (!more.empty()) option += "; also needed: " + more;
    throw usage_error(what, option, where);
  }

  /// The model, where a name or a file gives it.
  std::optional<ModelSpec> known_model() const {
    const Given *preset = job_.find("model.preset"), *config = job_.find("model.config");
    const ModelSpec* named = preset ? runfile::find_preset(preset->value) : nullptr;
    if (named) return *named;
    std::error_code ec;
    if (!config || !fs::is_regular_file(config->value, ec)) return std::nullopt;
    return runfile::read_model_config(config->value, true);
  }

  /// The tensor-parallel ranks of the experts, where they are not those of the run.
  void experts() {
    if (const Given* own = job_.find(kExpertTensor); own && count_of(*own) != number("parallel.tensor", 1))
      job_.set_default("plan.expert_tensor", own->value, *own);
  }

  /// transformers 5 keeps the experts of a layer in two parameters, which are no linear layers. Where no MLP
  /// of a dense layer or shared expert has matrices of the same names, attention alone has adapters.
  void linear_layers() {
    const Given *listed = job_.find(kLinearLayers), *targets = job_.find("lora.targets");
    if (!listed || !targets || job_.is_option("lora.targets")) return;
    const std::optional<ModelSpec> model = known_model();
    if (!model || !model::known_family(model->family)) return;
    const model::Architecture a = model::from_model(*model);
    if (!std::ranges::all_of(a.layers, [](const model::LayerRun& run) {
          return run.layer.experts.count && !run.layer.experts.shared.width && !run.layer.mlp.width;
        }))
      return;
    const Given from = *targets;
    job_.erase("lora.targets");
    job_.set_default("lora.targets", R"(["q_proj", "k_proj", "v_proj", "o_proj"])", from);
  }

  void set_data(std::uint64_t devices, std::uint64_t model_ranks, const Given& from) {
    if (devices % model_ranks)
      throw usage_error(
          fmt::format("{} devices cannot be divided into groups of {}: tensor x pipeline x context "
                      "parallelism",
                      devices, model_ranks),
          fmt::format("plan more of them: --devices={}", (devices / model_ranks + 1) * model_ranks),
          from.where);
    job_.set_default("parallel.data", std::to_string(devices / model_ranks), from);
  }

  /// Sequences per optimizer step = micro-batch x accumulated micro-batches x data-parallel ranks.
  void accumulation() {
    const Given* global = job_.find(kGlobalBatch);
    if (!job_.find("train.micro_batch")) micro_batch(global);
    const Given* micro = job_.find("train.micro_batch");
    if (const Given* least = job_.find(kLeastBatch); least && !global) {
      const std::uint64_t each =
          checked_mul(count_of(*micro), number("parallel.data", 1) * number("parallel.tensor", 1) *
                                            number("parallel.pipeline", 1) * number("parallel.context", 1));
      job_.set_default("train.grad_accum", std::to_string((count_of(*least) - 1) / each + 1), *least);
    }
    if (!global) return;
    const Given *accumulated = job_.find("train.grad_accum"), *data = job_.find("parallel.data");
    const std::uint64_t sequences = count_of(*global), per_step = count_of(*micro);
    // Two of the three factors give the third; with all of them the product is checked.
    if (accumulated && data) {
      if (sequences != per_step * count_of(*accumulated) * count_of(*data))
        throw usage_error(
            fmt::format("{} = {}, but {} sequences x {} accumulated x {} data-parallel ranks are {}",
                        global->key, sequences, per_step, count_of(*accumulated), count_of(*data),
                        per_step * count_of(*accumulated) * count_of(*data)),
            "make both equal, or remove one of them", global->where);
      return;
    }
    // Without accumulation and devices: one rank, the rest is accumulated.
    const std::uint64_t known_part = per_step * (accumulated ? count_of(*accumulated)
                                                 : data      ? count_of(*data)
                                                             : 1);
    if (sequences % known_part && !(job_.find(kRoundBatch) && sequences >= known_part))
      reject_batch(*global, sequences, per_step, accumulated, data);
    job_.set_default(accumulated ? "parallel.data" : "train.grad_accum",
                     std::to_string(sequences / known_part), *global);
  }

  /// A global batch that its known factors do not divide.
  [[noreturn]] static void reject_batch(const Given& global, std::uint64_t sequences,
                                        std::uint64_t micro_batch, const Given* accumulated,
                                        const Given* data) {
    const std::uint64_t other = accumulated ? count_of(*accumulated) : data ? count_of(*data) : 1;
    const std::string factor = accumulated ? "accumulated micro-batches" : "data-parallel ranks";
    std::string fewer;  // as many ranks as the sequences allow
    if (!accumulated && data && sequences % micro_batch == 0)
      for (std::uint64_t n = std::min(other, sequences / micro_batch); n > 0; --n)
        if (sequences / micro_batch % n == 0) {
          fewer = fmt::format("plan fewer ranks: --set parallel.data={}; or ", n);
          break;
        }
    throw usage_error(
        fmt::format("{} = {} is no multiple of {}{}", global.key, sequences, micro_batch * other,
                    other > 1 ? fmt::format(": {} per micro-batch x {} {}", micro_batch, other, factor)
                              : std::string(" per micro-batch")),
        fmt::format("{}change {}", fewer, global.key), global.where);
  }

  /// DeepSpeed divides the global batch where the micro-batch is left open; any other file must give it.
  bool divides_global_batch() const {
    const Given* global = job_.find(kGlobalBatch);
    return global && global->key == "train_batch_size";
  }

  void micro_batch(const Given* global) {
    const std::uint64_t ranks = number("parallel.data", 0) * number("train.grad_accum", 1);
    if (!divides_global_batch() || ranks == 0 || count_of(*global) % ranks) {
      ask_left_open("train.micro_batch", "1");
      ask("no file gives the number of sequences per micro-batch",
          "add it, for example --set train.micro_batch=1");
    }
    job_.set_default("train.micro_batch", std::to_string(count_of(*global) / ranks), *global);
  }

  [[noreturn]] void reject_model(const Given& named) const {
    const std::string near = preset_in(named.value);
    ask(fmt::format("{} = {}: neither a built-in model nor a folder with a config.json", named.key,
                    escaped(named.value, 80)),
        near.empty()
            ? "add --model=config.json with the model's file, or --model=PRESET with a similar model of "
              "`trainhost models`"
            : fmt::format("add --model=config.json with the model's file, or --model={} if it has the "
                          "sizes of that one",
                          near),
        named.where);
  }

  void set_model(const Given& named) {
    std::error_code ec;
    // A path that exists wins over a preset of that name.
    const fs::path path = runfile::resolve_path(named.value, fs::current_path());
    const bool file = fs::is_regular_file(path, ec), folder = fs::is_regular_file(path / "config.json", ec);
    std::string preset = file || folder ? "" : preset_of(named.value);
    if (const std::string text = preset.empty() && !file && !folder ? text_model_of(named.value) : "";
        !text.empty()) {
      preset = text;
      job_.keys.push_back(
          {named.key, named.value, named.where, runfile::KeyUse::kNotModelled,
           "its vision encoder is left out, and the tokens of an image count as tokens of text; planned as " +
               text,
           true});
    }
    if (!file && !folder && preset.empty()) reject_model(named);
    job_.set_default(preset.empty() ? "model.config" : "model.preset",
                     preset.empty() ? path.string() : preset, named);
    set_stored_type(named);
  }

  /// Models of the Hub whose name ends so are stored in NF4 of bitsandbytes, with doubly quantized scales:
  /// adapters are trained over it, whatever the file says about the type of the base.
  void set_stored_type(const Given& named) {
    const Given from = named;
    const Given* base = job_.find("lora.base");
    if (!is_stored_in_nf4(from.value) || !job_.find("lora.rank")) return;
    if (base && job_.is_option("lora.base")) return;
    if (const std::string_view note = note_on_stored_type(from.value); !note.empty())
      job_.keys.push_back(
          {from.key, from.value, from.where, runfile::KeyUse::kNotModelled, std::string(note), true});
    if (base && base->value == "nf4") return;
    job_.erase("lora.base");
    job_.set_default("lora.base", "nf4", from);
    job_.set_default("lora.double_quant", "true", from);
  }

  Job& job_;
};

}  // namespace

void combine(Job& job) {
  Finish finish(job);
  finish.one_kind_of_sharding();
  finish.model();
  finish.sequence();
  finish.devices();
  finish.flat_parameters();
  finish.paged_moments();
  finish.under_deepspeed();
}

}  // namespace trainhost::framework_files
