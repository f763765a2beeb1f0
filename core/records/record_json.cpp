// See record_json.hpp. Every error names the key and the value, at its position in the text.
#include "core/records/record_json.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "core/base/text.hpp"
#include "core/records/json_fields.hpp"

namespace trainhost::records {
namespace {

/// A text, or OpenAI's list of parts {"type": "text", "text"}, which are concatenated.
std::string content_in(const JsonValue& v, const std::string& key) {
  if (!v.is_array()) return nonempty_text_in(v, key);
  std::string all;
  for (const JsonValue& part : v.elements) {
    const std::string_view type = part.text_of("type");
    if (type != "text")
      throw JsonError(part.begin, "a part of " + quote(key) + " has the type " + quote(type) +
                                      "; only texts can be trained on");
    all += text_in(required(part, "text", "type"), "text");
  }
  if (all.find_first_not_of(" \t\r\n") == std::string::npos)
    throw JsonError(v.begin, quote(key) + " is empty");
  return all;
}

std::string role_in(const JsonValue& v, const std::string& key) {
  static constexpr std::array<std::pair<std::string_view, const char*>, 9> kRoles = {
      {{"system", "system"},
       {"user", "user"},
       {"human", "user"},
       {"assistant", "assistant"},
       {"gpt", "assistant"},
       {"model", "assistant"},
       {"bot", "assistant"},
       {"chatgpt", "assistant"},
       {"developer", "system"}}};
  const std::string name = text_in(v, key);
  for (const auto& [known, role] : kRoles)
    if (name == known) return role;
  if (name == "tool" || name == "function" || name == "ipython")
    throw JsonError(v.begin, "role " + quote(name) + ": tool calls are not supported");
  const std::vector<std::string> names{"system", "user", "assistant", "human", "gpt"};
  throw JsonError(v.begin, "role " + quote(name) + " is unknown; expected system, user or assistant" +
                               did_you_mean(name, names));
}

/// OpenAI's "weight": 0 leaves an assistant message out of the loss.
bool trained_in(const JsonValue& message) {
  const JsonValue* weight = message.find("weight");
  if (!weight || weight->is_null()) return true;
  if (weight->kind != JsonValue::Kind::kInteger || (weight->integer != 0 && weight->integer != 1))
    throw JsonError(weight->begin, "'weight' is " + quote(weight->dump()) + "; expected 0 or 1");
  return weight->integer == 1;
}

std::vector<Message> messages_in(const JsonValue& list, const std::string& key, const std::string& role,
                                 const std::string& content) {
  // A value that was not parsed is a field of a CSV row.
  if (!list.is_array())
    throw JsonError(list.begin, quote(key) + " is " + std::string(kind_name(list)) +
                                    "; expected a list of messages" +
                                    (list.end == 0 ? ", which a CSV file cannot have: use JSON Lines" : ""));
  if (list.elements.empty()) throw JsonError(list.begin, quote(key) + " is empty");
  std::vector<Message> messages;
  for (const JsonValue& m : list.elements) {
    if (!m.is_object())
      throw JsonError(m.begin, "a message is " + std::string(kind_name(m)) + "; expected an object with " +
                                   quote(role) + " and " + quote(content));
    Message message;
    message.role = role_in(required(m, role, content), role);
    const JsonValue* calls = m.find("tool_calls");
    if (calls && !calls->is_null() && !(calls->is_array() && calls->elements.empty()))
      throw JsonError(calls->begin, "'tool_calls': tool calls are not supported");
    message.content = content_in(required(m, content, role), content);
    message.trained = trained_in(m);
    if (const JsonValue* reasoning = m.find("reasoning_content"); reasoning && !reasoning->is_null())
      message.reasoning = text_in(*reasoning, "reasoning_content");
    messages.push_back(std::move(message));
  }
  return messages;
}

/// transformers renders the descriptions of tools into the system message.
void require_no_tools(const JsonValue& object) {
  const JsonValue* tools = object.find("tools");
  if (!tools || tools->is_null() || (tools->is_array() && tools->elements.empty())) return;
  if (tools->is_string() && (tools->string.empty() || tools->string == "[]")) return;
  throw JsonError(tools->begin,
                  "'tools': tool calls are not supported; remove the key if no message uses them");
}

Record record_of_messages(std::vector<Message> messages, std::uint64_t at) {
  require_turns(messages, at);
  Record r;
  r.kind = RecordKind::kMessages;
  r.messages = std::move(messages);
  return r;
}

/// The key under which other data sets have the answer; "" if there is none.
std::string answer_key(const JsonValue& object) {
  for (const char* name : {"response", "answer", "output", "completion", "target"})
    if (const JsonValue* v = object.find(name); v && v->is_string()) return name;
  return "";
}

/// `name`, such as "prompt", without the answer `key`, for which `object` may have another name.
void require_answer(const JsonValue& object, const std::string& name, const std::string& key,
                    const char* setting) {
  const std::string other = answer_key(object);
  if (object.find(key) || other.empty()) return;
  throw JsonError(object.begin, quote(name) + " without " + quote(key) + "; " + setting + " = \"" + other +
                                    "\" reads " + quote(other));
}

/// Pairs of answers, as DPO and reward models are trained on. `setting`: the key that reads the chosen one.
void reject_preference(const JsonValue& object, const char* setting) {
  const JsonValue* chosen = object.find("chosen");
  if (!chosen || !object.find("rejected")) return;
  throw JsonError(
      object.begin,
      std::string("the record is a preference ('chosen', 'rejected'), and trainhost trains on one "
                  "answer; ") +
          setting + " = \"chosen\" trains on the chosen one");
}

/// Two texts, or two lists of messages, as TRL reads them. Only the completion is trained.
Record record_of_prompt(const JsonValue& object, const JsonValue& prompt, const RecordKeys& k) {
  if (!object.find(k.completion)) reject_preference(object, "data.keys.completion");
  require_answer(object, k.prompt, k.completion, "data.keys.completion");
  const JsonValue& completion = required(object, k.completion, k.prompt);
  if (prompt.is_array() != completion.is_array())
    throw JsonError(completion.begin, quote(k.prompt) + " is " + kind_name(prompt) + " and " +
                                          quote(k.completion) + " is " + kind_name(completion) +
                                          "; expected two texts or two lists of messages");
  if (prompt.is_array()) {
    std::vector<Message> all = messages_in(prompt, k.prompt, k.role, k.content);
    for (Message& m : all) m.trained = false;
    for (Message& m : messages_in(completion, k.completion, k.role, k.content)) all.push_back(std::move(m));
    return record_of_messages(std::move(all), object.begin);
  }
  Record r;
  r.kind = RecordKind::kCompletion;
  r.text = text_in(prompt, k.prompt);  // may be empty: an unconditional text
  r.completion = nonempty_text_in(completion, k.completion);
  return r;
}

Record record_of_instruction(const JsonValue& object, const JsonValue& instruction, const RecordKeys& k) {
  require_answer(object, k.instruction, k.output, "data.keys.output");
  Record r;
  r.kind = RecordKind::kMessages;
  r.messages = {{"user", nonempty_text_in(instruction, k.instruction), true},
                {"assistant", nonempty_text_in(required(object, k.output, k.instruction), k.output), true}};
  if (const JsonValue* input = object.find(k.input); input && !input->is_null())
    r.input = text_in(*input, k.input);
  return r;
}

}  // namespace

void require_turns(const std::vector<Message>& messages, std::uint64_t at) {
  const auto fail = [&](std::size_t i, const std::string& what) {
    throw JsonError(
        at, "message " + std::to_string(i + 1) + " of " + std::to_string(messages.size()) + ": " + what);
  };
  std::size_t answers = 0;
  const std::size_t first = !messages.empty() && messages.front().role == "system" ? 1 : 0;
  for (std::size_t i = first; i < messages.size(); ++i) {
    const std::string& role = messages[i].role;
    if (role == "system") fail(i, "role 'system' is only possible for the first message");
    const std::string expected = (i - first) % 2 == 0 ? "user" : "assistant";
    if (role != expected)
      fail(i, "role " + quote(role) +
                  (i == 0 ? " begins the conversation" : " follows " + quote(messages[i - 1].role)) +
                  "; expected " + quote(expected));
    answers += role == "assistant";
  }
  if (answers == 0) throw JsonError(at, "the conversation has no message of the assistant");
}

Record record_of(const JsonValue& object, const RecordKeys& k) {
  if (!object.is_object())
    throw JsonError(object.begin, std::string("the record is ") + kind_name(object) + "; expected an object");
  if (const JsonValue* v = object.find(k.messages)) {
    require_no_tools(object);
    return record_of_messages(messages_in(*v, k.messages, k.role, k.content), v->begin);
  }
  if (const JsonValue* v = object.find("conversations")) {
    require_no_tools(object);
    const bool openai = v->is_array() && !v->elements.empty() && v->elements.front().find(k.role);
    return record_of_messages(
        messages_in(*v, "conversations", openai ? k.role : "from", openai ? k.content : "value"), v->begin);
  }
  if (const JsonValue* v = object.find(k.prompt)) return record_of_prompt(object, *v, k);
  if (const JsonValue* v = object.find(k.instruction)) return record_of_instruction(object, *v, k);
  if (const JsonValue* v = object.find(k.text)) {
    Record r;
    r.text = nonempty_text_in(*v, k.text);
    return r;
  }
  const JsonValue* chosen = object.find("chosen");
  reject_preference(object, chosen && chosen->is_array() ? "data.keys.messages" : "data.keys.text");
  std::string names = "; data.keys sets other names";
  const std::string answer = answer_key(object);
  for (const std::string question : {"question", "query", "input"})
    if (object.find(question) && !answer.empty()) {
      names = "; data.keys.instruction = \"" + question + "\" and data.keys.output = \"" + answer +
              "\" read this record";
      break;
    }
  throw JsonError(object.begin, "the record has " + keys_of(object) + "; expected one of " +
                                    quote(k.messages) + ", 'conversations', " + quote(k.prompt) + ", " +
                                    quote(k.instruction) + ", " + quote(k.text) + names);
}

}  // namespace trainhost::records
