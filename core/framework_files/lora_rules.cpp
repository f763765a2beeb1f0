// Names of LoRA: the matrices that get an adapter, in lists, regular expressions and the names of other
// families, and the modules that are trained whole.
#include <algorithm>
#include <string>
#include <vector>

#include "core/framework_files/rules.hpp"

namespace trainhost::framework_files {
namespace {

using runfile::Entry;
using runfile::Value;

/// The matrices that a regular expression of peft names: "model.layers.*(mlp|self_attn).(up|down|q)_proj".
std::vector<std::string> matrices_in(const std::string& expression) {
  std::vector<std::string> out;
  constexpr std::string_view kEnd = "_proj";
  const auto is_letter = [](char c) { return c >= 'a' && c <= 'z'; };
  for (std::size_t at = expression.find(kEnd); at != expression.npos; at = expression.find(kEnd, at + 1)) {
    // "(up|down|q)_proj" has its words in parentheses before the end; "q_proj" before it.
    std::size_t begin = at;
    if (at > 0 && expression[at - 1] == ')') {
      begin = expression.rfind('(', at);
      begin = begin == expression.npos ? at : begin + 1;
    } else {
      while (begin > 0 && is_letter(expression[begin - 1])) --begin;
    }
    std::string word;
    for (std::size_t i = begin; i <= at; ++i) {
      if (i < at && is_letter(expression[i])) {
        word += expression[i];
        continue;
      }
      if (!word.empty()) out.push_back(word + std::string(kEnd));
      word.clear();
    }
  }
  return out;
}

/// Matrices of families with other names: GPT-2, GPT-NeoX, Falcon, MPT, Phi, OPT, InternLM2, Baichuan,
/// Mixtral, Megatron Core. A matrix that stands for several of a run file has one adapter for them together.
constexpr struct {
  const char *theirs, *ours;  // separated by spaces
} kMatrices[] = {{"c_attn", "q_proj k_proj v_proj"},
                 {"query_key_value", "q_proj k_proj v_proj"},
                 {"qkv_proj", "q_proj k_proj v_proj"},
                 {"Wqkv", "q_proj k_proj v_proj"},
                 {"wqkv", "q_proj k_proj v_proj"},
                 {"W_pack", "q_proj k_proj v_proj"},
                 {"linear_qkv", "q_proj k_proj v_proj"},
                 {"linear_proj", "o_proj"},
                 {"linear_fc1", "gate_proj up_proj"},
                 {"linear_fc2", "down_proj"},
                 {"dense", "o_proj"},
                 {"wo", "o_proj"},
                 {"c_proj", "o_proj down_proj"},
                 {"gate_up_proj", "gate_proj up_proj"},
                 {"c_fc", "up_proj"},
                 {"fc1", "up_proj"},
                 {"dense_h_to_4h", "up_proj"},
                 {"fc2", "down_proj"},
                 {"dense_4h_to_h", "down_proj"},
                 {"w1", "gate_proj"},
                 {"w3", "up_proj"},
                 {"w2", "down_proj"}};
/// Matrices of layers with state spaces or linear attention, of routers and of projections of images.
constexpr std::string_view kOtherMatrices[] = {"in_proj", "in_proj_a", "in_proj_b", "in_proj_ba",
                                               "in_proj_qkv", "in_proj_qkvz", "in_proj_z", "x_proj",
                                               "dt_proj", "shared_expert_gate", "router", "linear_1",
                                               "linear_2", "proj", "all-router", "all-embedding", "eh_proj",
                                               // of encoders of audio
                                               "post", "linear_start", "linear_end", "embedding_projection",
                                               "ffw_layer_1", "ffw_layer_2", "output_proj"};

/// Names as in run files: without the modules above a matrix, and those of a regular expression. `others`:
/// names that run files have no matrix for.
std::vector<std::string> lora_matrices(const Entry& e, std::string& others) {
  std::vector<std::string> out;
  const auto add_one = [&](const std::string& name) {
    if (std::ranges::find(out, name) == out.end()) out.push_back(name);
  };
  const auto add = [&](const std::string& name) {
    if (std::ranges::find(kOtherMatrices, name) != std::end(kOtherMatrices)) {
      others += (others.empty() ? "" : ", ") + name;
      return;
    }
    const auto known = std::ranges::find_if(kMatrices, [&](const auto& m) { return name == m.theirs; });
    std::string_view ours = known == std::end(kMatrices) ? std::string_view(name) : known->ours;
    for (std::size_t end; !ours.empty(); ours.remove_prefix(std::min(end + 1, ours.size()))) {
      end = std::min(ours.find(' '), ours.size());
      add_one(std::string(ours.substr(0, end)));
    }
  };
  // peft reads a text as a regular expression over full names, a list as names.
  const bool one = e.value.kind == Value::Kind::kText;
  if (one && e.value.text.find_first_of("\\(|*") != std::string::npos) {
    for (const std::string& name : matrices_in(e.value.text)) add(name);
    if (out.empty())
      reject_value(e, "a list of matrices; this regular expression names none that can be planned");
    return out;
  }
  for (const std::string& name : texts_of(e)) {
    // Targets of run files are matrices of all MLPs, experts included.
    if (const std::size_t dot = name.rfind('.'); dot != name.npos && name.find("shared_expert") < dot)
      others += (others.empty() ? "" : ", ") + name;
    else
      add(name.substr(name.rfind('.') + 1));
  }
  // That of attention in OPT and Phi; beside o_proj the one of a state space.
  if (const auto output = std::ranges::find(out, "out_proj"); output != out.end()) {
    const bool other = std::ranges::find(out, "o_proj") != out.end();
    out.erase(output);
    if (!other) add_one("o_proj");
    if (other) others += (others.empty() ? "" : ", ") + std::string("out_proj");
  }
  return out;
}

}  // namespace

void drop_unused_double_quantization(Job& job) {
  const Given* base = job.find("lora.base");
  if (!base || base->value != "nf4") job.erase("lora.double_quant");
}

void set_lora_targets(Job& job, const Entry& from) {
  std::string list, others;
  for (const std::string& name : lora_matrices(from, others))
    list += (list.empty() ? "[\"" : ", \"") + name + "\"";
  if (!list.empty()) job.set("lora.targets", list + "]", from);
  if (others.empty()) return;
  job.not_modelled = "adapters of other matrices than those of attention and MLP are not planned: " + others;
  job.needs_more = true;
}

void set_modules_to_save(Job& job, const Entry& from) {
  // Names of the same two modules in other families: GPT-2, Pythia, Falcon.
  constexpr const char *kEmbeddings[] = {"embed_tokens", "wte", "embed_in", "word_embeddings"},
                       *kHeads[] = {"lm_head", "embed_out"};
  bool head = false, embedding = false;
  std::string others;
  for (const std::string& module : texts_of(from)) {
    const std::string name = module.substr(module.rfind('.') + 1);
    if (std::ranges::count(kHeads, name))
      head = true;
    else if (std::ranges::count(kEmbeddings, name))
      embedding = true;
    else
      others += (others.empty() ? "" : ", ") + name;
  }
  if (head || embedding)
    job.set("lora.modules_to_save",
            head && embedding ? R"(["embed_tokens", "lm_head"])"
            : head            ? R"(["lm_head"])"
                              : R"(["embed_tokens"])",
            from);
  if (others.empty()) return;
  job.not_modelled = "of modules that are trained whole, embed_tokens and lm_head are planned, not " + others;
  job.needs_more = true;
}

}  // namespace trainhost::framework_files
