// trainhost doctor: checks this machine and the installation. What is checked: core/machine; plugins are
// judged here.
#include <fmt/format.h>
#include <stdlib.h>

#include <algorithm>

#include "core/base/plural.hpp"
#include "core/base/text.hpp"
#include "core/machine/check_libraries.hpp"
#include "core/machine/check_machine.hpp"
#include "core/machine/system_files.hpp"
#include "core/process/host_info.hpp"
#include "core/report/terminal.hpp"
#include "core/report/text_table.hpp"
#include "tools/trainhost/result_stream.hpp"
#include "tools/trainhost/run_setup.hpp"

namespace trainhost::cli {
namespace {

using machine::Finding;
using machine::Findings;
using machine::State;

/// Plugins of the program have to work, except those whose hardware or libraries a machine need not have.
State judge_plugin(const plugin::Candidate& c, bool nvidia_device) {
  if (c.status == plugin::Status::kOk) return State::kOk;
  if (c.manifest.kind == "communicator" || c.code == "missing_library")
    return c.status == plugin::Status::kUnavailable ? State::kOk : State::kWarning;
  if (c.manifest.id == "cpu") return State::kError;
  if (c.manifest.id == "cuda") return nvidia_device ? State::kError : State::kOk;
  return State::kWarning;
}

Finding plugin_finding(const plugin::Candidate& c, bool nvidia_device) {
  const std::string name = c.manifest.id.empty() ? c.file.filename().string() : c.manifest.id;
  const char* status = c.status == plugin::Status::kOk            ? "ok"
                       : c.status == plugin::Status::kUnavailable ? "unavailable"
                                                                  : "rejected";
  Finding f{"plugins", escaped(name), judge_plugin(c, nvidia_device)};
  f.value = c.status == plugin::Status::kOk
                ? fmt::format("{} {}", escaped(c.manifest.kind), escaped(c.manifest.version))
                : fmt::format("{}: {}", status, escaped(c.reason, 1000));
  if (f.state != State::kOk)
    f.hint = c.hint.empty() ? "trainhost plugins info " + f.name : escaped(c.hint, 1000);
  f.data = {{"kind", c.manifest.kind},
            {"version", c.manifest.version},
            {"status", status},
            {"file", c.file.string()}};
  return f;
}

/// The state of every plugin after it was loaded.
Findings check_plugins(const CommonArguments& a, bool nvidia_device) {
  const auto registry = make_registry(a, nullptr);
  registry->probe_all();  // in child processes
  try {
    registry->trainer("cpu").probe();  // loads OpenBLAS in this process
  } catch (const Error&) {             // its candidate has the reason
  }
  Findings out;
  bool trainer = false;
  for (const plugin::Candidate& c : registry->candidates()) {
    out.push_back(plugin_finding(c, nvidia_device));
    trainer |= c.manifest.kind == "trainer" && c.status == plugin::Status::kOk;
  }
  if (!trainer)
    out.push_back({"plugins", "trainers", State::kError, "no trainer can be used on this machine",
                   "install trainhost again, or name the folder of the plugins: --plugin-path"});
  return out;
}

std::string environment(const char* name) {
  const char* value = ::secure_getenv(name);  // it may name a library to load
  return value ? value : "";
}

void append(Findings& to, Findings more) {
  to.insert(to.end(), std::make_move_iterator(more.begin()), std::make_move_iterator(more.end()));
}

Findings check_everything(const CommonArguments& a) {
  const std::filesystem::path root = "/";
  Findings out = machine::check_cpu(root, cpu_count());
  append(out, machine::check_memory(root));
  std::error_code ec;
  const std::filesystem::path here = std::filesystem::current_path(ec);
  out.push_back(machine::check_disk("runs", here, machine::disk_space(here)));
  if (const auto cache = plugin::default_cache_file().parent_path(); !cache.empty())
    out.push_back(machine::check_disk("cache", cache, machine::disk_space(cache)));

  const std::string cuda = environment("TRAINHOST_CUDA_DRIVER");
  const machine::CudaDriver driver = machine::query_cuda_driver(cuda.empty() ? "libcuda.so.1" : cuda);
  Findings plugins = check_plugins(a, machine::has_nvidia_device(root) || !driver.devices.empty());
  const std::string flags =
      machine::value_of_line(machine::file_text(root / "proc/cpuinfo").value_or(""), "flags");
  out.push_back(machine::check_blas(machine::loaded_blas(), flags));
  append(out, machine::check_cuda(driver, root));
  out.push_back(machine::check_cuda_runtime(
      machine::cuda_runtime_version({"libcudart.so.13", "libcudart.so.12", "libcudart.so"}), driver));
  out.push_back(machine::check_nccl(machine::nccl_version({"libnccl.so.2"}), driver.devices.size()));
  out.push_back(machine::check_mpi(machine::mpi_version({"libmpi.so.40", "libmpi.so.12", "libmpich.so.12"}),
                                   environment("PATH")));
  append(out, std::move(plugins));
  out.push_back(machine::check_locale(machine::locale_of_environment()));
  append(out, machine::check_limits(machine::process_limits(), root));
  return out;
}

std::size_t count(const Findings& all, State s) {
  return static_cast<std::size_t>(std::ranges::count(all, s, &Finding::state));
}

void print_json(const Findings& all) {
  JsonValue list = JsonValue::array();
  for (const Finding& f : all)
    list.push_back({{"group", f.group},
                    {"name", f.name},
                    {"state", machine::state_name(f.state)},
                    {"value", f.value},
                    {"hint", f.hint},
                    {"data", f.data}});
  const JsonValue out = {{"findings", std::move(list)},
                         {"warnings", count(all, State::kWarning)},
                         {"errors", count(all, State::kError)}};
  fmt::print(result_stream(), "{}\n", out.dump(2));
}

void print_table(const Findings& all, bool errors_only) {
  report::Table t("nnl");
  for (const Finding& f : all) {
    if (errors_only && f.state != State::kError) continue;
    t.row({machine::state_name(f.state),
           f.group == "limits"    ? "limit: " + f.name
           : f.group == "plugins" ? "plugin " + f.name
           : f.group == "disk"    ? "disk for " + f.name
                                  : f.name,
           f.value});
    if (!f.hint.empty()) t.row({"", "", "-> " + f.hint});
  }
  fmt::print("{}", t.str({.width = report::output_width(), .indent = ""}));
  if (!errors_only)
    fmt::print("{}, {}\n", plural(count(all, State::kError), "error"),
               plural(count(all, State::kWarning), "warning"));
}

}  // namespace

Exit run(const DoctorArguments& a) {
  const Findings all = check_everything(a.common);
  if (a.common.json)
    print_json(all);
  else
    print_table(all, a.common.quiet);
  return count(all, State::kError) ? Exit::kFalsified : Exit::kDone;
}

}  // namespace trainhost::cli
