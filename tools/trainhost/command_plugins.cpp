// trainhost plugins list | info | new: what was found, what became of it, and why.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "core/base/text.hpp"
#include "core/report/terminal.hpp"
#include "core/report/text_table.hpp"
#include "tools/trainhost/command_plugins_check.hpp"
#include "tools/trainhost/command_plugins_new.hpp"
#include "tools/trainhost/options.hpp"

namespace trainhost::cli {
namespace {

using Json = nlohmann::ordered_json;

const char* word(plugin::Status s) {
  return s == plugin::Status::kOk ? "ok" : s == plugin::Status::kUnavailable ? "unavailable" : "rejected";
}

Json to_json(const plugin::Candidate& c) {
  return {{"name", c.manifest.id.empty() ? c.file.stem().string() : c.manifest.id},
          {"kind", c.manifest.kind},
          {"version", c.manifest.version},
          {"file", c.file.string()},
          {"status", word(c.status)},
          {"reason", c.reason},
          {"families", c.manifest.families},
          {"stage", c.stage},
          {"code", c.code},
          {"hint", c.hint},
          {"native_domain", c.native.domain},
          {"native_code", c.native.code},
          {"summary", c.manifest.summary},
          {"options", c.manifest.options},
          {"priority", c.manifest.priority},
          {"abi", c.manifest.abi},
          {"device", c.manifest.device},
          {"interfaces", c.manifest.interfaces},
          {"modes", c.manifest.modes},
          {"dtypes", c.manifest.dtypes},
          {"cpu", c.manifest.cpu},
          {"requires", c.manifest.libraries},
          {"warnings", c.warnings},
          {"remembered", c.from_cache}};
}

std::string printed(const Json& j) { return j.dump(2, ' ', false, Json::error_handler_t::replace); }

class Plugins : public Command {
 public:
  void add(CLI::App& root) override {
    app_ = root.add_subcommand("plugins", "estimators and trainers that were found");
    app_->require_subcommand(0, 1);
    list_ = app_->add_subcommand("list", "one line for every candidate file, with its state and the reason");
    add_options(*list_, o_, kPlugins);
    list_->footer("Example:\n  trainhost plugins list -v");
    info_ = app_->add_subcommand("info", "the manifest of one plugin, read without running its code");
    add_options(*info_, o_, kPlugins);
    info_->add_option("NAME", name_, "the plugin's id, or a file")->required();
    info_->footer("Example:\n  trainhost plugins info cpu");
    new_.add(*app_);
    check_.add(*app_);
    app_->footer("Example:\n  trainhost plugins list");
    for (CLI::App* a : {list_, info_}) a->allow_extras();
  }
  CLI::App* app() const override { return app_; }
  Exit run() override {
    if (new_.parsed()) return new_.run();
    if (check_.parsed()) return check_.run();
    if (info_->parsed() && is_file(name_))
      return show(plugin::inspect(std::filesystem::canonical(name_)),
                  " as a file, with its manifest; it was not loaded");
    auto registry = make_registry(o_, nullptr);
    if (info_->parsed()) return info(*registry);
    registry->probe_all();
    return list(*registry);
  }

 private:
  /// A word with a slash or an ending is a path when something is there; a bare word is a plugin's id.
  static bool is_file(const std::string& name) {
    std::error_code failed;
    return (name.find('/') != name.npos || name.ends_with(".so")) && std::filesystem::exists(name, failed);
  }

  Exit list(plugin::Registry& registry) {
    if (o_.json) {
      Json all = Json::array();
      for (const plugin::Candidate& c : registry.candidates()) all.push_back(to_json(c));
      fmt::print("{}\n", printed({{"plugins", std::move(all)}}));
      return Exit::kDone;
    }
    report::Table table("lllll");
    table.row({"name", "kind", "version", "status", "for"});
    table.rule();
    for (const plugin::Candidate& c : registry.candidates())
      table.row({escaped(c.manifest.id.empty() ? c.file.filename().string() : c.manifest.id), c.manifest.kind,
                 escaped(c.manifest.version), word(c.status),
                 c.reason.empty() ? escaped(first_of(c.manifest.families)) : escaped(c.reason)});
    fmt::print("{}", table.str());
    if (o_.verbose)
      for (const plugin::Candidate& c : registry.candidates()) fmt::print("{}\n", explained(c));
    return Exit::kDone;
  }

