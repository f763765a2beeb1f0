// trainhost man-pages FOLDER [DOCUMENT]: writes the manual pages of the packages to FOLDER/man1, man5 and
// man7: one per command from the options that --help lists, trainhost-run-file(5) from the schema, and
// trainhost-plugin-interface(7) from the document of the plugin interface. Called by the build; users read
// the pages with man.
#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "core/base/error.hpp"
#include "core/report/man_page.hpp"
#include "core/runfile/schema.hpp"
#include "tools/trainhost/command_options.hpp"

namespace trainhost::cli {
namespace {

using report::ManPage;

/// "trainhost-plugins-new".
std::string page_name(const CLI::App& app) {
  std::string out = app.get_parent() ? "trainhost " + full_name(app) : "trainhost";
  std::replace(out.begin(), out.end(), ' ', '-');
  return out;
}

/// "Write a run file": the beginning of a help text without its full stop, for the line NAME.
std::string summary_of(const std::string& help) {
  std::string out = help.substr(0, std::min(help.find('\n'), help.find(". ")));
  if (out.ends_with('.')) out.pop_back();
  return out;
}

/// "-q, --quiet", "--set KEY=VALUE", "RUN.toml".
std::string term_of(const CLI::Option& o) {
  std::string out;
  for (const std::string& n : o.get_snames()) out += (out.empty() ? "-" : ", -") + n;
  for (const std::string& n : o.get_lnames()) out += (out.empty() ? "--" : ", --") + n;
  if (out.empty()) out = o.get_name();
  const std::string& shown = o.get_option_text();
  return shown.find_first_not_of(' ') == shown.npos ? out : out + " " + shown;
}

/// "Examples:\n  trainhost devices\nText": indented lines are commands.
void append_footer(ManPage& page, const std::string& footer) {
  std::istringstream in(footer);
  std::string commands;
  bool examples = false;
  const auto print_commands = [&] {
    if (!commands.empty()) page.verbatim(commands);
    commands.clear();
  };
  for (std::string l; std::getline(in, l);) {
    if (l.starts_with("  ")) {
      commands += l.substr(2) + "\n";
    } else if (l == "Example:" || l == "Examples:") {
      print_commands();
      if (!std::exchange(examples, true)) page.heading("EXAMPLES");
    } else if (!l.empty()) {
      print_commands();
      page.paragraph(l);
    }
  }
  print_commands();
}

std::string command_page(const CLI::App& app) {
  const std::string shown = app.get_parent() ? "trainhost " + full_name(app) : "trainhost";
  const std::vector<const CLI::App*> below = listed_commands(app);
  std::vector<const CLI::Option*> options, arguments;
  for (const CLI::Option* o : app.get_options()) (o->get_positional() ? arguments : options).push_back(o);

  ManPage page(page_name(app), 1, summary_of(app.get_description()), TRAINHOST_VERSION);
  page.heading("SYNOPSIS");
  std::string synopsis = shown + " [OPTIONS]";
  for (const CLI::Option* o : arguments)
    synopsis += o->get_required() ? " " + term_of(*o) : " [" + term_of(*o) + "]";
  if (!below.empty()) synopsis += app.get_parent() ? " COMMAND" : " [COMMAND]";
  page.entry(synopsis, "");
  page.heading("DESCRIPTION");
  page.paragraph(app.get_description());
  if (!below.empty()) page.heading("COMMANDS");
  for (const CLI::App* a : below) page.entry(full_name(*a), a->get_description());
  if (!arguments.empty()) page.heading("ARGUMENTS");
  for (const CLI::Option* o : arguments) page.entry(term_of(*o), o->get_description());
  page.heading("OPTIONS");
  for (const CLI::Option* o : options) page.entry(term_of(*o), o->get_description());
  append_footer(page, app.get_footer());
  page.heading("SEE ALSO");
  std::string others = app.get_parent() ? "`trainhost`(1), " : "";
  for (const CLI::App* a : below) others += fmt::format("`{}`(1), ", page_name(*a));
  page.paragraph(others + "`trainhost-run-file`(5), `trainhost-plugin-interface`(7)");
  return page.text();
}

void write_page(const std::filesystem::path& file, const std::string& text) {
  std::filesystem::create_directories(file.parent_path());
  std::ofstream out(file, std::ios::binary);
  if (!(out << text) || !out.flush()) throw run_error("cannot write " + file.string());
}

void write_command_pages(const std::filesystem::path& folder, const CLI::App& app) {
  write_page(folder / "man1" / (page_name(app) + ".1"), command_page(app));
  for (const CLI::App* a : listed_commands(app)) write_command_pages(folder, *a);
}

void write_document(const std::filesystem::path& file, ManPage page, const std::string& markdown) {
  // What precedes the first heading.
  page.heading("DESCRIPTION");
  append_markdown(page, markdown);
  page.heading("SEE ALSO");
  page.paragraph("`trainhost`(1)");
  write_page(file, page.text());
}

}  // namespace

Exit run(const ManPagesArguments& a) {
  if (a.words.empty() || a.words.size() > 2)
    throw usage_error("man-pages needs a folder and may be given the document of the plugin interface");
  const std::filesystem::path folder = a.words[0];
  Parser p;
  declare_commands(p);
  write_command_pages(folder, p.root);
  write_document(
      folder / "man5/trainhost-run-file.5",
      ManPage("trainhost-run-file", 5, "the file that describes a run of trainhost", TRAINHOST_VERSION),
      runfile::run_file_reference());
  if (a.words.size() == 2) {
    std::ifstream in(a.words[1], std::ios::binary);
    const std::string text(std::istreambuf_iterator<char>(in), {});
    if (!in || text.empty()) throw run_error("cannot read " + a.words[1]);
    write_document(folder / "man7/trainhost-plugin-interface.7",
                   ManPage("trainhost-plugin-interface", 7, "write a plugin of trainhost", TRAINHOST_VERSION),
                   text);
  }
  return Exit::kDone;
}

}  // namespace trainhost::cli
