// The dynamic linker's cache, /etc/ld.so.cache, as bytes: the names in it. It is root's file, but it is read
// as carefully as any other. Opens nothing; who asks: links.cpp.
#pragma once
#include <set>
#include <string>
#include <string_view>

namespace trainhost::plugin {

/// Sonames in it, each shorter than 256 bytes; empty when the layout is another than "glibc-ld.so.cache1.1",
/// which stands alone or after an older part.
std::set<std::string> sonames_in_cache(std::string_view bytes);

}  // namespace trainhost::plugin
