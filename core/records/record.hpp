// A training record: one line of JSON Lines, one element of a JSON array or one row of CSV, in the form in
// which the rest of the program reads it. Where it comes from: record_reader.hpp. As text with marked
// completions: chat_template.hpp.
#pragma once
#include <cstddef>
#include <string>
#include <vector>

#include "core/base/error.hpp"

namespace trainhost::records {

/// A record that cannot be used, exit code 2. What follows from it is the user's choice: data.on_error.
struct RecordError : Error {
  explicit RecordError(std::string message, std::string hint = {}, Where where = {})
      : Error(Exit::kUsage, std::move(message), std::move(hint), std::move(where)) {}
};

/// `role`: "system", "user" or "assistant". `trained`: false for an assistant message of weight 0.
struct Message {
  std::string role, content;
  bool trained = true;
  std::string reasoning = "";  // 'reasoning_content': rendered by the template of Qwen3 alone
};

enum class RecordKind {
  kText,        // {"text"}: a document; every token is trained
  kCompletion,  // {"prompt", "completion"} as strings: rendered without a chat template
  kMessages,  // {"messages"}, {"conversations"}, {"instruction", "output"}, prompt and completion as messages
};

struct Record {
  RecordKind kind = RecordKind::kText;
  std::string text;        // kText: the document; kCompletion: the prompt
  std::string completion;  // kCompletion
  /// kMessages: system (optional), then user and assistant in turn; at least one assistant. No content is
  /// empty.
  std::vector<Message> messages;
  std::string input;  // of an instruction: context for the first user message; "" = none
};

/// The keys under which a record has its values. ShareGPT's "conversations" of "from" and "value" are always
/// known.
struct RecordKeys {
  std::string text = "text", prompt = "prompt", completion = "completion", instruction = "instruction",
              input = "input", output = "output", messages = "messages", role = "role", content = "content";
};

}  // namespace trainhost::records
