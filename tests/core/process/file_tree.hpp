// A folder of made-up files of /proc and /sys, deleted at the end.
#pragma once
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

namespace trainhost::test {

struct FileTree {
  std::filesystem::path path;
  FileTree() {
    std::string name = (std::filesystem::temp_directory_path() / "file_tree_XXXXXX").string();
    path = ::mkdtemp(name.data());
  }
  ~FileTree() { std::filesystem::remove_all(path); }
  FileTree(const FileTree&) = delete;
  void write(const std::filesystem::path& file, const std::string& text) const {
    std::filesystem::create_directories((path / file).parent_path());
    std::ofstream(path / file) << text;
  }
};

}  // namespace trainhost::test
