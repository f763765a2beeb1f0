// A conversation with a model: the chat template of its folder, the turns so far, and answers that are
// generated. The terminal is tools/trainhost/command_chat.cpp.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/records/chat_template.hpp"
#include "core/training/generate_text.hpp"

namespace trainhost::training {

struct ChatRequest {
  std::string chat_template = "auto";  // "auto": the one that the model's folder describes
  std::string system;                  // "" = none, or that of the template
  SampleOverrides sample;
};

class Chat {
 public:
  /// Finds the template. Throws usage_error that names the built-in templates if the folder has none or one
  /// that is not recognized, and if the template has no system messages and one is given. `model` must
  /// outlive this.
  Chat(InferenceModel& model, const ChatRequest& r);
  const records::ChatTemplate& chat_template() const { return template_; }

  /// Loads the model; once, before the first question.
  void start();

  struct Answer {
    Continuation continuation;
    std::size_t forgotten = 0;  // oldest questions that were left out, with their answers, to make space
  };
  /// The answer to a question. Keys and values of earlier turns are reused as far as the rendered
  /// conversation begins as it did. An answer without text leaves no turn. Throws usage_error if the question
  /// alone fills the context; the conversation is then as before.
  Answer ask(const std::string& question, const TextGenerator::Callbacks& callbacks);

  const GenerationSpeed& speed() const { return generator_->speed(); }

 private:
  std::vector<std::int32_t> prompt() const;

  InferenceModel& model_;
  const SampleOptions options_;
  records::ChatTemplate template_;
  std::vector<records::Message> messages_;
  std::optional<TextGenerator> generator_;
};

}  // namespace trainhost::training
