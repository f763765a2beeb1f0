// See web_page.hpp. The state of the page is a query of form fields; "more" has one KEY=VALUE per line, which
// the page moves to the fields that it has.
#include "tools/trainhost/web_page.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>

#include "core/base/json_value.hpp"
#include "core/base/text.hpp"
#include "core/checkpoint/output_file.hpp"
#include "core/plugin/plugin_cache.hpp"
#include "core/plugin/registry.hpp"
#include "tools/trainhost/result_stream.hpp"
#include "tools/trainhost/run_setup.hpp"

extern char** environ;

namespace trainhost::cli {
namespace {

namespace fs = std::filesystem;
constexpr const char* kExample = "--web=planner.html";
constexpr const char* kPlace = "<script id=\"state\" type=\"application/json\">\"\"</script>";

std::string content_of(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

/// Installed, or in the source tree of a build folder.
std::string installed_page() {
  std::error_code failed;
  const fs::path folder = fs::canonical(plugin::program_file(), failed).parent_path();
  for (const char* at : {"../share/trainhost/planner.html", "../../build-web/page/index.html"})
    if (fs::is_regular_file(folder / at, failed)) return content_of(folder / at);
  throw usage_error(
      "--web: this installation has no planner page (share/trainhost/planner.html)",
      "--html plan.html writes the plan as a page; in the source tree, tools/web/build makes the "
      "planner");
}

std::string encoded(const std::string& value) {
  std::string out;
  for (const char c : value)
    if (std::isalnum(static_cast<unsigned char>(c)) ||
        std::string_view("-._").find(c) != std::string_view::npos)
      out += c;
    else
      out += fmt::format("%{:02X}", static_cast<unsigned char>(c));
  return out;
}

class State {
 public:
  void set(const char* field, const std::string& value) {
    text_ += fmt::format("{}{}={}", text_.empty() ? "" : "&", field, encoded(value));
  }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

std::string state_of(const PlanArguments& a) {
  const runfile::RunConfig c = load_config(a.common, target_overrides(a.common, a.target));  // reports errors
  State s;
  std::error_code failed;
  const bool file = fs::is_regular_file(a.common.model, failed);
  const bool model_alone =
      !a.common.model.empty() && a.common.from.empty() && !fs::is_directory(a.common.model, failed);
  if (!model_alone) {
    // A file that the run names is a second one of the page.
    std::string run = runfile::without_defaults(c.resolved());
    constexpr std::string_view kConfig = "\nconfig = \"";
    if (const std::size_t at = run.find(kConfig); at != std::string::npos) {
      const std::size_t begin = at + kConfig.size(), end = run.find('"', begin);
      s.set("file2", "config.json");
      s.set("text2", content_of(run.substr(begin, end - begin)));
      run.replace(begin, end - begin, "config.json");
    }
    s.set("source", "run");
    s.set("text", run);
    for (const char* field : {"device", "budget", "for"}) s.set(field, "");
    return s.text();
  }
  s.set("source", file ? "config" : "model");
  s.set(file ? "text" : "model", file ? content_of(a.common.model) : a.common.model);
  s.set("device", a.target.device);
  s.set("budget", a.target.budget);
  s.set("for", a.target.framework);
  std::string more;
  for (const runfile::Override& o : a.common.implied) more += o.key + "=" + o.value + "\n";
  for (const std::string& setting : a.common.settings) more += setting + "\n";
  if (!a.target.host_budget.empty()) more += "memory.host_budget=" + a.target.host_budget + "\n";
  if (a.target.safe) more += "plan.safe=true\n";
  s.set("more", more);
  return s.text();
}

/// False where there is no such program, or it says at once that it has failed.
bool opens(const char* program, const std::string& address) {
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  // A browser writes messages of its own.
  for (const int out : {STDOUT_FILENO, STDERR_FILENO})
    posix_spawn_file_actions_addopen(&actions, out, "/dev/null", O_WRONLY, 0);
  std::string name = program, url = address;
  char* argv[] = {name.data(), url.data(), nullptr};
  pid_t child = -1;
  const int error = ::posix_spawnp(&child, program, &actions, nullptr, argv, environ);
  posix_spawn_file_actions_destroy(&actions);
  if (error) return false;
  for (int tenths = 0, status = 0; tenths < 20; ++tenths, ::usleep(100'000))
    if (::waitpid(child, &status, WNOHANG) == child) return WIFEXITED(status) && WEXITSTATUS(status) == 0;
  return true;  // a browser that this program has started itself
}

}  // namespace

std::string planner_page(const PlanArguments& a) {
  const std::string state = state_of(a);
  std::string page = installed_page();
  const std::size_t at = page.find(kPlace);
  if (at == std::string::npos)
    throw run_error("--web: the planner page of this installation has no place for a run",
                    "install it again");
  std::string text = JsonValue(state).dump();  // "%3C" is all that the encoding leaves of "<"
  return page.replace(at, std::string_view(kPlace).size(),
                      "<script id=\"state\" type=\"application/json\">" + text + "</script>");
}

void show_planner_page(const PlanArguments& a) {
  const bool open = a.web == "true";
  fs::path file = a.web;
  if (open) {
    file = plugin::default_cache_file();
    if (file.empty()) throw usage_error("--web: there is no cache folder to write the page to", kExample);
    file.replace_filename("planner.html");
    std::error_code failed;
    fs::create_directories(file.parent_path(), failed);
  }
  checkpoint::require_writable("--web", file, kExample);
  checkpoint::write_output("--web", file, planner_page(a), kExample);
  const std::string path = fs::absolute(file).lexically_normal().string();
  const std::string url = "file://" + path;
  const char* browser = std::getenv("BROWSER");
  const bool opened = open && ((browser && *browser && opens(browser, url)) || opens("xdg-open", url));
  if (a.common.json)
    fmt::print(result_stream(), "{}\n", JsonValue({{"file", path}, {"opened", opened}}).dump());
  else if (!a.common.quiet)
    write_stderr(fmt::format("{}{}\n", path,
                             opened || !open ? "" : ": no browser could be started; open this file in one"));
}

}  // namespace trainhost::cli
