// What a page has not: processes, signals, tokenizers and training data. Implements the functions of these
// modules that planning may call; a run that needs one of them is refused.
#include "core/base/error.hpp"
#include "core/data/dataset.hpp"
#include "core/data/documents.hpp"
#include "core/data/record_tools.hpp"
#include "core/process/host_info.hpp"
#include "core/training/model_state.hpp"
#include "core/training/stop_signals.hpp"
#include "tools/trainhost/launched_ranks.hpp"

extern "C" char* secure_getenv(const char*) { return nullptr; }

namespace trainhost {

std::optional<std::uint64_t> free_host_bytes() { return std::nullopt; }
unsigned cpu_count() { return 1; }
std::uint64_t process_peak_bytes() { return 0; }

namespace training {
void require_finite_weights(const runfile::RunConfig&, const PhaseSink&) {}
int StopSignals::received() { return 0; }
}  // namespace training

namespace cli {
std::uint32_t threads_of_process() { return 1; }
std::optional<LaunchedProcess> launched_process() { return std::nullopt; }
}  // namespace cli

namespace data {
bool is_record_file(const std::filesystem::path& path) {
  const std::string end = path.extension().string();
  return end == ".jsonl" || end == ".json" || end == ".csv";
}
LongestRecord longest_record(const RecordToolOptions&, std::uint64_t) {
  throw usage_error("data.seq_len is not given, and training data cannot be read in the browser",
                    "set data.seq_len to the tokens per sequence");
}
std::unique_ptr<Tokenizer> make_tokenizer(const std::string&) {
  throw usage_error("a tokenizer cannot be read in the browser", "remove data.tokenizer");
}
std::uint64_t planned_held_bytes(const OpenOptions&) { return 0; }
}  // namespace data
}  // namespace trainhost
