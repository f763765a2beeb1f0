// See run_files.hpp.
#include "core/report/run_files.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <exception>

#include "core/base/json_value.hpp"
#include "core/base/text.hpp"
#include "core/checkpoint/store.hpp"
#include "core/report/run_page.hpp"
#include "core/training/utc_time.hpp"

namespace trainhost::report {

void RunFiles::begun(const std::filesystem::path& folder, bool resumed) {
  folder_ = folder;
  next_.begun(folder, resumed);
}

/// The text is indented and escaped, as it is printed.
void RunFiles::sample(std::uint64_t step, const std::string& text) {
  next_.sample(step, text);
  const JsonValue j = {{"step", step}, {"text", text}, {"time", training::utc_time()}};
  const std::string line = j.dump() + "\n";
  const int file = ::open((folder_ / "samples.jsonl").c_str(),
                          O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0644);
  if (file < 0) return;
  [[maybe_unused]] const ssize_t n = ::write(file, line.data(), line.size());
  ::close(file);
}

void RunFiles::ended() {
  if (report_ && !folder_.empty()) {
    try {
      RunRecords runs;
      runs.push_back(std::make_unique<RunRecord>(folder_));
      runs[0]->update();
      checkpoint::write_file_atomically(folder_ / "report.html", run_html(runs, command_));
      next_.message("report: " + escaped((folder_ / "report.html").string(), 4096));
    } catch (const std::exception& e) {
      next_.message(std::string("no report: ") + e.what());
    }
  }
  next_.ended();
}

}  // namespace trainhost::report
