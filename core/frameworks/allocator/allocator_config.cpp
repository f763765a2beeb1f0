// PYTORCH_CUDA_ALLOC_CONF: "key:value,key:value", where a value may be a list in brackets. What the keys do
// is in caching_allocator.cpp. The keys are those of torch 2.15.
#include <algorithm>
#include <bit>
#include <charconv>
#include <string>
#include <vector>

#include "core/base/error.hpp"
#include "core/frameworks/allocator/caching_allocator.hpp"

namespace trainhost::frameworks {
namespace {

constexpr std::uint64_t kMebibyte = 1u << 20;
/// Locks, pinned host memory, CUDA graphs and address space: none changes which segments an eager step
/// reserves.
constexpr std::string_view kWithoutEffect[] = {
    "release_lock_on_cudamalloc",        "pinned_use_cuda_host_register",
    "pinned_num_register_threads",       "pinned_use_background_threads",
    "pinned_reserve_segment_size_mb",    "pinned_max_round_threshold_mb",
    "pinned_max_cached_size_mb",         "pinned_free_catch_all",
    "graph_capture_record_stream_reuse", "expandable_segments_reserve",
    "throw_on_cudamalloc_oom",           "expandable_segments_reserve_by_class"};
constexpr std::string_view kNotReplayed[] = {"large_segment_size_mb", "per_process_memory_fraction"};

[[noreturn]] void fail(std::string_view key, std::string_view value, const char* valid) {
  throw usage_error("plan.allocator: " + std::string(key) + " cannot be '" + std::string(value) + "'",
                    std::string("valid: ") + valid);
}

std::uint64_t whole_number(std::string_view key, std::string_view value, const char* valid) {
  std::uint64_t n = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), n);
  if (error != std::errc() || end != value.data() + value.size() || n > (std::uint64_t{1} << 40))
    fail(key, value, valid);
  return n;
}

std::uint32_t power_of_two(std::string_view key, std::string_view value) {
  const char* valid = "a power of two from 1 to 4096, or [256:1,512:2,1024:4,>:8] with sizes in MiB";
  const std::uint64_t n = whole_number(key, value, valid);
  // The allocator shifts by the logarithm; sizes and divisions are both limited to powers of two.
  if (!std::has_single_bit(n) || n > 4096) fail(key, value, valid);
  return static_cast<std::uint32_t>(n);
}

/// "256:1,512:2,>:8": divisions for sizes up to 256 MiB, 512 MiB, above. The first size counts for all
/// smaller ones.
void read_divisions(std::string_view list, AllocatorConfig& config) {
  const std::string_view key = "roundup_power2_divisions";
  auto& divisions = config.roundup_power2_divisions;
  std::size_t filled = 0;
  while (!list.empty()) {
    const std::string_view item = list.substr(0, list.find(','));
    list.remove_prefix(std::min(list.size(), item.size() + 1));
    const std::size_t colon = item.find(':');
    if (colon == std::string_view::npos) fail(key, item, "a list of SIZE_IN_MIB:DIVISIONS");
    const std::uint32_t n = power_of_two(key, item.substr(colon + 1));
    if (item.substr(0, colon) == ">") {
      std::fill(divisions.begin() + static_cast<std::ptrdiff_t>(filled), divisions.end(), n);
      filled = divisions.size();
      continue;
    }
    const auto interval =
        static_cast<std::size_t>(std::countr_zero(std::uint64_t{power_of_two(key, item.substr(0, colon))}));
    if (filled == 0)
      std::fill(divisions.begin(), divisions.begin() + static_cast<std::ptrdiff_t>(interval), n);
    divisions[interval] = n;
    filled = interval + 1;
  }
}

void read_item(std::string_view key, std::string_view value, AllocatorConfig& config) {
  if (key == "expandable_segments") {
    if (value != "True" && value != "False") fail(key, value, "True or False");
    config.expandable_segments = value == "True";
  } else if (key == "max_split_size_mb") {
    // Requests of 1 to 10 MiB share segments of 20 MiB, which must be divisible.
    const std::uint64_t n = whole_number(key, value, "a whole number of MiB, at least 20");
    if (n < 20) fail(key, value, "a whole number of MiB, at least 20");
    config.max_split_size = n * kMebibyte;
  } else if (key == "max_non_split_rounding_mb") {
    const std::uint64_t n = whole_number(key, value, "a whole number of MiB, at least 20");
    if (n < 20) fail(key, value, "a whole number of MiB, at least 20");
    config.max_non_split_rounding = n * kMebibyte;
  } else if (key == "garbage_collection_threshold") {
    double share = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), share);
    if (error != std::errc() || end != value.data() + value.size() || !(share > 0 && share < 1))
      fail(key, value, "a number between 0 and 1");
    config.garbage_collection_threshold = share;
  } else if (key == "roundup_power2_divisions") {
    if (value.size() >= 2 && value.front() == '[' && value.back() == ']')
      read_divisions(value.substr(1, value.size() - 2), config);
    else
      config.roundup_power2_divisions.fill(power_of_two(key, value));
  } else if (key == "backend") {
    // Otherwise the driver pools memory, by rules that are not published.
    if (value != "native") fail(key, value, "native; the driver's cudaMallocAsync is not replayed");
  } else if (std::find(std::begin(kNotReplayed), std::end(kNotReplayed), key) != std::end(kNotReplayed)) {
    throw usage_error("plan.allocator: " + std::string(key) + " is not replayed", "leave it out");
  } else if (std::find(std::begin(kWithoutEffect), std::end(kWithoutEffect), key) ==
             std::end(kWithoutEffect)) {
    throw usage_error("plan.allocator: unknown key '" + std::string(key) + "'",
                      "known: expandable_segments, max_split_size_mb, max_non_split_rounding_mb, "
                      "garbage_collection_threshold, roundup_power2_divisions");
  }
}

}  // namespace

AllocatorConfig parse_allocator_config(std::string_view text) {
  // Spaces mean nothing; torch ignores them too.
  std::string compact;
  for (const char c : text)
    if (c != ' ') compact += c;
  AllocatorConfig config;
  std::string_view rest = compact;
  while (!rest.empty()) {
    const std::size_t colon = rest.find(':');
    if (colon == std::string_view::npos)
      throw usage_error("plan.allocator: '" + std::string(rest) + "' has no value",
                        "write KEY:VALUE,KEY:VALUE");
    const std::string_view key = rest.substr(0, colon);
    rest.remove_prefix(colon + 1);
    // A list contains commas: the value ends with its bracket.
    const bool list = !rest.empty() && rest.front() == '[';
    const std::size_t close = list ? rest.find(']') : rest.find(',');
    const std::size_t length = close == std::string_view::npos ? rest.size() : close + (list ? 1 : 0);
    read_item(key, rest.substr(0, length), config);
    rest.remove_prefix(length);
    if (!rest.empty() && rest.front() == ',') rest.remove_prefix(1);
  }
  return config;
}

}  // namespace trainhost::frameworks
