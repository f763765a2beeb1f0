// See type_names.hpp.
#include "core/model/type_names.hpp"

#include <type_traits>
#include <utility>

namespace trainhost {
namespace {

constexpr std::pair<DType, std::string_view> kTypes[] = {
    {DType::kNone, "none"}, {DType::kF32, "fp32"}, {DType::kTF32, "tf32"},
    {DType::kBF16, "bf16"}, {DType::kF16, "fp16"}, {DType::kF8, "fp8"},
    {DType::kI8, "int8"},   {DType::kI4, "int4"},  {DType::kNF4, "nf4"}};
constexpr std::pair<Tier, std::string_view> kPlaces[] = {
    {Tier::kDevice, "none"}, {Tier::kHost, "cpu"}, {Tier::kPinned, "cpu"}, {Tier::kDisk, "nvme"}};

template <class Table>
auto value_in(const Table& table, std::string_view word)
    -> std::optional<std::remove_const_t<decltype(table[0].first)>> {
  for (const auto& [value, name] : table)
    if (name == word) return value;
  return std::nullopt;
}

template <class Table, class Value>
std::string_view word_in(const Table& table, Value v, std::string_view otherwise) {
  for (const auto& [value, name] : table)
    if (value == v) return name;
  return otherwise;
}

}  // namespace

std::string_view type_word(DType t) { return word_in(kTypes, t, name(t)); }
std::optional<DType> type_of_word(std::string_view word) { return value_in(kTypes, word); }
std::string_view offload_word(Tier t) { return word_in(kPlaces, t, name(t)); }
std::optional<Tier> tier_of_word(std::string_view word) { return value_in(kPlaces, word); }

}  // namespace trainhost
