// trainhost generate: print text that a trained model generates. Sampling is core/training/generate_text.cpp.
#include <cstdio>
#include <utility>

#include "core/base/text.hpp"
#include "core/report/terminal.hpp"
#include "core/training/generate_text.hpp"
#include "tools/trainhost/run_setup.hpp"

namespace trainhost::cli {

Exit run(const GenerateArguments& a) {
  training::GenerateRequest request;
  request.dir = a.directory;
  request.prompt = a.prompt;
  if (!a.common.backend.empty()) request.backend = a.common.backend;
  request.context = a.context;
  request.sample.tokens = a.tokens;
  request.sample.temperature = a.temperature;
  request.sample.top_k = a.top_k;
  request.sample.top_p = a.top_p;
  request.sample.seed = a.seed;
  const auto registry = make_registry(a.common, nullptr);
  // Generated text may contain terminal control sequences: escape it on a terminal, not in a file or pipe.
  const bool terminal = report::terminal_of(1).is_tty;
  // With the first piece, so that a model that cannot be loaded leaves standard output empty.
  bool prompt_printed = false;
  const auto print_prompt = [&] {
    if (!std::exchange(prompt_printed, true)) std::fputs(request.prompt.c_str(), stdout);
  };
  training::generate(request, *registry, [&](const std::string& piece) {
    print_prompt();
    const std::string shown = terminal && piece != "\n" ? escaped(piece) : piece;
    std::fwrite(shown.data(), 1, shown.size(), stdout);
    std::fflush(stdout);
  });
  print_prompt();
  std::fputc('\n', stdout);
  return Exit::kDone;
}

}  // namespace trainhost::cli
