// Content hashes of data files, which identify the data of a run, and of cached files, which show that they
// are whole. Hashing a large file takes minutes, so a hash is kept and used again while the file looks the
// same.
#pragma once
#include <filesystem>
#include <string>

#include "core/data/data_files.hpp"

namespace trainhost::data {

/// XXH3-128 of the content, 32 hexadecimal digits. It is kept in `folder`/content-hashes.json with the file's
/// path, inode, size and time of change, and with a hash over samples of the content; it is used again if all
/// of these still agree, else the file is hashed again. A folder that cannot be written costs time, not
/// correctness. Errors: those of reading.
std::string kept_content_hash(const InputFile& file, const std::filesystem::path& folder,
                              const OnRead& on_read = {});

/// A file of a cache, NAME.bin, has the hash of its content beside it, in NAME.xxh3. These write that hash
/// after the file was written, and compare it with the content; a missing hash does not agree. Errors: those
/// of reading and writing.
void write_hash_beside(const std::filesystem::path& path, const OnRead& on_read = {});
bool agrees_with_hash_beside(const InputFile& file, const OnRead& on_read = {});

}  // namespace trainhost::data
