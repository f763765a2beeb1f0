// See abi_view.hpp.
#include "core/plugin/abi_view.hpp"

#include <algorithm>

namespace trainhost::plugin {
namespace {

constexpr AbiStruct kStructs[] = {
#define ABI_STRUCT(minor, name, size) {minor, size, #name},
#define ABI_FIELD(of, offset, size, name)
#include "abi_sizes.inc"
#undef ABI_STRUCT
#undef ABI_FIELD
};

constexpr AbiField kFields[] = {
#define ABI_STRUCT(minor, name, size)
#define ABI_FIELD(of, offset, size, name) {offset, size, #of, #name},
#include "abi_sizes.inc"
#undef ABI_STRUCT
#undef ABI_FIELD
};

bool zero(const std::byte* from, std::size_t bytes) {
  return std::all_of(from, from + bytes, [](std::byte b) { return b == std::byte{0}; });
}

}  // namespace

const std::span<const AbiStruct> kAbiStructs = kStructs;
const std::span<const AbiField> kAbiFields = kFields;

std::string AbiView::shrink_bytes(std::byte* at, const char* name, std::uint32_t whole) const {
  std::uint32_t size = whole;
  for (const AbiStruct& s : kAbiStructs)
    if (s.minor == minor_ && std::strcmp(s.name, name) == 0) size = std::min(whole, s.size);
  std::string unseen;
  if (!zero(at + size, whole - size))
    for (const AbiField& f : kAbiFields)
      if (unseen.empty() && f.offset >= size && std::strcmp(f.of, name) == 0 && !zero(at + f.offset, f.size))
        unseen = std::string(name) + "." + f.name;
  std::memset(at + size, 0, whole - size);
  std::memcpy(at, &size, sizeof size);  // struct_size
  return unseen;
}

}  // namespace trainhost::plugin
