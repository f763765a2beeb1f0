// See run_tensors.hpp. Names, shapes and pieces come from the host through the C interface: each is checked.
// A tensor may be a slice of a fused parameter (q, k and v in qkv), so it has a position in one.
#include "core/executor/run_tensors.hpp"

#include <algorithm>
#include <cstring>
#include <span>

#include "core/abi/error_guard.hpp"
#include "core/model/tensors.hpp"

namespace trainhost::executor {

// positions_ has, by tensor, the parameter and the offset of its slice in elements.
Tensors::Tensors(const step::Program& program, Storage& storage, RankOperations& ranks, std::string trainer)
    : program_(program),
      storage_(storage),
      ranks_(ranks),
      trainer_(std::move(trainer)),
      quantised_(program, storage),
      states_(program, trainer_),
      positions_(program.tensor_infos.size()),
      loaded_(program.tensor_infos.size()) {
  for (const step::Param& p : program_.params)
    for (const step::Slice& s : p.slices) positions_[s.tensor] = {&p, s.first_element};
}

void Tensors::load(std::uint32_t scope, const th_tensor& t) {
  if (is_state_scope(scope)) return load_state(scope, t);
  const std::size_t i = find_tensor(program_, t, trainer_);
  require_scope(program_.tensor_infos[i], scope);
  if (quantised_.contains(i))
    quantised_.load(i, t.first, {static_cast<const float*>(t.data), t.count});
  else
    std::memcpy(weight(i) + t.first, t.data, t.count * sizeof(float));
  loaded_[i] += t.count;
  // Without a sum that could overflow.
  // Counts elements, so pieces may come in any order; a piece that is loaded again counts again.
}

void Tensors::load_state(std::uint32_t scope, const th_tensor& t) {
  const step::StateLocation& at = states_.find(scope, t);
  const std::span<const float> values(static_cast<const float*>(t.data), t.count);
  if (at.form == step::StateLocation::Form::kF32) {
    // Of the piece, what this rank has.
    const std::uint64_t begin = std::max(t.first, at.part.first),
                        end = std::min(t.first + t.count, at.part.first + at.part.count);
    if (begin < end)
      std::ranges::copy(values.subspan(begin - t.first, end - begin), floats(at) + (begin - at.part.first));
  } else
    encode_numbers(scope, at.info, values, codes(at) + t.first);
}

// Divided into pieces of 64K elements, so that one large tensor occupies all threads. The values depend only
// on the element.
void Tensors::init(std::uint64_t seed, Backend& backend) {
  constexpr std::uint64_t kPiece = 1 << 16;
  std::vector<std::size_t> magnitudes;
  for (std::size_t i = 0; i < positions_.size(); ++i) {
    const TensorInfo& info = program_.tensor_infos[i];
    const std::uint64_t n = info.elements();
    // Completely loaded. A partly loaded tensor is overwritten as a whole.
    if (loaded_[i] >= n) continue;
    if (info.part == AdapterPart::kMagnitude) {
      magnitudes.push_back(i);
      continue;
    }
    if (quantised_.contains(i)) {
      quantised_.init(i, seed, backend);
      continue;
    }
    float* to = weight(i);
    backend.for_each(static_cast<std::uint32_t>((n + kPiece - 1) / kPiece), [&](std::uint32_t p) {
      const std::uint64_t first = p * kPiece, count = std::min(kPiece, n - first);
      init_tensor(program_.model, info, seed, first, std::span<float>(to + first, count));
    });
  }
  backend.for_each(static_cast<std::uint32_t>(magnitudes.size()),
                   [&](std::uint32_t i) { init_magnitudes(magnitudes[i]); });
}

void Tensors::save(std::uint32_t scope, th_tensor_sink& sink) {
  if (is_state_scope(scope)) return save_state(scope, sink);
  for (std::size_t i = 0; i < positions_.size(); ++i) {
    if (!is_in_scope(program_.tensor_infos[i], scope)) continue;
    if (quantised_.contains(i)) {
      quantised_.save(i, sink);
      continue;
    }
    th_tensor t = describe_tensor(program_.tensor_infos[i]);
    t.data = weight(i);
    send_tensor(sink, t);
  }
}

/// 8-bit moments are sent as the numbers of their codes, a piece at a time.
void Tensors::save_state(std::uint32_t scope, th_tensor_sink& sink) {
  constexpr std::uint64_t kPiece = 16384;
  std::vector<float> values;
  for (const step::StateLocation& at : states_.of(scope)) {
    th_tensor t = describe_tensor(at.info);
    if (program_.run.parallel.zero > 0) {
      ranks_.gather(at.grad, at.first_element, at.info.elements(), storage_.f32(at.buffer),
                    [&](std::uint64_t first, std::span<const float> part) {
                      t.first = first - at.first_element, t.count = part.size();
                      t.data = const_cast<float*>(part.data());
                      send_tensor(sink, t);
                    });
      continue;
    }
    if (at.form == step::StateLocation::Form::kF32) {
      t.data = floats(at);
      send_tensor(sink, t);
      continue;
    }
    values.resize(kPiece);
    for (std::uint64_t first = 0; first < at.info.elements(); first += kPiece) {
      t.first = first, t.count = std::min(kPiece, at.info.elements() - first), t.data = values.data();
      decode_numbers(scope, {codes(at) + first, t.count}, values.data());
      send_tensor(sink, t);
    }
  }
}

}  // namespace trainhost::executor
