// The planner as a function of a web page: a request and its answer are JSON texts. The code behind it is
// that of the commands `plan` and `plan --print-run` (tools/trainhost/planned_results.hpp).
#include <emscripten/emscripten.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "core/base/json_value.hpp"
#include "core/base/text.hpp"
#include "core/model/architecture.hpp"
#include "core/model/presets.hpp"
#include "core/report/html_style.hpp"
#include "core/report/plan_report.hpp"
#include "core/runfile/run_config.hpp"
#include "core/runfile/schema.hpp"
#include "tools/trainhost/planned_results.hpp"
#include "tools/trainhost/run_setup.hpp"
#include "tools/web/plan_request.hpp"

namespace trainhost::web {
namespace {

using Json = JsonValue;

/// The command that gives the same answer in a terminal.
void remember_command(const cli::PlanArguments& a) {
  std::vector<std::string> words = {"trainhost", "plan"};
  if (!a.common.run_file.empty()) words.push_back(a.common.run_file);
  const auto option = [&](const char* name, const std::string& value) {
    if (!value.empty()) words.push_back(std::string(name) + "=" + value);
  };
  option("--model", a.common.model);
  option("--device", a.target.device);
  option("--budget", a.target.budget);
  option("--for", a.target.framework);
  if (a.target.safe) words.push_back("--safe");
  for (const std::string& s : a.common.settings) words.insert(words.end(), {"--set", s});
  if (!a.common.from.empty()) words.push_back("--from");
  words.insert(words.end(), a.common.from.begin(), a.common.from.end());
  std::vector<char*> argv;
  for (std::string& w : words) argv.push_back(w.data());
  cli::remember_command_line(static_cast<int>(argv.size()), argv.data());
}

/// The folders of a file that do not exist, outermost first.
std::vector<std::filesystem::path> missing_folders(const std::filesystem::path& file) {
  std::vector<std::filesystem::path> missing;
  std::error_code failed;
  for (auto p = file.parent_path(); !p.empty() && !std::filesystem::exists(p, failed); p = p.parent_path())
    if (p.filename() != "." && p.filename() != "..") missing.insert(missing.begin(), p);
  return missing;
}

/// The files of the request with their folders, and none of an earlier one, in the memory of the page.
void write_files(const Json* files) {
  static std::vector<std::filesystem::path> made;  // each folder before what it contains
  std::error_code failed;
  for (; !made.empty(); made.pop_back()) std::filesystem::remove(made.back(), failed);
  if (!files) return;
  for (const JsonMember& f : files->members) {
    const std::filesystem::path file = f.key;
    const std::vector<std::filesystem::path> folders = missing_folders(file);
    if (file.has_parent_path()) std::filesystem::create_directories(file.parent_path(), failed);
    made.insert(made.end(), folders.begin(), folders.end());
    std::ofstream out(file, std::ios::binary);
    if (!out)
      throw usage_error("'" + escaped(f.key, 200) + "' cannot be the name of a file", "give it another name");
    out << f.value.string;
    made.push_back(file);
  }
}

Json answer(const Json& request) {
  const cli::PlanArguments a = arguments_of(request);
  remember_command(a);
  try {
    write_files(request.find("files"));
    const planning::PlanResult v = cli::plan_of(a);
    Json j = {{"code", v.estimates.front().fits ? 0 : 3}, {"plan", report::plan_json(v) + "\n"}};
    if (flag(request, "html")) {
      const runfile::RunConfig c = cli::load_config(a.common, cli::target_overrides(a.common, a.target));
      j["html"] = report::plan_html(v);
      j["run_file"] = runfile::without_defaults(c.resolved());
      j["command"] = cli::command_line();
    }
    return j;
  } catch (const Error& e) {
    return {{"code", static_cast<int>(e.code())}, {"error", e.full()}};
  } catch (const std::exception& e) {
    return {{"code", 1}, {"error", std::string(e.what())}};
  }
}

Json choices_of(const char* key) {
  Json all = Json::array();
  const std::string_view text = runfile::find_key(key)->choices;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find('|', begin), text.size());
    all.push_back(std::string(text.substr(begin, end - begin)));
    begin = end + 1;
  }
  return all;
}

Json lists() {
  std::vector<std::string> models;
  for (const ModelSpec& m : model_presets()) models.push_back(m.name);
  for (const ModelSpec& m : model::planned_presets()) models.push_back(m.name);
  std::sort(models.begin(), models.end());
  Json m = Json::array(), d = Json::array(), choices = Json::object();
  for (const std::string& name : models) m.push_back(name);
  for (const DevicePreset& p : device_presets())
    if (p.host_gbs != p.memory_gbs)  // not processors: the plan of their trainer depends on the machine
      d.push_back({{"name", p.name}, {"full_name", p.full_name}});
  for (const char* key : {"train.precision", "train.recompute", "optimizer.name", "lora.base"})
    choices[key] = choices_of(key);
  return {{"models", std::move(m)},
          {"devices", std::move(d)},
          {"choices", std::move(choices)},
          {"style", report::html::style()},
          {"version", TRAINHOST_VERSION}};
}

/// The text stays until the next call.
const char* keep(const Json& j) {
  static std::string text;
  text = j.dump();
  return text.c_str();
}

}  // namespace
}  // namespace trainhost::web

extern "C" {
EMSCRIPTEN_KEEPALIVE const char* trainhost_plan(const char* request) {
  using namespace trainhost;
  try {
    return web::keep(web::answer(parse_json(request)));
  } catch (const std::exception& e) {
    return web::keep({{"code", 1}, {"error", std::string("not a request: ") + e.what()}});
  }
}
EMSCRIPTEN_KEEPALIVE const char* trainhost_lists() { return trainhost::web::keep(trainhost::web::lists()); }
}
