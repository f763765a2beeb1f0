// Device modes that keep part of a run in host memory, as transforms of the program that has everything on
// the device.
//
//   hybrid    embedding and cross-entropy on the host; three transfers of class `activation` per micro-batch:
//             hidden states to the device, logits to the host, their gradients to the device. With several
//             micro-batches two are in flight: the executor runs forward i + 1 before backward i, and buffers
//             that are live across that boundary have two instances.
//   streamed  weights, gradients and optimizer state in host memory; the weights of a layer are copied to the
//             device while the previous layer computes, its gradients to the host while the next one
//             computes.
//
// In both, an operation runs on the side whose memory holds its first operand (runs_on_host()). Copies are
// operations of the program, so transfers and their bytes are known before anything runs.
#pragma once
#include "core/step/program.hpp"

namespace trainhost::step {

/// Applies traits.mode; does nothing for "" and "resident". Throws usage_error for an unknown mode.
void apply_mode(Program& p);

/// The table of tied embeddings and the host's copy of it, which has its contents before every micro-batch;
/// kNoBuffer where the program has no copy.
struct EmbeddingCopy {
  BufferId device = kNoBuffer, host = kNoBuffer;
};
EmbeddingCopy embedding_copy(const Program& p);

/// True if the adapter of the embedding has magnitudes, so that norms of the columns of the table are
/// computed.
bool has_embedding_magnitudes(const Program& p);

void apply_hybrid(Program& p);
void apply_streamed(Program& p);

/// Host buffers that both modes add on first use.
class HostBuffers {
 public:
  explicit HostBuffers(Program& p) : p_(p) {}
  BufferId scalars();
  BufferId ids(std::uint64_t rows, bool of_generate);
  BufferId targets();
  /// A page-locked buffer.
  BufferId pinned(const char* role, std::int32_t layer, std::uint32_t copy, std::uint64_t rows,
                  std::uint64_t cols, DType t);
  /// Appends the host's look-up in `table` and a copy of the result to the device, instead of kEmbed `op`.
  void replace_embed(const Op& op, BufferId table, std::uint32_t copy_class, std::vector<Op>& out);
  /// Appends a copy of dx to the host and kEmbedBwd on the host, instead of kEmbedBwd `op`.
  void replace_embed_bwd(const Op& op, std::uint32_t copy_class, std::vector<Op>& out);
  /// Appends an update operation on a parameter of the host: with the host's scalars and scratch.
  void update_on_host(Op op, std::vector<Op>& out);
  /// Appends a kMuon operation on a parameter of the host whose products the device computes: to `out` up to
  /// the copy of the direction back to the host, to `rest` the wait for it and the update of the weight.
  void muon_with_device(const Op& op, std::vector<Op>& out, std::vector<Op>& rest);
  BufferId add(Buffer b);

 private:
  Program& p_;
  BufferId device_scalars_ = kNoBuffer;  // known with scalars_
  BufferId scalars_ = kNoBuffer, ids_ = kNoBuffer, token_ = kNoBuffer, targets_ = kNoBuffer,
           sums_ = kNoBuffer;
};

/// An operation of the same phase, layer and rows as `like`.
Op make_op_like(const Op& like, OpKind kind, std::initializer_list<BufferId> in,
                std::initializer_list<BufferId> out, std::uint32_t flags = 0);

}  // namespace trainhost::step
