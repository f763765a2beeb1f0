// The lines of the note for training and inference, which share CUDA, weights and activations (common_parts).
// Knows no model and no run: breakdown.cpp fills the inputs. See note.hpp.
#include "plugins/estimators/vram-note/note.hpp"

#include <cmath>

#include "core/base/checked.hpp"

namespace trainhost::vram_note {
namespace {

Parts common_parts(const Inputs& in) {
  Parts p;
  p.cuda = kCuda;
  p.parameters = checked_mul(in.parameters, kHalf);
  p.activations = checked_mul(in.layers, in.batch, in.seq, in.hidden, kHalf);
  return p;
}

Parts with_total(Parts p) {
  for (Bytes b :
       {p.cuda, p.parameters, p.gradients, p.first_moments, p.second_moments, p.activations, p.outputs})
    p.total = checked_add(p.total, b, "the VRAM note's total");
  return p;
}

}  // namespace

std::uint64_t trainable(std::uint64_t parameters, double ratio) {
  return static_cast<std::uint64_t>(std::llround(static_cast<long double>(parameters) * ratio));
}

Parts training(const Inputs& in) {
  Parts p = common_parts(in);
  p.gradients = p.first_moments = p.second_moments = checked_mul(in.trainable, kHalf);
  p.outputs = outputs(in, kHalf, 2);
  return with_total(p);
}

Parts inference(const Inputs& in) {
  Parts p = common_parts(in);
  p.outputs = outputs(in, kHalf, 1);
  return with_total(p);
}

Bytes outputs(const Inputs& in, std::uint64_t each, std::uint64_t copies) {
  return checked_mul(in.batch, in.seq, in.vocab, each, copies);
}

Bytes kv_cache(const Inputs& in, std::uint64_t kv_width, std::uint64_t each) {
  return checked_mul(2, in.layers, in.batch, in.seq, kv_width, each);
}

}  // namespace trainhost::vram_note
