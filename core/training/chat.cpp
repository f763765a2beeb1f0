// See chat.hpp.
#include "core/training/chat.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "core/base/text.hpp"
#include "core/data/documents.hpp"

namespace trainhost::training {
namespace {

records::ChatTemplate template_of(const InferenceModel& model, const std::string& name) {
  data::RecordOptions options;
  options.chat_template = name;
  options.model_folders = {model.dir()};
  const data::DocumentEncoder encoder(model.tokenizer(), options);
  if (const records::ChatTemplate* t = encoder.chat_template()) return *t;
  throw usage_error(
      fmt::format(
          "{} has no chat template: neither tokenizer_config.json nor chat_template.jinja describes one",
          escaped(model.dir().string(), 4096)),
      fmt::format("--chat-template NAME selects one of {}", fmt::join(records::chat_template_names(), ", ")));
}

}  // namespace

Chat::Chat(InferenceModel& model, const ChatRequest& r)
    : model_(model),
      options_(sample_options(model.settings(), r.sample)),
      template_(template_of(model, r.chat_template)) {
  if (!r.system.empty()) messages_.push_back({"system", r.system});
  if (!r.system.empty() && template_.placement == records::SystemPlacement::kRefused)
    throw usage_error(fmt::format("the chat template '{}' has no system messages", template_.name),
                      "leave out --system");
}

void Chat::start() {
  model_.load();
  std::set<std::int32_t> ends;
  // The token that ends a turn, which not every generation_config.json lists.
  std::string end = template_.assistant.end;
  end.erase(end.find_last_not_of(" \n") + 1);
  if (const auto id = model_.tokenizer().id_of(end); id && !end.empty()) ends.insert(*id);
  generator_.emplace(make_generator(model_, options_, ends));
}

/// The ids of the rendered conversation. A special token that the vocabulary lacks is text, as in training.
std::vector<std::int32_t> Chat::prompt() const {
  const std::vector<records::Part> parts = records::render_prompt(messages_, template_);
  std::vector<tokenizer::Part> texts;
  for (const records::Part& p : parts)
    texts.push_back({p.text, p.special && model_.tokenizer().id_of(p.text) ? tokenizer::Names::kSpecial
                                                                           : tokenizer::Names::kText});
  return model_.tokenizer().encode_parts(texts).ids;
}

Chat::Answer Chat::ask(const std::string& question, const TextGenerator::Callbacks& callbacks) {
  Answer answer;
  const std::vector<records::Message> before = messages_;
  messages_.push_back({"user", question});
  const std::size_t first = messages_.front().role == "system" ? 1 : 0;
  std::vector<std::int32_t> ids = prompt();
  // An answer needs space, too: an eighth of the context.
  while (ids.size() >= model_.context() - model_.context() / 8 && messages_.size() > first + 1) {
    const auto oldest = messages_.begin() + static_cast<std::ptrdiff_t>(first);
    messages_.erase(oldest, oldest + 2);
    ++answer.forgotten;
    ids = prompt();
  }
  try {
    answer.continuation = generator_->run({&ids, 1}, callbacks, false).front();
  } catch (...) {
    messages_ = before;
    throw;
  }
  if (answer.continuation.text.empty())
    messages_.pop_back();
  else
    messages_.push_back({"assistant", answer.continuation.text});
  return answer;
}

}  // namespace trainhost::training
