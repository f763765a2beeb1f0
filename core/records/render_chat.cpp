// Renders records as parts; see chat_template.hpp. The order of texts is that of transformers'
// apply_chat_template() for the templates that chat_templates.cpp describes; a test compares the results.
#include <algorithm>
#include <cassert>
#include <optional>

#include "core/records/chat_template.hpp"

namespace trainhost::records {
namespace {

/// Collects parts. Text of the template is divided at special tokens, content is not.
class Parts {
 public:
  explicit Parts(const std::vector<std::string>& special) : special_(special) {}

  void content(std::string_view text, bool trained) { append(text, false, trained); }

  void format(std::string_view text, bool trained) {
    while (!text.empty()) {
      std::size_t first = text.size(), length = 0;
      for (const std::string& s : special_) {
        const std::size_t at = text.find(s);
        // The longer one of two that begin at the same place.
        if (at < first || (at == first && at != text.npos && s.size() > length))
          first = at, length = s.size();
      }
      append(text.substr(0, first), false, trained);
      if (length > 0) append(text.substr(first, length), true, trained);
      text.remove_prefix(std::min(first + length, text.size()));
    }
  }

  std::vector<Part> take() { return std::move(parts_); }

 private:
  void append(std::string_view text, bool special, bool trained) {
    if (text.empty()) return;
    if (!special && !parts_.empty() && !parts_.back().special && parts_.back().trained == trained)
      parts_.back().text += text;
    else
      parts_.push_back({std::string(text), special, trained});
  }

  const std::vector<std::string>& special_;
  std::vector<Part> parts_;
};

constexpr std::string_view kSpace = " \t\n\r\f\v";

std::string trimmed(std::string text, std::string_view left = kSpace, std::string_view right = kSpace) {
  text.erase(text.find_last_not_of(right) + 1);
  text.erase(0, std::min(text.find_first_not_of(left), text.size()));
  return text;
}

struct Answer {
  std::optional<std::string> reasoning;  // rendered as a block; empty = an empty block
  std::string content;
};

/// Qwen3: reasoning before "</think>" is kept in the answer after the last user message and removed from the
/// others. Reasoning in a field of its own is used instead.
Answer qwen3_answer(const Message& m, bool is_last) {
  static constexpr std::string_view kOpen = "<think>", kClose = "</think>";
  const std::string& content = m.content;
  Answer a{is_last ? std::optional<std::string>("") : std::nullopt, content};
  if (!m.reasoning.empty()) {
    if (is_last) a = {trimmed(m.reasoning, "\n", "\n"), trimmed(content, "\n", "")};
    return a;
  }
  if (const std::size_t close = content.rfind(kClose); close != content.npos) {
    const std::string before = content.substr(0, content.find(kClose));
    const std::size_t open = before.rfind(kOpen);
    if (is_last)
      a.reasoning = trimmed(open == before.npos ? before : before.substr(open + kOpen.size()), "\n", "\n");
    a.content = content.substr(close + kClose.size());
    a.content = trimmed(a.content, "\n", "");
  } else if (is_last) {
    a.content = trimmed(a.content, "\n", "");
  }
  return a;
}

void turn(Parts& parts, const TurnFormat& f, const Answer& answer, bool trained, bool all) {
  trained = trained || all;
  parts.format(f.before, all);
  parts.format(f.lead, trained);
  if (answer.reasoning) {
    parts.format("<think>\n", trained);
    parts.content(*answer.reasoning, trained);
    parts.format("\n</think>\n\n", trained);
  }
  parts.content(answer.content, trained);
  parts.format(f.end, trained);
  parts.format(f.after, all);
}

struct Conversation {
  std::optional<std::string> system;
  std::vector<Message> turns;
};

/// Separates the system message, and joins the input of an instruction to it.
Conversation conversation_of(const Record& record, const ChatTemplate& t) {
  Conversation c{std::nullopt, record.messages};
  if (c.turns.front().role == "system") {
    c.system = c.turns.front().content;
    c.turns.erase(c.turns.begin());
  }
  assert(!c.turns.empty() && c.turns.front().role == "user");
  const bool has_input = !trimmed(record.input).empty();
  if (has_input) c.turns.front().content += (t.input_before.empty() ? "\n" : t.input_before) + record.input;
  if (c.system && t.placement == SystemPlacement::kRefused)
    throw RecordError("the chat template '" + t.name + "' has no system messages",
                      "set another data.chat_template");
  if (!c.system && has_input && !t.input_system.empty()) c.system = t.input_system;
  if (!c.system && !t.default_system.empty()) c.system = t.default_system;
  if (!c.system && t.always_system) c.system = "";
  return c;
}

void render_messages(Parts& parts, const Record& record, const ChatTemplate& t, bool all, bool is_prompt) {
  const Conversation c = conversation_of(record, t);
  const bool inside = t.placement == SystemPlacement::kFirstUser || t.placement == SystemPlacement::kLastUser;
  if (!t.starts_every_user) parts.format(t.start, all);
  if (c.system && !inside) {
    parts.format(t.system.before + t.system_prefix, all);
    parts.content(t.trim ? trimmed(*c.system) : *c.system, all);
    parts.format(t.system.end + t.system.after, all);
  }
  // The user message that contains the system message. Mistral's newer templates put it into a user message
  // that is the last message, so transformers drops it from a conversation that ends with an answer. It is
  // kept here, where it was when that answer was generated.
  std::size_t system_at = 0, last_user = 0;
  for (std::size_t i = 0; i < c.turns.size(); ++i)
    if (c.turns[i].role == "user") last_user = i;
  if (t.placement == SystemPlacement::kLastUser) system_at = last_user;
  for (std::size_t i = 0; i < c.turns.size(); ++i) {
    const Message& m = c.turns[i];
    if (m.role == "assistant") {
      const Answer answer = t.think ? qwen3_answer(m, i > last_user)
                                    : Answer{std::nullopt, t.trim_assistant ? trimmed(m.content) : m.content};
      turn(parts, t.assistant, answer, m.trained, all);
      continue;
    }
    if (t.starts_every_user) parts.format(t.start, all);
    std::string content = t.trim ? trimmed(m.content) : m.content;
    if (c.system && inside && i == system_at) {
      parts.format(t.user.before + t.system_before, all);
      parts.content(*c.system, all);
      parts.format(t.system_after, all);
      // Llama 2 trims both together, so the space before the question stays.
      parts.content(t.starts_every_user ? trimmed(m.content, "") : content, all);
      parts.format(t.user.end + t.user.after, all);
    } else {
      turn(parts, t.user, {std::nullopt, content}, false, all);
    }
  }
  parts.format(is_prompt ? t.assistant.before : t.end, all);
}

}  // namespace

std::vector<Part> render(const Record& record, const ChatTemplate* t, LossOn loss_on) {
  static const std::vector<std::string> kNoSpecial;
  const bool all = loss_on == LossOn::kAll;
  Parts parts(record.kind == RecordKind::kMessages ? t->special : kNoSpecial);
  switch (record.kind) {
    case RecordKind::kText:
      parts.content(record.text, true);
      break;
    case RecordKind::kCompletion:
      parts.content(record.text, all);
      parts.content(record.completion, true);
      break;
    case RecordKind::kMessages:
      render_messages(parts, record, *t, all, false);
      break;
  }
  return parts.take();
}

std::vector<Part> render_prompt(const std::vector<Message>& messages, const ChatTemplate& t) {
  Record record;
  record.kind = RecordKind::kMessages;
  record.messages = messages;
  Parts parts(t.special);
  render_messages(parts, record, t, false, true);
  return parts.take();
}

}  // namespace trainhost::records
