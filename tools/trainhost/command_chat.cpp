// trainhost chat: a conversation with a model in a terminal, or with lines of a pipe. The conversation is
// core/training/chat.cpp.
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <iostream>
#include <string>

#include "core/base/text.hpp"
#include "core/report/terminal.hpp"
#include "core/training/chat.hpp"
#include "tools/trainhost/result_stream.hpp"
#include "tools/trainhost/run_setup.hpp"

namespace trainhost::cli {
namespace {

void print_answer(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), result_stream());
  std::fflush(result_stream());
}

/// Bytes of a line without its end that a terminal of Linux passes on; it drops what is typed or pasted
/// beyond.
constexpr std::size_t kTerminalLine = 4095;

std::atomic<bool> g_answering{false}, g_interrupted{false};

/// The first Ctrl-C during an answer stops it. Any other one ends the program, as without a handler.
void on_interrupt(int signal) {
  if (g_answering && !g_interrupted.exchange(true)) return;
  ::signal(signal, SIG_DFL);
  ::raise(signal);
}

/// Catches Ctrl-C during its lifetime.
class InterruptHandler {
 public:
  InterruptHandler() {
    struct sigaction action {};
    action.sa_handler = on_interrupt;
    action.sa_flags = SA_RESTART;
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, &before_);
  }
  ~InterruptHandler() { sigaction(SIGINT, &before_, nullptr); }
  InterruptHandler(const InterruptHandler&) = delete;

 private:
  struct sigaction before_ {};
};

}  // namespace

Exit run(const ChatArguments& a) {
  training::InferenceRequest request;
  request.dir = a.directory, request.adapter = a.adapter;
  if (!a.common.backend.empty()) request.backend = a.common.backend;
  request.context = a.context;
  request.default_context = 4096;
  const auto registry = make_registry(a.common, nullptr, a.threads);
  training::InferenceModel model(request, *registry);
  training::Chat chat(model, {a.chat_template, a.system, a.sample});
  if (!a.common.quiet)
    report::write_message(
        fmt::format("chat template {}; {}", chat.chat_template().name, model.memory_text()));
  InterruptHandler handler;
  chat.start();

  const bool asks = isatty(STDIN_FILENO), escapes = report::terminal_of(STDOUT_FILENO).is_tty;
  training::TextGenerator::Callbacks callbacks;
  callbacks.stopped = [] { return g_interrupted.load(); };
  if (!a.common.json)
    callbacks.text = [&](std::size_t, const std::string& piece) {
      print_answer(escapes ? training::escaped_lines(piece) : piece);
    };
  std::string question;
  for (std::uint64_t line = 1;; ++line) {
    if (asks) write_stderr("> ");
    if (!std::getline(std::cin, question)) break;
    if (!question.empty() && question.back() == '\r') question.pop_back();
    if (question.find_first_not_of(" \t") == question.npos) continue;
    if (asks && question.size() >= kTerminalLine) {
      report::write_message(
          fmt::format("the terminal cuts lines off at {} bytes; pass longer questions through a pipe",
                      format_count(kTerminalLine)));
      continue;
    }
    g_interrupted = false, g_answering = true;
    training::Chat::Answer answer;
    try {
      answer = chat.ask(question, callbacks);
    } catch (const Error& e) {
      if (!asks || e.code() != Exit::kUsage) throw;
      g_answering = false;
      report::write_message(e.what());
      continue;
    }
    g_answering = false;
    if (a.common.json) print_answer(training::result_json(question, answer.continuation).dump());
    print_answer("\n");
    if (a.common.quiet) continue;
    if (answer.forgotten)
      report::write_message(
          fmt::format("the context is full: earlier questions left out: {}", answer.forgotten));
    if (answer.continuation.finish != training::Finish::kEndToken)
      report::write_message(
          fmt::format("[the answer is not complete: {}]", training::name(answer.continuation.finish)));
  }
  if (asks) write_stderr("\n");
  if (!a.common.quiet) report::write_message(training::speed_text(chat.speed(), model.step_bytes()));
  return Exit::kDone;
}

}  // namespace trainhost::cli
