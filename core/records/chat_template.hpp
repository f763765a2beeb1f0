// Chat templates: how a conversation becomes the text that a model is trained on. The host evaluates no
// Jinja; the templates of common models are built in (chat_templates.cpp), and the Jinja text of a model's
// tokenizer_config.json is recognized as one of them (recognize_template.hpp).
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "core/records/record.hpp"

namespace trainhost::records {

/// A piece of rendered text. `special`: the text is that of one special token, "<|im_end|>", if the
/// vocabulary has it. `trained`: its tokens are counted in the loss.
struct Part {
  std::string text;
  bool special = false, trained = false;
  bool operator==(const Part&) const = default;
};

/// Texts around the content of one message. The assistant generates everything from `lead` to `end`.
struct TurnFormat {
  std::string before;  // for the assistant: the generation prompt
  std::string lead;    // for example a space between generation prompt and content
  std::string end;     // the end of the turn, which stops generation
  std::string after;   // what separates it from the next turn
};

enum class SystemPlacement {
  kTurn,       // a turn of its own
  kFirstUser,  // inside of the first user message
  kLastUser,   // inside of the last user message
  kRefused,    // the template has no system message
};

struct ChatTemplate {
  std::string name;
  std::string start;  // before the first turn, for example "<s>"
  std::string end;    // after the last turn
  TurnFormat system, user, assistant;
  SystemPlacement placement = SystemPlacement::kTurn;
  std::string system_before, system_after;    // around a system message inside of a user message
  std::string system_prefix;                  // before its content, also if that is empty (Llama 3.1: dates)
  std::string default_system;                 // of a conversation without one; "" = none
  bool always_system = false;                 // render a system turn even if its content is empty
  bool starts_every_user = false;             // `start` is before every user message (Llama 2)
  bool trim = false, trim_assistant = false;  // white space around contents (system and user; assistant)
  bool think = false;                         // Qwen3: an empty block of reasoning in the last answer
  // Alpaca: an instruction with an input has this system text, and the input follows the instruction.
  std::string input_system, input_before;
  std::vector<std::string> special;  // texts of special tokens in the members above
};

/// A built-in template. Throws usage_error with the nearest name.
ChatTemplate chat_template(std::string_view name);
std::vector<std::string> chat_template_names();

/// All texts of the template, for a hash: templates that render differently have different ones.
std::string fingerprint(const ChatTemplate& t);

enum class LossOn { kCompletions, kAll };

/// The parts of a record. Neighbouring parts of plain text that are trained alike are one part.
/// kText: one trained part. kCompletion: the prompt, then the trained completion; needs no template.
/// kMessages: the conversation in the template `t`, which must not be null. Contents are never special, so a
/// user cannot end a turn by writing "<|im_end|>". Throws RecordError if the template has no system messages
/// and the record has one.
std::vector<Part> render(const Record& record, const ChatTemplate* t, LossOn loss_on = LossOn::kCompletions);

/// The text that asks the model for the next answer, after a conversation that ends with the user.
std::vector<Part> render_prompt(const std::vector<Message>& messages, const ChatTemplate& t);

}  // namespace trainhost::records
