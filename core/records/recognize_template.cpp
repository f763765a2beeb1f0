// See recognize_template.hpp. A false match would train on wrong texts without any visible sign, so a
// template is recognized only if it has all texts of a built-in one and no other special token.
#include "core/records/recognize_template.hpp"

#include <algorithm>
#include <array>
#include <initializer_list>
#include <optional>

#include "core/base/error.hpp"
#include "core/base/text.hpp"

namespace trainhost::records {
namespace {

/// Jinja text in which only differences of meaning remain: one kind of quotation mark, no white space
/// control, no concatenation of two literals. A line feed is a backslash and an n, as most literals write it.
std::string normalized(std::string_view jinja) {
  std::string text;
  for (char c : jinja)
    if (c == '\n')
      text += "\\n";
    else
      text += c == '"' ? '\'' : c;
  const auto replace = [&](std::string_view from, std::string_view to) {
    for (std::size_t at = 0; (at = text.find(from, at)) != text.npos; at += to.size())
      text.replace(at, from.size(), to);
  };
  replace("{%-", "{%"), replace("-%}", "%}"), replace("{{-", "{{"), replace("-}}", "}}");
  replace("{{ ", "{{"), replace(" }}", "}}");
  replace("' + '", ""), replace("'+'", ""), replace("' ~ '", "");
  return text;
}

class Jinja {
 public:
  explicit Jinja(std::string_view jinja) : text_(normalized(jinja)) {}

  bool has(std::string_view part) const { return text_.find(part) != text_.npos; }
  bool has_all(std::initializer_list<std::string_view> parts) const {
    return std::all_of(parts.begin(), parts.end(), [&](std::string_view p) { return has(p); });
  }
  bool has_any(std::initializer_list<std::string_view> parts) const {
    return std::any_of(parts.begin(), parts.end(), [&](std::string_view p) { return has(p); });
  }
  bool trims() const { return has_any({"| trim", "|trim", ".strip()"}); }
  bool starts_with_bos() const { return has_any({"{{bos_token", "bos_token + "}); }

  /// The text of a literal between `before` and `after`; "" if there is none.
  std::string literal(std::string_view before, std::string_view after) const {
    for (std::size_t at = 0; (at = text_.find(before, at)) != text_.npos;) {
      at += before.size();
      const std::size_t end = text_.find(after, at);
      if (end == text_.npos) return "";
      const std::string found = text_.substr(at, end - at);
      if (!found.empty() && found.find('\'') == found.npos && found.find('\\') == found.npos) return found;
    }
    return "";
  }

  /// The first "<|...|>" or "[NAME]" that is not one of `known` and does not belong to tool calls.
  std::optional<std::string> unknown_token(const std::vector<std::string>& known) const {
    static constexpr std::array<std::string_view, 11> kOfTools = {
        "<|python_tag|>", "<|eom_id|>",     "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]",
        "[TOOL_CALLS]",   "[TOOL_RESULTS]", "[/TOOL_RESULTS]",   "<|tool|>",
        "<|/tool|>",      "<|tool_call|>",  "<|/tool_call|>"};
    for (const auto& [open, close] : {std::pair{"<|", "|>"}, std::pair{"[", "]"}})
      for (std::size_t at = 0; (at = text_.find(open, at)) != text_.npos; ++at) {
        const std::size_t end = text_.find(close, at);
        if (end == text_.npos) break;
        const std::string token = text_.substr(at, end + std::string_view(close).size() - at);
        const bool is_name =
            *open == '<'
                ? token.find_first_of(" '\n") == token.npos
                : token.size() > 3 && token.find_first_not_of("[]/_ABCDEFGHIJKLMNOPQRSTUVWXYZ") == token.npos;
        if (is_name && std::find(known.begin(), known.end(), token) == known.end() &&
            std::find(kOfTools.begin(), kOfTools.end(), token) == kOfTools.end())
          return token;
      }
    return std::nullopt;
  }

