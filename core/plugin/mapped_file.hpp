// Checks that the library that was mapped is the file that was validated. Another process may replace the
// file between validation and loading; the dynamic linker opens by path, so the mapping is checked
// afterwards. Linux only.
#pragma once
#include <filesystem>

#include "core/plugin/file_validation.hpp"

namespace trainhost::plugin {

/// Keeps the validated file mapped while it is loaded.
class MappedFileCheck {
 public:
  /// Throws Rejection (load/changed) if the file at `path` is no longer `id`.
  MappedFileCheck(const std::filesystem::path& path, const FileId& id);
  ~MappedFileCheck();
  MappedFileCheck(const MappedFileCheck&) = delete;

  /// Throws Rejection (load/changed) if the mapping that contains `address` is of another file. Both
  /// mappings are compared in /proc/self/maps, because its device numbers may differ from those of stat()
  /// on layered file systems.
  void require_mapped_at(const void* address) const;

 private:
  void* page_ = nullptr;
  FileId id_;
};

}  // namespace trainhost::plugin
