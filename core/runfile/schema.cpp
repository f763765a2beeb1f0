// The schema table and what can be asked of it alone. The defaults here are the built-in run: the one place
// to tune.
#include "core/runfile/schema.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>

#include "core/base/text.hpp"

namespace trainhost::runfile {
namespace {

constexpr double kMany = 1e12, kBig = 2147483647, kTiny = 1e-300, kBelowOne = 1 - 1e-9;

// Of the model's own keys only the first three have a default; the rest come from the built-in model.
// clang-format off
constexpr Key kKeys[] = {
    {"model.config", Type::kPath, "", 0, 0, "", "\"config.json\"", "a Hugging Face config.json; or a preset; or the fields inline"},
    {"model.preset", Type::kText, "", 0, 0, "", "\"llama-3-8b\"", "a built-in model, see `trainhost models`"},
    {"model.weights", Type::kPath, "", 0, 0, "", "\"model.safetensors\"", "where training starts; random from train.seed if left out"},
    {"model.model_type", Type::kText, "", 0, 0, "", "\"llama\"", "llama, mistral, qwen2 or qwen3"},
    {"model.vocab_size", Type::kInteger, "", 1, kBig, "", "256", "tokens in the vocabulary"},
    {"model.hidden_size", Type::kInteger, "", 1, kBig, "", "96", "width of the residual stream"},
    {"model.num_hidden_layers", Type::kInteger, "", 1, 4096, "", "4", "transformer blocks"},
    {"model.num_attention_heads", Type::kInteger, "", 1, kBig, "", "3", "query heads"},
    {"model.num_key_value_heads", Type::kInteger, "", 1, kBig, "", "3", "key and value heads; default: one per query head"},
    {"model.head_dim", Type::kInteger, "", 1, kBig, "", "32", "width of a head; default: hidden_size / num_attention_heads"},
    {"model.intermediate_size", Type::kInteger, "", 1, kBig, "", "256", "width of the gated MLP"},
    {"model.max_position_embeddings", Type::kInteger, "", 1, kBig, "", "2048", "positions that the model is meant for"},
    {"model.tie_word_embeddings", Type::kBool, "", 0, 0, "", "true", "the LM head is the embedding"},
    {"model.attention_bias", Type::kBool, "", 0, 0, "", "false", "biases in the attention projections"},
    {"model.mlp_bias", Type::kBool, "", 0, 0, "", "false", "biases in the MLP"},
    {"model.hidden_act", Type::kText, "", 0, 0, "", "\"silu\"", "activation of the MLP; silu is the one there is"},
    {"model.rms_norm_eps", Type::kNumber, "", kTiny, 1, "", "1e-5", "added under the root of a norm"},
    {"model.rope_theta", Type::kNumber, "", kTiny, 1e300, "", "10000.0", "base of the rotary frequencies"},
    {"model.rope_scaling.rope_type", Type::kText, "", 0, 0, "", "\"llama3\"", "default, linear or llama3"},
    {"model.rope_scaling.factor", Type::kNumber, "", kTiny, 1e9, "", "8.0", "how far positions are stretched"},
    {"model.rope_scaling.low_freq_factor", Type::kNumber, "", kTiny, 1e9, "", "1.0", "llama3: wavelengths above original / low are stretched"},
    {"model.rope_scaling.high_freq_factor", Type::kNumber, "", kTiny, 1e9, "", "4.0", "llama3: those below original / high are kept"},
    {"model.rope_scaling.original_max_position_embeddings", Type::kInteger, "", 1, kBig, "", "8192", "llama3: positions before the stretch"},
    {"model.initializer_range", Type::kNumber, "", 0, 1e3, "", "0.02", "standard deviation of random initial matrices; default: 1/sqrt(hidden_size)"},
    {"model.sliding_window", Type::kInteger, "", 1, kBig, "", "4096", "keys that a query sees, itself included (mistral, qwen2, qwen3)"},
    {"model.use_sliding_window", Type::kBool, "", 0, 0, "", "false", "whether the window is used (qwen2, qwen3)"},
    {"model.max_window_layers", Type::kInteger, "", 0, 65536, "", "28", "the first layers attend to everything (qwen2, qwen3)"},

    {"data.train", Type::kPaths, "", 0, 0, "", "\"input.txt\"", "text, or token ids in a .bin; a file, a list or a glob; default: the built-in text"},
    {"data.valid", Type::kPaths, "", 0, 0, "", "\"valid.txt\"", "held-out text; or valid_fraction"},
    {"data.valid_fraction", Type::kNumber, "0.0", 0, 0.9, "", "", "the last part of the training text, held out"},
    {"data.tokenizer", Type::kText, "\"bytes\"", 0, 0, "", "", "or a SentencePiece .model; not needed for .bin"},
    {"data.order", Type::kChoice, "\"shuffled\"", 0, 0, "shuffled|sequential", "", "shuffled | sequential"},
    {"data.dtype", Type::kChoice, "", 0, 0, "uint16|uint32", "\"uint32\"", "of .bin files; default: uint16, uint32 where vocab_size > 65536"},
    {"data.seq_len", Type::kInteger, "128", 1, 16777216, "", "", "tokens of a training sequence"},

    {"train.backend", Type::kText, "\"auto\"", 0, 0, "", "", "cuda, else cpu; or a plugin's name"},
    {"train.precision", Type::kChoice, "\"fp32\"", 0, 0, "fp32|tf32|bf16|fp16|fp8", "", "fp32 | tf32 | bf16 (mixed: f32 master weights and moments); fp16 and fp8 are planned, not trained"},
    {"train.micro_batch", Type::kInteger, "4", 1, 1048576, "", "", "sequences that go through the model together"},
    {"train.grad_accum", Type::kInteger, "1", 1, 1048576, "", "", "micro-batches of one update"},
    {"train.steps", Type::kInteger, "7000", 1, kMany, "", "", "updates in all"},
    {"train.seed", Type::kInteger, "1337", 0, 9.3e18, "", "", "of the initial weights and the order of the data"},
    {"train.threads", Type::kInteger, "0", 0, 4096, "", "", "CPU threads in all; 0 = every core"},
    {"train.recompute", Type::kChoice, "\"none\"", 0, 0, "none|selective|full|auto", "", "none | selective | full | auto (least recompute that fits)"},
    {"train.recompute_every", Type::kInteger, "1", 1, 65536, "", "", "planned: with recompute = \"full\", layers made again together from one kept input"},
    {"train.eval_every", Type::kInteger, "0", 0, kMany, "", "", "steps between evaluations; 0 = only at the end"},

    {"optimizer.name", Type::kChoice, "\"adamw\"", 0, 0, "adamw|sgd|sgd-momentum|adafactor|lion|muon|adamw-8bit", "", "adamw | sgd | sgd-momentum (its momentum is betas[0]); planned, not trained: adafactor | lion | muon | adamw-8bit"},
    {"optimizer.lr", Type::kNumber, "4e-3", 0, 100, "", "", "learning rate after warm-up"},
    {"optimizer.betas", Type::kPair, "[0.9, 0.98]", 0, kBelowOne, "", "", "decay of the two moments"},
    {"optimizer.eps", Type::kNumber, "1e-8", kTiny, 1, "", "", "added to the root of the second moment"},
    {"optimizer.weight_decay", Type::kNumber, "0.1", 0, 100, "", "", "decoupled; on tensors of two or more dimensions only"},
    {"optimizer.grad_clip", Type::kNumber, "1.0", 0, 1e30, "", "", "global L2 norm over all gradients; 0 = off"},
    {"optimizer.schedule", Type::kChoice, "\"cosine\"", 0, 0, "constant|cosine|linear", "", "constant | cosine | linear, after warm-up"},
    {"optimizer.warmup_steps", Type::kInteger, "", 0, kMany, "", "300", "updates of linear warm-up; default: 300, at most a tenth of train.steps"},
    {"optimizer.min_lr", Type::kNumber, "", 0, 100, "", "4e-5", "where the schedule ends; default: a hundredth of lr"},

    {"memory.device", Type::kText, "", 0, 0, "", "\"h100-80gb\"", "plan for this device, see `trainhost devices`"},
    {"memory.budget", Type::kSize, "", 0, 0, "", "\"24GiB\"", "of the compute tier; default: the device's memory, else what is free"},
    {"memory.host_budget", Type::kSize, "", 0, 0, "", "\"64GiB\"", "of host memory, where it is another tier"},
    {"memory.estimator", Type::kTexts, "\"auto\"", 0, 0, "", "", "auto = by the model's architecture; or a name, a list, or all"},

    {"parallel.data", Type::kInteger, "1", 1, 1048576, "", "", "replicas"},
    {"parallel.tensor", Type::kInteger, "1", 1, 1048576, "", "", "ranks that share each matrix"},
    {"parallel.sequence", Type::kBool, "false", 0, 0, "", "", "between tensor-parallel parts, each rank keeps its share of the tokens"},
    {"parallel.pipeline", Type::kInteger, "1", 1, 1048576, "", "", "ranks that share the layers"},
    {"parallel.interleave", Type::kInteger, "1", 1, 65536, "", "", "chunks of layers a pipeline rank holds; 1 = plain 1F1B"},
    {"parallel.context", Type::kInteger, "1", 1, 1048576, "", "", "ranks that share each sequence"},
    {"parallel.expert", Type::kInteger, "1", 1, 1048576, "", "", "ranks, of the data-parallel ones, that share the experts"},
    {"parallel.zero", Type::kInteger, "0", 0, 3, "", "", "ZeRO stage over data and context ranks; 1 = a distributed optimizer"},
    {"parallel.vocab_multiple", Type::kInteger, "1", 1, 1048576, "", "", "the vocabulary is padded to a multiple of this times tensor"},

    {"plan.mode", Type::kChoice, "\"train\"", 0, 0, "train|inference", "", "train | inference: weights and a KV cache of micro_batch x seq_len tokens"},
    {"plan.weights", Type::kChoice, "", 0, 0, "fp32|bf16|fp16|fp8|int8|int4|nf4", "\"bf16\"", "type of the weights; default: by train.precision"},
    {"plan.gradients", Type::kChoice, "", 0, 0, "fp32|bf16|fp16|fp8", "\"fp32\"", "type of the gradients; default: fp32"},
    {"plan.master", Type::kChoice, "", 0, 0, "none|fp32|bf16", "\"fp32\"", "type of the master weights; default: fp32 beside narrower weights"},
    {"plan.moments", Type::kChoice, "", 0, 0, "fp32|bf16|fp16|fp8", "\"fp32\"", "type of the optimizer's state; default: fp32"},
    {"plan.attention", Type::kChoice, "\"flash\"", 0, 0, "flash|materialised", "", "flash | materialised (the scores are kept)"},
    {"plan.cross_entropy", Type::kChoice, "\"fused\"", 0, 0, "fused|plain|in-place", "", "fused | plain (logits and their gradient stand whole) | in-place (whole once)"},
    {"plan.offload_weights", Type::kChoice, "\"none\"", 0, 0, "none|cpu|nvme", "", "none | cpu | nvme"},
    {"plan.offload_optimizer", Type::kChoice, "\"none\"", 0, 0, "none|cpu|nvme", "", "none | cpu | nvme"},
    {"plan.offload_activations", Type::kChoice, "\"none\"", 0, 0, "none|cpu|nvme", "", "none | cpu | nvme"},
    {"plan.kv_cache", Type::kChoice, "", 0, 0, "fp32|bf16|fp16|fp8|int8|int4", "\"fp8\"", "type of the KV cache; default: as the weights"},
    {"plan.kv_page", Type::kInteger, "1", 1, 65536, "", "", "tokens of a page of the KV cache"},

    {"lora.rank", Type::kInteger, "", 1, 65536, "", "8", "default: 8"},
    {"lora.alpha", Type::kNumber, "", kTiny, 1e6, "", "16.0", "default: 16"},
    {"lora.targets", Type::kTexts, "", 0, 0, "", "[\"q_proj\", \"v_proj\"]", "default: q_proj and v_proj"},
    {"lora.base", Type::kChoice, "", 0, 0, "fp32|bf16|fp16|fp8|int8|nf4", "\"nf4\"", "type of the frozen weights; nf4 is QLoRA; default: by train.precision"},
    {"lora.double_quant", Type::kBool, "", 0, 0, "", "true", "nf4: the block scales are 8-bit too"},
    {"lora.dora", Type::kBool, "", 0, 0, "", "true", "a magnitude vector beside each adapter"},

    {"output.dir", Type::kPath, "", 0, 0, "", "\"runs/builtin\"", "metrics, checkpoints and model/; default: runs/NAME where you are"},
    {"output.checkpoint_every", Type::kInteger, "0", 0, kMany, "", "", "steps between checkpoints; 0 = only when stopped"},
    {"output.keep", Type::kInteger, "2", 1, 1000000, "", "", "checkpoints kept"},

    {"plugins.path", Type::kPaths, "", 0, 0, "", "[\"plugins\"]", "folders searched for plugins before the usual ones"},
    {"plugins.allow", Type::kTexts, "", 0, 0, "", "[\"sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855\"]",
     "with it, of the folders that are not the program's own only files with this content are used (sha256sum prints it)"},
    {"plugins.order", Type::kTexts, "", 0, 0, "", "[\"cuda\", \"cpu\"]", "default: cuda, then cpu; backends that auto tries in turn, and that one of them falls back along"},
};
// clang-format on

constexpr Table kTables[] = {
    {"model", "What is trained. With none of these keys: the built-in model."},
    {"model.rope_scaling", ""},
    {"data", "What it learns from. With data.train left out: the built-in text, by bytes."},
    {"train", "One run."},
    {"optimizer", ""},
    {"memory", "What the plan is held against."},
    {"parallel", "Read by plan, search and the distributed trainers."},
    {"plan",
     "What plan, search and sweep may assume and no trainer here does; training refuses what differs from "
     "the default."},
    {"lora", "With this table only low-rank adapters are trained; without it, everything."},
    {"output", ""},
    {"plugins", ""},
    {"plugin", "One table per plugin, [plugin.NAME], handed to it."},
};

/// What other trainers call our keys.
constexpr std::pair<std::string_view, const char*> kElsewhere[] = {
    {"batch_size", "train.micro_batch"},
    {"per_device_train_batch_size", "train.micro_batch"},
    {"gradient_accumulation_steps", "train.grad_accum"},
    {"max_steps", "train.steps"},
    {"max_iters", "train.steps"},
    {"block_size", "data.seq_len"},
    {"learning_rate", "optimizer.lr"},
    {"lr_scheduler_type", "optimizer.schedule"},
    {"max_grad_norm", "optimizer.grad_clip"},
    {"warmup_iters", "optimizer.warmup_steps"},
    {"eval_interval", "train.eval_every"},
    {"out_dir", "output.dir"},
    {"output_dir", "output.dir"},
    {"save_steps", "output.checkpoint_every"},
    {"n_layer", "model.num_hidden_layers"},
    {"n_head", "model.num_attention_heads"},
    {"n_embd", "model.hidden_size"},
};

const std::vector<std::string>& all_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> out;
    for (const Key& k : kKeys) out.emplace_back(k.name);
    for (const Table& t : kTables) out.emplace_back(t.name);
    return out;
  }();
  return names;
}

