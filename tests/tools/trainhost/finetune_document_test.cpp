// docs/finetune.md is carried out: every command of its console blocks runs, in the order of the document, on
// a small model and generated chats, and its output has the lines that the document shows. The numbers in the
// document are of another model, so lines are compared without their numbers, except where a command names a
// preset: plans of presets, and the memory table, are the same everywhere.
#include <sys/wait.h>

#include <boost/test/unit_test.hpp>
#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/support/chat_model.hpp"
#include "tests/support/text_patterns.hpp"

using namespace trainhost::test;
namespace fs = std::filesystem;
using json = nlohmann::json;

namespace {

struct Example {
  int line = 0;  // of the document
  std::string command;
  std::vector<std::string> shown;  // its output; "..." stands for any lines
};

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

std::vector<Example> examples_in(const std::vector<std::string>& document) {
  std::vector<Example> found;
  bool in_console = false, continues = false;
  for (std::size_t i = 0; i < document.size(); ++i) {
    const std::string& line = document[i];
    if (line.starts_with("```")) {
      in_console = line == "```console";
    } else if (in_console && (line.starts_with("$ ") || continues)) {
      if (!continues) found.push_back({static_cast<int>(i + 1), "", {}});
      std::string& command = found.back().command;
      continues = line.ends_with("\\");
      command += line.substr(line.starts_with("$ ") ? 2 : 0);
      if (continues) command.pop_back();
    } else if (in_console) {
      found.back().shown.push_back(line);
    }
  }
  return found;
}

/// A line of output without numbers, units of numbers, bars, the number of spaces, and what differs between
/// processors: the precision that pays, and MFU, for which the peak rate must be known.
std::string shape(std::string line) {
  const char* const rules[][2] = {
      {R"re(train\.precision = "[a-z0-9]+", |\b(bf16|fp32), )re", ""},
      {R"([0-9]([0-9.,:]*[0-9])?(e[-+][0-9]+)?)", "#"},
      {R"(# ?([KMG]i)?B\b|#[KM])", "#"},
      {R"((, )?MFU # ?%)", ""},
      {"# %", "#"},
      {"[\x80-\xff]+", ""},  // bars
      {" +", " "},
  };
  for (const auto& [pattern, by] : rules) line = replace_patterns(line, pattern, by);
  while (line.ends_with(' ')) line.pop_back();
  return line;
}

/// True if `line` of the output is the one that the document shows; "..." at its end stands for the rest.
bool agrees(std::string shown, std::string line, bool exactly) {
  const bool is_prefix = shown.ends_with("...");
  if (is_prefix) shown.resize(shown.size() - 3);
  if (!exactly) shown = shape(shown), line = shape(line);
  return is_prefix ? line.starts_with(shown) : line == shown;
}

/// The first line of the document that the output lacks, after those before it; "" if it has all.
std::string missing_line(const std::vector<std::string>& shown, const std::vector<std::string>& output,
                         bool exactly) {
  auto at = output.begin();
  for (const std::string& line : shown) {
    if (line.empty() || line == "...") continue;
    at = std::find_if(at, output.end(), [&](const std::string& o) { return agrees(line, o, exactly); });
    if (at == output.end()) return line;
    ++at;
  }
  return "";
}

const std::string kDocument = read_file(fs::path(TRAINHOST_SOURCE_DIR) / "docs/finetune.md");

}  // namespace

BOOST_AUTO_TEST_SUITE(finetune_document)

BOOST_AUTO_TEST_CASE(every_command_succeeds_and_prints_what_the_document_shows) {
  TemporaryDirectory tmp;
  write_chat_model(tmp, "SmolLM-135M");
  tmp.write("chat.jsonl", chats(100));
  const std::vector<Example> examples = examples_in(lines_of(kDocument));
  BOOST_TEST(examples.size() >= 10u);
  for (const Example& e : examples) {
    tmp.write("command.sh",
              "export CUDA_VISIBLE_DEVICES=\nPATH=" + fs::path(program()).parent_path().string() +
                  ":$PATH\ncd " + tmp.path().string() + "\n" + e.command + "\n");
    const int status = std::system(
        ("sh " + (tmp / "command.sh").string() + " > " + (tmp / "output").string() + " 2>&1 < /dev/null")
            .c_str());
    std::string output = read_file(tmp / "output");
    const std::string where = "docs/finetune.md:" + std::to_string(e.line) + ": " + e.command + "\n";
    BOOST_TEST((WIFEXITED(status) && WEXITSTATUS(status) == 0), where << output);
    output = replace_patterns(output, tmp.path().string() + "/", "");
    const bool preset = has(e.command, "--model=");
    const std::string missing = missing_line(e.shown, lines_of(output), preset);
    BOOST_TEST(missing.empty(), where << "the output has no line '" << missing << "' there:\n" << output);
  }
}

// | `llama-3-8b` | 135 GiB | 16.2 GiB | 6.58 GiB |
BOOST_AUTO_TEST_CASE(the_memory_table_is_that_of_the_plans) {
  const std::vector<std::vector<std::string>> kinds = {
      {},
      {"lora.rank=16", "lora.targets=[\"all-linear\"]"},
      {"lora.rank=16", "lora.targets=[\"all-linear\"]", "lora.base=nf4", "lora.double_quant=true"}};
  const char* row = R"(\| `([a-z0-9.-]+)` \| ([0-9.]+) GiB \| ([0-9.]+) GiB \| ([0-9.]+) GiB \|)";
  int rows = 0;
  for (const std::string& line : lines_of(kDocument)) {
    const Match cells = match_pattern(line, row);
    if (cells.empty()) continue;
    ++rows;
    for (std::size_t kind = 0; kind < kinds.size(); ++kind) {
      std::vector<std::string> words = {"plan", "--model=" + cells[1], "--device=b200-180gb", "--json"};
      for (const char* setting : {"data.seq_len=1024", "train.recompute=full"})
        words.insert(words.end(), {"--set", setting});
      for (const std::string& setting : kinds[kind]) words.insert(words.end(), {"--set", setting});
      const Outcome r = run_program(words);
      BOOST_REQUIRE_MESSAGE(r.code == 0, r.err);
      const json plan = json::parse(r.out);
      double gib = 0;
      for (const json& tier : plan["estimates"][0]["tiers"])
        if (tier["tier"] == "device") gib = tier["total_bytes"].get<double>() / (1 << 30);
      const double shown = std::stod(cells[kind + 2]);
      BOOST_TEST(std::abs(gib - shown) <= 0.006 * shown, line << " column " << kind << ": " << gib);
    }
  }
  BOOST_TEST(rows >= 3);
}

BOOST_AUTO_TEST_SUITE_END()