 private:
  std::string text_;
};

ChatTemplate recognize_chatml(const Jinja& j) {
  if (j.has_all({"<think>", "last_query_index"})) return chat_template("qwen3");
  ChatTemplate t = chat_template("chatml");
  t.default_system = j.literal("<|im_start|>system\\n", "<|im_end|>");
  t.trim = t.trim_assistant = j.trims();
  return t;
}

/// The publisher has changed the spaces of this template several times, so they are taken from the text.
ChatTemplate recognize_mistral(const Jinja& j) {
  const bool spaces_before = j.has_any({"'[INST] '", "' [INST] '"});
  const bool space_after = j.has("' [/INST]'");
  ChatTemplate t = chat_template(space_after ? "mistral" : spaces_before ? "mistral-v3" : "mistral-nemo");
  if (j.has("' [INST] '")) t.user.before = " [INST] ";
  t.assistant.lead = j.has("' ' + message") || j.has("' ' + content") ? " " : "";
  if (j.has("eos_token + ' '")) t.assistant.after = " ";
  t.trim_assistant = j.trims();
  t.placement = !j.has("system_message")                ? SystemPlacement::kRefused
                : j.has("loop.last and system_message") ? SystemPlacement::kLastUser
                                                        : SystemPlacement::kFirstUser;
  return t;
}

ChatTemplate recognize_phi3(const Jinja& j) {
  ChatTemplate t = chat_template(j.has("<|user|>\\n") ? "phi-3" : "phi-4-mini");
  if (!j.has_any({"else %}{{eos_token", "else %}\\n{{eos_token"})) t.end.clear();
  if (!j.has_any({"'system'", "<|system|>", "message['role'] + '|>"}))
    t.placement = SystemPlacement::kRefused;
  return t;
}

std::optional<ChatTemplate> candidate(const Jinja& j) {
  if (j.has("<|im_sep|>")) return chat_template("phi-4");
  // A template that depends on the date or adds other texts is not ChatML.
  if (j.has("<|im_start|>") && !j.has_any({"strftime_now", "Knowledge Cutoff", "<think>\\n'}}"}))
    return recognize_chatml(j);
  if (j.has_all({"<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"}))
    return chat_template(j.has("Cutting Knowledge Date: December 2023") ? "llama-3.1" : "llama-3");
  if (j.has_all({"<start_of_turn>", "<end_of_turn>", "model"}))
    return chat_template(j.has("first_user_prefix") ? "gemma-3" : "gemma");
  if (j.has("<<SYS>>")) return chat_template("llama-2");
  if (j.has_all({"[INST]", "[/INST]", "eos_token"})) return recognize_mistral(j);
  if (j.has("<|end|>") && j.has_any({"<|user|>", "'<|' + message['role']"})) return recognize_phi3(j);
  if (j.has_all({"<|user|>\\n", "<|assistant|>", "eos_token"})) return chat_template("zephyr");
  if (j.has_all({"Below is an instruction", "### Instruction:", "### Response:"}))
    return chat_template("alpaca");
  return std::nullopt;
}

void replace_token(ChatTemplate& t, const std::string& from, const std::string& to) {
  if (to.empty() || from == to) return;
  for (std::string* text : {&t.start, &t.end, &t.assistant.end, &t.system.end, &t.user.end})
    if (const std::size_t at = text->find(from); at != text->npos) text->replace(at, from.size(), to);
  t.special.push_back(to);
}

}  // namespace

ChatTemplate recognize_template(std::string_view jinja, const std::string& bos, const std::string& eos,
                                const std::string& file) {
  const Jinja j(jinja);
  std::optional<ChatTemplate> t = candidate(j);
  std::vector<std::string> known;
  if (t) known = t->special;
  // Texts that look like tokens, but are none in these models.
  if (t && t->name == "zephyr") known.insert(known.end(), {"<|user|>", "<|system|>", "<|assistant|>"});
  if (t && t->name == "llama-2") known.insert(known.end(), {"[INST]", "[/INST]"});
  const std::optional<std::string> unknown = t ? j.unknown_token(known) : std::nullopt;
  if (!t || unknown) {
    std::string names;
    for (const std::string& n : chat_template_names()) names += (names.empty() ? "" : ", ") + n;
    throw usage_error("the chat template in '" + escaped(file, 400) + "' is not one of the built-in ones" +
                          (unknown ? ": it resembles " + t->name + ", but has " + escaped(*unknown, 60) : ""),
                      "set data.chat_template to one of " + names);
  }
  // Templates write these two by their variables, so the model's own texts are used.
  if (!j.starts_with_bos()) t->start.clear();
  if (j.starts_with_bos() && !bos.empty()) t->start = bos;
  if (!t->start.empty()) t->special.push_back(t->start);
  if (j.has("eos_token")) replace_token(*t, "</s>", eos), replace_token(*t, "<|endoftext|>", eos);
  return *t;
}

}  // namespace trainhost::records
