// The "too large" error of checked.hpp, and its extension with the largest factors.
#include "core/base/checked.hpp"

#include <algorithm>

namespace trainhost {

void throw_too_large(const char* what) {
  throw usage_error(std::string(what) + " is too large: it does not fit in 63 bits",
                    "the largest size is 9223372036854775807");
}

bool is_too_large(const Error& e) {
  const std::string message = e.what();
  return message.find("does not fit in 63 bits") != message.npos &&
         message.find("the largest numbers in it") == message.npos;
}

Error with_largest(const Error& e, std::vector<std::pair<std::string, std::uint64_t>> numbers,
                   const Where& where) {
  constexpr std::size_t kMaxListed = 4;
  std::stable_sort(numbers.begin(), numbers.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  std::string list;
  for (std::size_t i = 0; i < numbers.size() && i < kMaxListed && numbers[i].second > 1; ++i)
    list += (i ? ", " : "") + numbers[i].first + " = " + std::to_string(numbers[i].second);
  if (list.empty()) return Error(e.code(), e.what(), e.hint(), where);
  return Error(e.code(), std::string(e.what()) + "; the largest numbers in it are " + list, e.hint(), where);
}

}  // namespace trainhost
