// Modes that keep part of a run in host memory, as transforms over the program that has everything on the
// device.
//
//   hybrid    embedding and cross-entropy on the host; three transfers of class `activation` a micro-batch:
//   hidden states
//             up, logits down, their gradients up. Two micro-batches are in flight where there are several:
//             the executor runs forward i + 1 before backward i, and what lives from one part to the other
//             has two instances.
//   streamed  weights, gradients and optimizer state in host memory; a layer's weights are copied up while
//   the layer
//             before it computes, its gradients down while the next one does.
//
// In both, "Op runs where its first operand lies" decides who computes; copies are operations like others, so
// transfers and their bytes are counted in the program before anything runs.
#pragma once
#include "core/step/program.hpp"

namespace trainhost::step {

/// By traits.mode; nothing where it is "" or "resident". Throws usage_error for any other word.
void apply_mode(Program& p);

void apply_hybrid(Program& p);
void apply_streamed(Program& p);

/// Shared by both: the embedding's table on the host. look_up() and scatter() append to `out` what stands in
/// for an operation of the device: a look-up of the host and a copy up; a copy down and a scatter of the
/// host.
class HostSide {
 public:
  explicit HostSide(Program& p) : p_(p) {}
  BufferId scalars();
  BufferId ids(std::uint64_t rows, bool of_generate);
  BufferId targets();
  /// A page-locked buffer.
  BufferId pinned(const char* role, std::int32_t layer, std::uint32_t copy, std::uint64_t rows,
                  std::uint64_t cols, DType t);
  void look_up(const Op& op, BufferId table, std::uint32_t copy_class, std::vector<Op>& out);
  void scatter(const Op& op, std::uint32_t copy_class, std::vector<Op>& out);
  BufferId add(Buffer b);

 private:
  Program& p_;
  BufferId scalars_ = kNoBuffer, ids_ = kNoBuffer, token_ = kNoBuffer, targets_ = kNoBuffer;
};

/// An operation of the same phase, layer and rows as `like`.
Op op_like(const Op& like, OpKind kind, std::initializer_list<BufferId> in,
           std::initializer_list<BufferId> out, std::uint32_t flags = 0);

}  // namespace trainhost::step
