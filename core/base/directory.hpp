// Lists a directory. An allocation that fails in std::filesystem::directory_iterator of libstdc++ ends the
// process, because its increment is noexcept; here it throws std::bad_alloc.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <system_error>
#include <vector>

namespace trainhost {

/// Names of the entries, without "." and "..", in no particular order; at most `most`. `error` is set if the
/// directory cannot be opened or not be read to its end, and cleared otherwise.
std::vector<std::string> names_in_directory(const std::string& directory, std::error_code& error,
                                            std::size_t most = SIZE_MAX);

}  // namespace trainhost