  /// One line: path, state, stage and code, the plugin's own words, what to do about it.
  static std::string explained(const plugin::Candidate& c) {
    std::string line = fmt::format("  {}  {}", escaped(c.file.string(), 4096), word(c.status));
    if (!c.code.empty()) line += fmt::format(" {}/{}", c.stage, c.code);
    if (!c.reason.empty()) line += ": " + escaped(c.reason, 1000);
    if (!c.hint.empty()) line += " (" + escaped(c.hint, 1000) + ")";
    if (c.from_cache) line += " [remembered]";
    for (const std::string& w : c.warnings) line += "; warning: it " + escaped(w, 1000);
    return line;
  }

  /// "llama mistral qwen2 qwen3 and 26 more": `info` has them all.
  static std::string first_of(const std::vector<std::string>& families) {
    constexpr std::size_t kShown = 4;
    const std::size_t n = std::min(kShown, families.size());
    const std::string shown = fmt::format(
        "{}", fmt::join(families.begin(), families.begin() + static_cast<std::ptrdiff_t>(n), " "));
    return families.size() == n ? shown : fmt::format("{} and {} more", shown, families.size() - n);
  }

  Exit info(plugin::Registry& registry) {
    const plugin::Candidate* c = registry.find(name_);
    if (!c)
      for (const plugin::Candidate& k : registry.candidates())
        if (k.file == name_ || k.file.filename() == name_ || k.file.stem() == name_) c = &k;
    if (!c) {
      std::vector<std::string> names;
      for (const plugin::Candidate& k : registry.candidates())
        names.push_back(k.manifest.id.empty() ? k.file.filename().string() : k.manifest.id);
      throw usage_error("no plugin '" + escaped(name_) + "'" + did_you_mean(name_, names),
                        "trainhost plugins list");
    }
    return show(*c);
  }

  /// known: what a status of ok rests on, where that is less than having loaded it.
  Exit show(const plugin::Candidate& candidate, const char* known = "") {
    const plugin::Candidate* c = &candidate;
    if (o_.json) {
      fmt::print("{}\n", printed(to_json(*c)));
      return Exit::kDone;
    }
    report::Table t("ll");
    t.row({"name", escaped(c->manifest.id)});
    t.row({"kind", c->manifest.kind});
    t.row({"version", escaped(c->manifest.version)});
    t.row({"summary", escaped(c->manifest.summary)});
    t.row({"families", escaped(fmt::format("{}", fmt::join(c->manifest.families, " ")))});
    t.row({"options", escaped(fmt::format("{}", fmt::join(c->manifest.options, " ")))});
    row(t, "abi", {c->manifest.abi});
    row(t, "device", {c->manifest.device});
    row(t, "interfaces", c->manifest.interfaces);
    row(t, "modes", c->manifest.modes);
    row(t, "dtypes", c->manifest.dtypes);
    row(t, "cpu", c->manifest.cpu);
    row(t, "requires", c->manifest.libraries);
    t.row({"file", escaped(c->file.string())});
    t.row({"status", word(c->status) + std::string(c->status == plugin::Status::kOk ? known : "")});
    if (!c->reason.empty()) t.row({"reason", escaped(c->reason)});
    if (!c->hint.empty()) t.row({"hint", escaped(c->hint)});
    fmt::print("{}", t.str());
    return Exit::kDone;
  }

  /// What a manifest leaves out has no line.
  static void row(report::Table& t, const char* name, const std::vector<std::string>& words) {
    const std::string text = fmt::format("{}", fmt::join(words, " "));
    if (!text.empty()) t.row({name, escaped(text, 1000)});
  }

  CLI::App *app_ = nullptr, *list_ = nullptr, *info_ = nullptr;
  NewPlugin new_;
  Options o_;
  PluginsCheck check_;
  std::string name_;
};

}  // namespace

std::unique_ptr<Command> plugins_command() { return std::make_unique<Plugins>(); }

}  // namespace trainhost::cli
