// The built-in chat templates. Each has the texts of the template that its model's publisher distributes in
// tokenizer_config.json; the comment names the model.
#include <algorithm>

#include "core/base/error.hpp"
#include "core/base/text.hpp"
#include "core/records/chat_template.hpp"

namespace trainhost::records {
namespace {

/// The same texts around the content of every role: "<|im_start|>user\n", ...
void same_turns(ChatTemplate& t, const std::string& before, const std::string& between,
                const std::string& end, const std::string& after, const char* assistant = "assistant") {
  t.system = {before + "system" + between, "", end, after};
  t.user = {before + "user" + between, "", end, after};
  t.assistant = {before + assistant + between, "", end, after};
}

/// SmolLM2, Yi, OpenHermes, Qwen2 and Qwen2.5; the last three differ in the default system message only.
ChatTemplate chatml(std::string name, std::string default_system = "") {
  ChatTemplate t;
  t.name = std::move(name);
  same_turns(t, "<|im_start|>", "\n", "<|im_end|>", "\n");
  t.default_system = std::move(default_system);
  t.special = {"<|im_start|>", "<|im_end|>", "<|endoftext|>", "<s>", "<bos>"};
  return t;
}

ChatTemplate qwen3() {
  ChatTemplate t = chatml("qwen3");
  t.think = true;
  t.special.insert(t.special.end(), {"<think>", "</think>"});
  return t;
}

/// Llama-2-7b-chat-hf. No space before the content of the assistant can be a token of its own: the whole
/// answer is tokenized in one piece.
ChatTemplate llama2() {
  ChatTemplate t;
  t.name = "llama-2", t.start = "<s>", t.starts_every_user = true;
  t.placement = SystemPlacement::kFirstUser;
  t.system_before = "<<SYS>>\n", t.system_after = "\n<</SYS>>\n\n";
  t.user = {"[INST] ", "", " [/INST]", ""};
  t.assistant = {"", " ", " </s>", ""};
  t.trim = t.trim_assistant = true;
  t.special = {"<s>", "</s>"};
  return t;
}

/// Meta-Llama-3-8B-Instruct.
ChatTemplate llama3() {
  ChatTemplate t;
  t.name = "llama-3", t.start = "<|begin_of_text|>";
  same_turns(t, "<|start_header_id|>", "<|end_header_id|>\n\n", "<|eot_id|>", "");
  t.trim = t.trim_assistant = true;
  t.special = {"<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"};
  return t;
}

/// Llama-3.1-8B-Instruct and Llama-3.2 without tools. The date is the template's own default, so that the
/// data do not depend on the day on which they are read.
ChatTemplate llama31() {
  ChatTemplate t = llama3();
  t.name = "llama-3.1", t.always_system = true;
  t.system_prefix = "Cutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\n";
  return t;
}

/// Mistral-7B-Instruct-v0.1 and v0.2 as first published; no system messages.
ChatTemplate mistral() {
  ChatTemplate t;
  t.name = "mistral", t.start = "<s>", t.placement = SystemPlacement::kRefused;
  t.user = {"[INST] ", "", " [/INST]", ""};
  t.assistant = {"", "", "</s>", ""};
  t.system_after = "\n\n";
  t.special = {"<s>", "</s>", "[INST]", "[/INST]"};
  return t;
}

/// Mistral-7B-Instruct-v0.3, where [INST] is a token.
ChatTemplate mistral_v3() {
  ChatTemplate t = mistral();
  t.name = "mistral-v3", t.placement = SystemPlacement::kLastUser;
  t.user.end = "[/INST]", t.assistant.lead = " ", t.trim_assistant = true;
  return t;
}

/// Mistral-Nemo-Instruct-2407: no spaces.
ChatTemplate mistral_nemo() {
  ChatTemplate t = mistral_v3();
  t.name = "mistral-nemo", t.user.before = "[INST]", t.assistant.lead = "", t.trim_assistant = false;
  return t;
}

/// gemma-2b-it and gemma-2-2b-it.
ChatTemplate gemma() {
  ChatTemplate t;
  t.name = "gemma", t.start = "<bos>", t.placement = SystemPlacement::kRefused;
  same_turns(t, "<start_of_turn>", "\n", "<end_of_turn>", "\n", "model");
  t.trim = t.trim_assistant = true;
  t.special = {"<bos>", "<start_of_turn>", "<end_of_turn>"};
  return t;
}

/// gemma-3-1b-it.
ChatTemplate gemma3() {
  ChatTemplate t = gemma();
  t.name = "gemma-3", t.placement = SystemPlacement::kFirstUser, t.system_after = "\n\n";
  return t;
}

/// Phi-3-mini-4k-instruct and Phi-3.5-mini-instruct.
ChatTemplate phi3() {
  ChatTemplate t;
  t.name = "phi-3", t.end = "<|endoftext|>";
  same_turns(t, "<|", "|>\n", "<|end|>", "\n");
  t.special = {"<|system|>", "<|user|>", "<|assistant|>", "<|end|>", "<|endoftext|>", "<s>"};
  return t;
}

/// phi-4.
ChatTemplate phi4() {
  ChatTemplate t;
  t.name = "phi-4";
  same_turns(t, "<|im_start|>", "<|im_sep|>", "<|im_end|>", "");
  t.special = {"<|im_start|>", "<|im_sep|>", "<|im_end|>"};
  return t;
}

/// Phi-4-mini-instruct.
ChatTemplate phi4_mini() {
  ChatTemplate t = phi3();
  t.name = "phi-4-mini";
  same_turns(t, "<|", "|>", "<|end|>", "");
  return t;
}

/// zephyr-7b-beta and TinyLlama-1.1B-Chat: only </s> is a token.
ChatTemplate zephyr() {
  ChatTemplate t;
  t.name = "zephyr";
  same_turns(t, "<|", "|>\n", "</s>", "\n");
  t.special = {"</s>"};
  return t;
}

/// Stanford Alpaca; a second question follows the end of the first answer.
ChatTemplate alpaca() {
  ChatTemplate t;
  t.name = "alpaca";
  t.default_system =
      "Below is an instruction that describes a task. Write a response that appropriately completes the "
      "request.";
  t.input_system =
      "Below is an instruction that describes a task, paired with an input that provides further context. "
      "Write a "
      "response that appropriately completes the request.";
  t.input_before = "\n\n### Input:\n";
  t.user = {"\n\n### Instruction:\n", "", "", ""};
  t.assistant = {"\n\n### Response:\n", "", "</s>", ""};
  t.special = {"</s>"};
  return t;
}

const std::vector<ChatTemplate>& built_in() {
  static const std::vector<ChatTemplate> kTemplates = {
      alpaca(),
      chatml("chatml"),
      gemma(),
      gemma3(),
      llama2(),
      llama3(),
      llama31(),
      mistral(),
      mistral_nemo(),
      mistral_v3(),
      phi3(),
      phi4(),
      phi4_mini(),
      chatml("qwen2", "You are a helpful assistant."),
      chatml("qwen2.5", "You are Qwen, created by Alibaba Cloud. You are a helpful assistant."),
      qwen3(),
      chatml("smollm2", "You are a helpful AI assistant named SmolLM, trained by Hugging Face"),
      zephyr()};
  return kTemplates;
}

void add(std::string& all, const std::string& text) { all += std::to_string(text.size()) + ":" + text; }

}  // namespace

std::string fingerprint(const ChatTemplate& t) {
  std::string all;
  for (const std::string* text : {&t.name, &t.start, &t.end, &t.system_before, &t.system_after,
                                  &t.system_prefix, &t.default_system, &t.input_system, &t.input_before})
    add(all, *text);
  for (const TurnFormat* f : {&t.system, &t.user, &t.assistant})
    for (const std::string* text : {&f->before, &f->lead, &f->end, &f->after}) add(all, *text);
  for (const std::string& text : t.special) add(all, text);
  for (const int n : {static_cast<int>(t.placement), int{t.always_system}, int{t.starts_every_user},
                      int{t.trim}, int{t.trim_assistant}, int{t.think}})
    all += std::to_string(n);
  return all;
}

std::vector<std::string> chat_template_names() {
  std::vector<std::string> names;
  for (const ChatTemplate& t : built_in()) names.push_back(t.name);
  return names;
}

ChatTemplate chat_template(std::string_view name) {
  std::string all;
  for (const ChatTemplate& t : built_in()) {
    if (t.name == name) return t;
    all += (all.empty() ? "" : ", ") + t.name;
  }
  throw usage_error("chat template '" + escaped(name, 60) + "' is unknown; built in are " + all +
                    did_you_mean(name, chat_template_names()));
}

}  // namespace trainhost::records
