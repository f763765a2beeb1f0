// The table of docs/architecture.md: who may include whom. Reads the sources as text; a file whose folder has
// no row is an error, so that every new folder states what it includes.
#include <boost/test/unit_test.hpp>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "tests/support/text_patterns.hpp"

namespace fs = std::filesystem;

namespace {

// Folder -> what its files may include from this project, besides themselves. The longest matching prefix
// counts.
const std::map<std::string, std::vector<std::string>> kTable = {
    {"sdk/include/trainhost", {"trainhost/"}},
    {"sdk/abi", {"trainhost/", "sdk/abi/"}},
    {"core/base", {}},
    {"core/process", {"core/base/"}},
    {"core/machine", {"core/base/"}},
    {"core/model", {"core/base/"}},
    {"core/numerics", {"core/base/", "core/model/"}},
    {"core/step", {"core/base/", "core/model/"}},
    {"core/placement", {"core/base/", "core/model/", "core/step/"}},
    {"core/parallel", {"core/base/", "core/model/"}},
    {"core/frameworks", {"core/base/", "core/model/"}},
    {"core/abi", {"trainhost/", "core/base/", "core/model/", "core/step/", "core/placement/"}},
    {"core/executor",
     {"trainhost/", "core/base/", "core/model/", "core/step/", "core/placement/", "core/abi/"}},
    {"core/runfile", {"core/base/", "core/model/"}},
    {"core/framework_files", {"core/base/", "core/model/", "core/runfile/"}},
    {"core/tokenizer", {"core/base/"}},
    {"core/records", {"core/base/"}},
    {"core/data", {"core/base/", "core/model/", "core/records/", "core/tokenizer/"}},
    {"core/checkpoint", {"core/base/", "core/model/"}},
    {"core/plugin", {"trainhost/", "core/base/", "core/process/", "core/model/", "core/abi/"}},
    {"core/plugin_validator",
     {"trainhost/", "core/base/", "core/model/", "core/abi/", "core/process/", "core/plugin/",
      "core/numerics/"}},
    {"core/plugin_template", {"core/base/"}},
    {"core/planning",
     {"trainhost/", "core/base/", "core/process/", "core/model/", "core/step/", "core/placement/",
      "core/parallel/", "core/runfile/", "core/data/", "core/checkpoint/", "core/plugin/"}},
    {"core/training",
     {"trainhost/", "core/base/", "core/process/", "core/model/", "core/step/", "core/placement/",
      "core/parallel/", "core/runfile/", "core/data/", "core/records/", "core/tokenizer/", "core/checkpoint/",
      "core/plugin/", "core/planning/"}},
    {"core/evaluation", {"core/base/", "core/data/", "core/plugin/", "core/records/", "core/tokenizer/"}},
    {"core/verify",
     {"trainhost/", "core/base/", "core/process/", "core/model/", "core/step/", "core/placement/",
      "core/parallel/", "core/runfile/", "core/data/", "core/checkpoint/", "core/plugin/", "core/planning/",
      "core/training/", "core/numerics/"}},
    {"core/report",
     {"core/base/", "core/model/", "core/checkpoint/", "core/plugin/", "core/planning/", "core/training/",
      "core/verify/"}},
    {"core/live", {"core/base/", "core/report/", "core/training/"}},
    {"plugins/common",
     {"trainhost/", "core/base/", "core/model/", "core/step/", "core/placement/", "core/abi/",
      "core/executor/"}},
    {"plugins/cpu",
     {"trainhost/", "core/base/", "core/process/", "core/model/", "core/step/", "core/placement/",
      "core/abi/", "core/executor/", "plugins/common/"}},
    {"plugins/mpi", {"trainhost/", "core/base/", "core/process/", "core/abi/", "plugins/common/"}},
    {"plugins/nccl",
     {"trainhost/", "core/base/", "core/process/", "core/abi/", "plugins/common/", "plugins/cuda/common/",
      "plugins/cuda/front_end/"}},
    {"plugins/cuda",
     {"trainhost/", "core/base/", "core/model/", "core/step/", "core/placement/", "core/abi/",
      "core/executor/", "plugins/common/"}},
    {"plugins/estimators",
     {"trainhost/", "core/base/", "core/model/", "core/parallel/", "core/frameworks/", "core/step/",
      "core/placement/", "core/abi/"}},
    {"sdk/examples",
     {"trainhost/", "core/executor/", "core/step/", "core/placement/", "core/abi/", "core/model/",
      "core/base/"}},
    {"sdk/python", {"core/", "tools/trainhost/"}},
    {"tools", {"core/"}},
    {"tools/gpu", {"core/abi", "plugins/cuda/common", "plugins/cuda/kernels"}},
};

// Libraries that only these folders may name; everything else in <> is the standard library's or the
// system's.
const std::map<std::string, std::vector<std::string>> kLibraries = {
    {"boost/", {"core/live", "core/plugin", "core/plugin_validator"}},
    {"toml++/", {"core/base"}},
    {"yaml-cpp/", {"core/framework_files"}},
    {"nlohmann/", {}},
    {"sentencepiece", {"core/tokenizer"}},
    {"pcre2", {"core/tokenizer"}},
    {"utf8proc", {"core/tokenizer"}},
    {"zlib", {"core/report"}},
    {"cblas", {"plugins/cpu"}},
    {"CLI/", {"tools"}},
    {"nanobind/", {"sdk/python"}},
    {"cuda", {"plugins/cuda", "tools/gpu"}},
    {"cublas", {"plugins/cuda", "tools/gpu"}},
    {"cudnn", {"plugins/cuda"}},
    {"fmt/",
     {"core/live", "core/numerics", "core/machine", "core/plugin_validator", "core/process", "core/runfile",
      "core/framework_files", "core/data", "core/checkpoint", "core/plugin", "core/planning", "core/training",
      "core/report", "core/verify", "tools", "plugins"}},
};

// Headers that the pure middle must not name: files, clocks, environment, threads.
const std::vector<std::string> kImpure = {"fstream", "filesystem", "chrono",   "thread",
                                          "cstdlib", "iostream",   "unistd.h", "ctime"};

std::string row_of(const std::string& file) {
  std::string best;
  for (const auto& [folder, may] : kTable)
    if (file.rfind(folder + "/", 0) == 0 && folder.size() > best.size()) best = folder;
  return best;
}

bool allowed(const std::vector<std::string>& prefixes, const std::string& header) {
  for (const std::string& p : prefixes)
    if (header.rfind(p, 0) == 0) return true;
  return false;
}

/// Every breach in one file's text, as sentences.
std::vector<std::string> breaches(const std::string& file, const std::string& text) {
  std::vector<std::string> out;
  std::string row = row_of(file);
  if (row.empty()) return {file + ": no row in the include table for its folder"};
  const std::string include = R"re(^\s*#\s*include\s*(["<])([^">]+)[">])re";
  std::string line;
  std::istringstream in(text);
  while (std::getline(in, line)) {
    const trainhost::test::Match m = trainhost::test::find_pattern(line, include);
    if (m.empty()) continue;
    const std::string& header = m[2];
    if (m[1] == "\"") {
      std::string own = row == "sdk/include/trainhost" ? "trainhost/" : row + "/";
      bool local = header.find('/') == std::string::npos;  // beside the file
      if (!local && header.rfind(own, 0) != 0 && !allowed(kTable.at(row), header))
        out.push_back(file + ": " + row + " may not include \"" + header + "\"");
    } else {
      for (const auto& [library, folders] : kLibraries)
        if (header.rfind(library, 0) == 0 && !allowed(folders, row) &&
            !(row.rfind("plugins/", 0) == 0 && allowed(folders, "plugins")))
          out.push_back(file + ": " + row + " may not include <" + header + ">");
      if (row == "core/step" || row == "core/placement" || row == "core/model" || row == "core/base")
        for (const std::string& h : kImpure)
          if (header == h && !(row != "core/step" && row != "core/placement" && h == "cstdlib"))
            out.push_back(file + ": the pure middle may not include <" + header + ">");
    }
  }
  return out;
}

