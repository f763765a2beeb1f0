// trainhost generate: text from what was trained.
#include "core/training/generate_text.hpp"

#include <fmt/format.h>

#include <cstdio>

#include "core/base/text.hpp"
#include "core/report/terminal.hpp"
#include "tools/trainhost/options.hpp"

namespace trainhost::cli {
namespace {

class Generate : public Command {
 public:
  void add(CLI::App& root) override {
    app_ = root.add_subcommand("generate", "sample text from a run or a model directory");
    add_options(*app_, o_, kBackend | kPlugins);
    app_->add_option("DIR", dir_, "a run's output.dir, or a directory with config.json and model.safetensors")
        ->required();
    app_->add_option("--prompt", request_.prompt, "text to continue")->option_text("TEXT")->required();
    app_->add_option("--tokens", request_.sample.tokens, "how many new tokens at most")
        ->capture_default_str();
    app_->add_option("--temperature", request_.sample.temperature, "0: always the likeliest")
        ->capture_default_str()
        ->check(CLI::Range(0.0, 100.0));
    app_->add_option("--top-k", request_.sample.top_k, "only the K likeliest; 0: all")->capture_default_str();
    app_->add_option("--top-p", request_.sample.top_p, "only the likeliest that make up this share")
        ->capture_default_str()
        ->check(CLI::Range(0.0, 1.0));
    app_->add_option("--seed", request_.sample.seed, "of the choices")->capture_default_str();
    app_->add_option("--context", request_.context, "tokens the model sees; 0: what it was trained with")
        ->capture_default_str();
    app_->footer("Example:\n  trainhost generate runs/builtin --prompt \"Once \"");
  }
  CLI::App* app() const override { return app_; }
  Exit run() override {
    request_.dir = dir_;
    if (!o_.backend.empty()) request_.backend = o_.backend;
    auto registry = make_registry(o_, nullptr);
    std::fputs(request_.prompt.c_str(), stdout);
    // What a model writes is not to be trusted with a terminal; a file or a pipe gets it as it is.
    const bool terminal = report::terminal_of(1).is_tty;
    training::generate(request_, *registry, [terminal](const std::string& piece) {
      const std::string shown = terminal && piece != "\n" ? escaped(piece) : piece;
      std::fwrite(shown.data(), 1, shown.size(), stdout);
      std::fflush(stdout);
    });
    std::fputc('\n', stdout);
    return Exit::kDone;
  }

 private:
  CLI::App* app_ = nullptr;
  Options o_;
  std::string dir_;
  training::GenerateRequest request_;
};

}  // namespace

std::unique_ptr<Command> generate_command() { return std::make_unique<Generate>(); }

}  // namespace trainhost::cli
