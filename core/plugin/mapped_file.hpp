// Whether what was mapped is the file that was looked at. Between looking and loading somebody may put
// another file in its place; the dynamic linker opens by path, so it is asked afterwards what it really has.
// Linux only.
#pragma once
#include <filesystem>

#include "core/plugin/file_validation.hpp"

namespace trainhost::plugin {

/// Holds the very file that was looked at while it is loaded.
class SeenFile {
 public:
  /// Throws Refused (load/changed) when the file at `path` is no longer `id`.
  SeenFile(const std::filesystem::path& path, const FileId& id);
  ~SeenFile();
  SeenFile(const SeenFile&) = delete;

  /// Throws Refused (load/changed) when the mapping around `address` is of another file. Both are looked up
  /// in /proc/self/maps, whose device numbers need not be those of stat() on layered file systems.
  void require_mapped_at(const void* address) const;

 private:
  void* page_ = nullptr;
};

}  // namespace trainhost::plugin