bool is_source(const fs::path& p) {
  static const std::set<std::string> kEndings = {".cpp", ".hpp", ".h", ".c", ".cu", ".cuh", ".inc"};
  return kEndings.count(p.extension().string()) > 0;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(include_table)

BOOST_AUTO_TEST_CASE(every_file_includes_only_what_its_folder_may) {
  fs::path root = TRAINHOST_SOURCE_DIR;
  std::size_t files = 0;
  for (const char* top : {"core", "plugins", "sdk/abi", "sdk/include", "sdk/examples", "tools"})
    for (const auto& e : fs::recursive_directory_iterator(root / top)) {
      if (!e.is_regular_file() || !is_source(e.path())) continue;
      std::ifstream in(e.path());
      std::string text((std::istreambuf_iterator<char>(in)), {});
      ++files;
      for (const std::string& b : breaches(fs::relative(e.path(), root).string(), text)) BOOST_ERROR(b);
    }
  BOOST_TEST(files > 100u);
}

BOOST_AUTO_TEST_CASE(a_planted_breach_is_seen) {
  BOOST_TEST(breaches("core/step/x.cpp", "#include \"core/runfile/run_config.hpp\"\n").size() == 1u);
  BOOST_TEST(breaches("core/step/x.cpp", "#include <fstream>\n").size() == 1u);
  BOOST_TEST(breaches("plugins/cpu/x.cpp", "#include \"core/plugin/ledger.hpp\"\n").size() == 1u);
  BOOST_TEST(breaches("core/data/x.cpp", "#include <boost/dll.hpp>\n").size() == 1u);
  BOOST_TEST(breaches("core/new/x.cpp", "").size() == 1u);
  BOOST_TEST(breaches("core/planning/x.cpp", "#include \"core/training/train.hpp\"\n").size() == 1u);
  BOOST_TEST(breaches("core/training/x.cpp", "#include \"core/report/terminal.hpp\"\n").size() == 1u);
  BOOST_TEST(
      breaches("core/planning/x.cpp", "#include \"core/step/program.hpp\"\n#include <vector>\n").empty());
}

BOOST_AUTO_TEST_SUITE_END()
