// See nonfinite.hpp. A value is not finite if all bits of its exponent are set; they are compared as bits, so
// the result does not depend on floating-point flags of the compiler.
#include "core/executor/nonfinite.hpp"

#include <algorithm>
#include <span>
#include <string_view>

#include "core/step/buffer_names.hpp"

namespace trainhost::executor {
namespace {

template <class Bits>
std::uint64_t first_with(Bits exponent, const void* data, std::uint64_t count) {
  const std::span values(static_cast<const Bits*>(data), count);
  const auto bad =
      std::find_if(values.begin(), values.end(), [&](Bits value) { return (value & exponent) == exponent; });
  return static_cast<std::uint64_t>(bad - values.begin());
}

}  // namespace

std::uint64_t first_nonfinite(DType type, const void* data, std::uint64_t count) {
  switch (type) {
    case DType::kF32:
      return first_with<std::uint32_t>(0x7F80'0000u, data, count);
    case DType::kBF16:
      return first_with<std::uint16_t>(0x7F80u, data, count);
    case DType::kF16:
      return first_with<std::uint16_t>(0x7C00u, data, count);
    case DType::kF64:
      return first_with<std::uint64_t>(0x7FF0'0000'0000'0000u, data, count);
    default:
      return count;
  }
}

/// The pass is not named: operations that do both, as the head, count as backward.
std::string describe_nonfinite(const step::Program& program, const step::Op& op, step::BufferId output,
                               std::uint64_t micro) {
  const step::Buffer& b = program[output];
  return "the first value that is not finite is " +
         (std::string_view(b.role) == step::role::kScalars ? "the loss" : "in " + b.name()) + ", made by '" +
         op_label(program, op) + "' in micro-batch " + std::to_string(micro + 1) + " of " +
         std::to_string(program.run.accumulate);
}

std::string describe_not_repeated() {
  return "computed again, all values are finite: the processor or the memory may be faulty";
}

}  // namespace trainhost::executor
