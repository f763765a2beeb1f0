// See error_context.hpp. Rules of models and layouts know keys but no file; the position is added here, from
// the key that their message begins with.
#include "core/planning/error_context.hpp"

#include <string_view>

namespace trainhost::planning {
namespace {

/// "parallel.tensor" of "parallel.tensor = 3 does not divide 32 heads"; "" if the message does not begin with
/// a key.
std::string leading_key(std::string_view message) {
  const std::size_t end = message.find_first_of(" :");
  // A key has a dot; a first word without one is part of a sentence.
  if (end == message.npos || message.substr(0, end).find('.') == message.npos) return {};
  return std::string(message.substr(0, end));
}

}  // namespace

Where position_of_key(const runfile::RunConfig& c, const std::string& key) {
  if (const auto at = c.given.find(key); at != c.given.end()) return at->second;
  constexpr std::string_view kPlugin = "plugin.";
  if (!key.starts_with(kPlugin)) return {};
  const auto at = c.plugin_option_lines.find(key.substr(kPlugin.size()));
  if (at == c.plugin_option_lines.end() || at->second.first == 0) return {};  // line 0: from the command line
  return {c.file.string(), at->second.first, at->second.second};
}

std::optional<Error> with_position(const runfile::RunConfig& c, const Error& e) {
  // An error that already has a position keeps it.
  if (!e.where().file.empty()) return std::nullopt;
  const Where where = position_of_key(c, leading_key(e.what()));
  if (where.file.empty()) return std::nullopt;
  return Error(e.code(), e.what(), e.hint(), where);
}

// The factors that appear in sizes; an overflow message lists those that were given.
std::vector<std::pair<std::string, std::uint64_t>> size_factors(const runfile::RunConfig& c) {
  const ModelSpec& m = c.model;
  const RunSpec& r = c.run;
  return {{"model.vocab_size", m.vocab},
          {"model.hidden_size", m.hidden},
          {"model.intermediate_size", m.intermediate},
          {"model.num_hidden_layers", m.layers},
          {"model.num_attention_heads", m.heads},
          {"data.seq_len", r.seq_len},
          {"train.micro_batch", r.micro_batch},
          {"train.grad_accum", r.accumulate},
          {"lora.rank", r.lora_rank},
          {"parallel.vocab_multiple", r.memory.vocab_multiple},
          {"parallel.data", r.parallel.data},
          {"parallel.tensor", r.parallel.tensor}};
}

}  // namespace trainhost::planning
