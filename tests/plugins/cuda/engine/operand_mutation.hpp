// One operand of one operation of a step program, replaced while operand_mutation.cpp executes it.
#pragma once
#include <cstdint>
#include <string>

#include "core/step/program.hpp"

namespace trainhost::test {

/// What happens to the operation. Zeros and ones replace the contents of the operand.
enum class Replacement { kZeros, kOnes, kLeftOut, kLastRowLeftOut };

struct OperandMutation {
  step::SectionKind section{};
  step::OpKind kind{};
  std::int32_t layer = -1;  // of the operation
  unsigned slot = 0;
  std::string role;        // of the buffer in that slot
  std::uint32_t copy = 0;  // enum step::Copy of that buffer
  auto operator<=>(const OperandMutation&) const = default;
};

/// The mutation of `op`'s operand in `slot`.
OperandMutation mutation_of(const step::Program& p, const step::Op& op, unsigned slot);

/// The selected mutation; null: the executor is correct. Read by threads of the emulation while work is
/// pending.
struct SelectedMutation {
  const OperandMutation* mutation = nullptr;
  Replacement replacement = Replacement::kZeros;
};
extern SelectedMutation selected;

}  // namespace trainhost::test
