// See generate_text.hpp.
#include "core/training/generate_text.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/base/plural.hpp"
#include "core/base/text.hpp"
#include "core/checkpoint/durable.hpp"

namespace trainhost::training {
namespace {

constexpr std::uint64_t kPromptFileBytes = 1ull << 30;

std::string prompt_of_json(const std::string& line, const std::string& file, std::uint32_t number) {
  const auto fail = [&](const std::string& what) {
    throw usage_error(what, "expected {\"prompt\": \"TEXT\"} or \"TEXT\"", Where{file, number, 1});
  };
  JsonValue v;
  try {
    v = parse_json(line);
  } catch (const JsonError& e) {
    fail(e.what());
  }
  if (v.is_string()) return v.string;
  const JsonValue* prompt = v.find("prompt");
  if (!v.is_object() || !prompt) fail("this line has no \"prompt\"");
  if (!prompt->is_string()) fail("\"prompt\" is not a text");
  return prompt->string;
}

double rate(std::uint64_t count, double seconds) {
  return seconds > 0 ? static_cast<double>(count) / seconds : 0;
}

double gigabytes_per_second(const GenerationSpeed& s, std::uint64_t step_bytes) {
  return rate(s.steps * step_bytes, s.step_seconds) / 1e9;
}

}  // namespace

SampleOptions sample_options(const GenerationSettings& settings, const SampleOverrides& o) {
  SampleOptions s = settings.sample;
  s.tokens = o.tokens, s.seed = o.seed;
  if ((o.top_k || o.top_p) && s.temperature == 0) s.temperature = 1;
  s.temperature = o.temperature.value_or(s.temperature);
  s.top_k = o.top_k.value_or(s.top_k);
  s.top_p = o.top_p.value_or(s.top_p);
  s.repetition_penalty = o.repetition_penalty.value_or(s.repetition_penalty);
  return s;
}

std::vector<std::string> read_prompts(const std::filesystem::path& file) {
  const std::string text = checkpoint::read_whole(file, kPromptFileBytes), name = file.string();
  const bool json = file.extension() == ".jsonl" || file.extension() == ".ndjson";
  std::vector<std::string> prompts;
  std::uint32_t number = 0;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    std::string line = text.substr(at, end - at);
    at = end + 1, ++number;
    if (!line.empty() && line.back() == '\r') line.pop_back();
    if (line.find_first_not_of(" \t") == line.npos) continue;
    prompts.push_back(json ? prompt_of_json(line, name, number) : std::move(line));
    if (prompts.back().empty()) throw usage_error("the prompt is empty", "", Where{name, number, 1});
  }
  if (prompts.empty()) throw usage_error(fmt::format("{} has no prompts", escaped(name, 4096)));
  return prompts;
}

std::vector<std::int32_t> prompt_ids(const tokenizer::Tokenizer& tokenizer, const std::string& prompt) {
  std::vector<std::int32_t> ids = tokenizer.encode(prompt, tokenizer::Names::kSpecial);
  if (ids.empty()) throw usage_error("the prompt is empty");
  const std::vector<std::int32_t> before = tokenizer.before();
  ids.insert(ids.begin(), before.begin(), before.end());
  return ids;
}

TextGenerator make_generator(InferenceModel& model, const SampleOptions& options,
                             const std::set<std::int32_t>& more_ends) {
  std::set<std::int32_t> ends(model.settings().eos_ids.begin(), model.settings().eos_ids.end());
  if (const auto eos = model.tokenizer().eos()) ends.insert(*eos);
  ends.insert(more_ends.begin(), more_ends.end());
  return TextGenerator({model.decoder(), model.tokenizer(), model.spec().vocab, model.context(), model.rows(),
                        model.sequences(), model.logits()},
                       options, std::move(ends));
}

std::string escaped_lines(const std::string& text) {
  std::string shown;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    if (at) shown += '\n';
    shown += escaped(std::string_view(text).substr(at, end - at), text.size() * 4 + 1);
    at = end + 1;
  }
  return shown;
}

JsonValue result_json(const std::string& prompt, const Continuation& c) {
  return JsonValue{{"prompt", prompt},
                   {"completion", c.text},
                   {"finish_reason", name(c.finish)},
                   {"prompt_tokens", c.prompt_tokens},
                   {"completion_tokens", static_cast<std::uint64_t>(c.ids.size())}};
}

std::string speed_text(const GenerationSpeed& s, std::uint64_t step_bytes) {
  std::string text =
      fmt::format("{} prompt tokens at {:.1f}/s, {} new tokens at {:.1f}/s", s.prompt_tokens,
                  rate(s.prompt_tokens, s.prompt_seconds), s.new_tokens, rate(s.new_tokens, s.step_seconds));
  if (s.steps)
    text += fmt::format(", {} that read {:.1f} GB/s of weights", plural(s.steps, "step"),
                        gigabytes_per_second(s, step_bytes));
  return text;
}

JsonValue speed_json(const GenerationSpeed& s, std::uint64_t step_bytes) {
  return JsonValue{{"prompt_tokens", s.prompt_tokens},
                   {"prompt_tokens_per_second", rate(s.prompt_tokens, s.prompt_seconds)},
                   {"new_tokens", s.new_tokens},
                   {"new_tokens_per_second", rate(s.new_tokens, s.step_seconds)},
                   {"steps", s.steps},
                   {"weight_bytes", step_bytes},
                   {"gigabytes_per_second", gigabytes_per_second(s, step_bytes)}};
}

}  // namespace trainhost::training
