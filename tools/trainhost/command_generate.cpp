// trainhost generate: print text that a trained model generates. Generation is
// core/training/generate_text.cpp.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <utility>
#include <vector>

#include "core/base/text.hpp"
#include "core/report/terminal.hpp"
#include "core/training/generate_text.hpp"
#include "tools/trainhost/result_stream.hpp"
#include "tools/trainhost/run_setup.hpp"

namespace trainhost::cli {
namespace {

void print(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), result_stream());
  std::fflush(result_stream());
}

/// The results of many texts, printed in the order of the prompts.
class ResultsInOrder {
 public:
  void add(std::size_t index, std::string line) {
    waiting_[index] = std::move(line);
    for (auto i = waiting_.find(next_); i != waiting_.end(); i = waiting_.find(next_)) {
      print(i->second + "\n");
      waiting_.erase(i);
      ++next_;
    }
  }

 private:
  std::size_t next_ = 0;
  std::map<std::size_t, std::string> waiting_;
};

}  // namespace

Exit run(const GenerateArguments& a) {
  if (a.prompt.empty() == a.prompts.empty())
    throw usage_error(a.prompts.empty() ? "no prompt: --prompt TEXT or --prompts FILE is required"
                                        : "--prompt and --prompts are both given",
                      "give one of them");
  const bool many = !a.prompts.empty();
  const std::vector<std::string> prompts = many ? training::read_prompts(a.prompts) : std::vector{a.prompt};
  training::InferenceRequest request;
  request.dir = a.directory, request.adapter = a.adapter;
  if (!a.common.backend.empty()) request.backend = a.common.backend;
  request.context = a.context;
  request.sequences =
      static_cast<std::uint32_t>(std::min<std::size_t>(std::max(1u, a.batch), prompts.size()));
  std::vector<std::vector<std::int32_t>> ids;
  request.longest = [&](const tokenizer::Tokenizer& tokenizer) {
    std::size_t longest = 0;
    for (const std::string& p : prompts) {
      ids.push_back(training::prompt_ids(tokenizer, p));
      longest = std::max(longest, ids.back().size());
    }
    return std::uint64_t{longest} + std::max(1u, a.sample.tokens);
  };
  const auto registry = make_registry(a.common, nullptr, a.threads);
  training::InferenceModel model(request, *registry);
  if (!a.common.quiet) report::write_message(model.memory_text());
  model.load();
  training::TextGenerator generator =
      training::make_generator(model, training::sample_options(model.settings(), a.sample));

  training::TextGenerator::Callbacks callbacks;
  ResultsInOrder results;
  const bool streams = !many && !a.common.json;
  // Generated text may contain terminal control sequences: escape it on a terminal, not in a file or pipe.
  const bool terminal = report::terminal_of(1).is_tty;
  // With the first piece, so that a model that cannot be loaded leaves standard output empty.
  bool prompt_printed = false;
  const auto print_prompt = [&] {
    if (!std::exchange(prompt_printed, true)) print(a.prompt);
  };
  if (streams)
    callbacks.text = [&](std::size_t, const std::string& piece) {
      print_prompt();
      print(terminal ? training::escaped_lines(piece) : piece);
    };
  else
    callbacks.done = [&](std::size_t i, const training::Continuation& c) {
      results.add(i, training::result_json(prompts[i], c).dump());
    };
  generator.run(ids, callbacks, true);
  if (streams) print_prompt(), print("\n");
  if (a.common.json)
    print(JsonValue{{"speed", training::speed_json(generator.speed(), model.step_bytes())},
                    {"memory", JsonValue{{"predicted_bytes", model.memory().total()},
                                         {"measured_bytes", registry->ledger().peak_total()}}}}
              .dump() +
          "\n");
  if (!a.common.quiet) report::write_message(training::speed_text(generator.speed(), model.step_bytes()));
  return Exit::kDone;
}

}  // namespace trainhost::cli