std::string_view last_word(std::string_view name) { return name.substr(name.rfind('.') + 1); }
std::string_view table_of(std::string_view name) {
  const auto dot = name.rfind('.');
  return dot == name.npos ? std::string_view() : name.substr(0, dot);
}

}  // namespace

std::span<const Key> schema() { return kKeys; }
std::span<const Table> tables() { return kTables; }

const Key* find_key(std::string_view name) {
  static const std::unordered_map<std::string_view, const Key*> by_name = [] {
    std::unordered_map<std::string_view, const Key*> all;
    for (const Key& key : kKeys) all.emplace(key.name, &key);
    return all;
  }();
  const auto k = by_name.find(name);
  return k == by_name.end() ? nullptr : k->second;
}

bool is_table(std::string_view name) {
  return std::any_of(std::begin(kTables), std::end(kTables), [&](const Table& t) { return name == t.name; });
}

std::string suggest_key(std::string_view name) {
  // First a slip within the table that was meant, then the right word in the wrong table, then anything near.
  std::vector<std::string> siblings, namesakes;
  for (const std::string& n : all_names()) {
    if (table_of(n) == table_of(name)) siblings.push_back(std::string(last_word(n)));
    if (last_word(n) == last_word(name)) namesakes.push_back(n);
  }
  const std::string prefix(name.substr(0, name.size() - last_word(name).size()));
  if (const auto word = nearest(last_word(name), siblings)) return "; did you mean '" + prefix + *word + "'?";
  if (!namesakes.empty()) return "; did you mean '" + namesakes.front() + "'?";
  for (const auto& [word, key] : kElsewhere)
    if (word == last_word(name)) return fmt::format("; did you mean '{}'?", key);
  return did_you_mean(name, all_names());
}

}  // namespace trainhost::runfile
