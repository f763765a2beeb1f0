// See quantized_tensors.hpp. With double quantization the 8-bit scales depend on the mean of all scales of
// the tensor, so the f32 scales of one tensor are kept, in a buffer of the plan, until its last block has
// arrived.
#include "core/executor/quantized_tensors.hpp"

#include <algorithm>
#include <cmath>
#include <string>

#include "core/abi/error_guard.hpp"
#include "core/executor/host_arguments.hpp"
#include "core/step/buffer_names.hpp"

namespace trainhost::executor {
namespace {

constexpr std::uint64_t kPiece = 64 * nf4::kBlock;  // elements that are generated or dequantized at once

void require_finite(const TensorInfo& t, std::uint64_t first, std::span<const float> values) {
  for (std::size_t i = 0; i < values.size(); ++i)
    if (!std::isfinite(values[i]))
      bad_argument(t.name + ": element " + std::to_string(first + i) + " is " + std::to_string(values[i]) +
                   "; only finite values can be quantized");
}

}  // namespace

QuantizedTensors::QuantizedTensors(const step::Program& program, Storage& storage)
    : program_(program),
      storage_(storage),
      positions_(program.tensor_infos.size()),
      scales_(program.find(step::role::kNf4Scales)) {
  for (const step::Param& p : program.params) {
    const step::QuantizedParam q = step::quantized_param(program, p);
    for (std::uint32_t i = 0; i < q.count; ++i)
      positions_[p.slices[i].tensor] = {q.matrix[i].layout, p.weight, q.matrix[i].first_byte};
  }
}

void QuantizedTensors::load(std::size_t tensor, std::uint64_t first, std::span<const float> values) {
  const TensorInfo& info = program_.tensor_infos[tensor];
  const Position& position = positions_[tensor];
  // A tensor that is loaded again, or one after a tensor that did not arrive completely.
  if (first == 0) loading_ = tensor, arrived_ = 0, rest_size_ = 0;
  if (tensor != loading_ || first != arrived_)
    bad_argument(info.name +
                 ": the pieces of a tensor that is quantized must arrive in order, from element 0");
  require_finite(info, first, values);
  arrived_ += values.size();
  const bool last = arrived_ == position.layout.elements;
  const auto quantize = [&](std::uint64_t end, std::span<const float> blocks) {
    const std::uint64_t begin = end - blocks.size();
    nf4::quantize_blocks(position.layout, begin / nf4::kBlock, blocks, data(position), scales());
  };
  if (rest_size_ > 0) {
    const std::size_t n = std::min<std::size_t>(nf4::kBlock - rest_size_, values.size());
    std::copy_n(values.begin(), n, rest_.begin() + static_cast<std::ptrdiff_t>(rest_size_));
    rest_size_ += n, values = values.subspan(n);
    if (rest_size_ < nf4::kBlock && !last) return;
    quantize(arrived_ - values.size(), std::span(rest_).first(rest_size_));
    rest_size_ = 0;
  }
  const std::size_t whole = last ? values.size() : values.size() / nf4::kBlock * nf4::kBlock;
  if (whole > 0) quantize(arrived_ - (values.size() - whole), values.first(whole));
  rest_size_ = values.size() - whole;
  std::copy_n(values.begin() + static_cast<std::ptrdiff_t>(whole), rest_size_, rest_.begin());
  if (last) complete(position), loading_ = SIZE_MAX;
}

void QuantizedTensors::complete(const Position& p) {
  nf4::store_scales(p.layout, scales(), data(p));
  storage_.store_staged(p.buffer, p.first_byte, p.layout.bytes);
}

void QuantizedTensors::init(std::size_t tensor, const TensorInfo& whole, const TensorPart& part,
                            std::uint64_t seed, Backend& backend) {
  const Position& position = positions_[tensor];
  const std::uint64_t n = position.layout.elements;
  backend.for_each(static_cast<std::uint32_t>((n + kPiece - 1) / kPiece), [&](std::uint32_t p) {
    std::array<float, kPiece> values;
    const std::uint64_t first = p * kPiece, count = std::min(kPiece, n - first);
    const std::span<float> piece(values.data(), count);
    part.for_runs(first, count, [&](std::uint64_t at, std::uint64_t element, std::uint64_t run) {
      init_tensor(program_.model, whole, seed, element, piece.subspan(at - first, run));
    });
    nf4::quantize_blocks(position.layout, first / nf4::kBlock, piece, data(position), scales());
  });
  complete(position);
}

void QuantizedTensors::stage(std::size_t tensor) {
  const Position& p = positions_[tensor];
  storage_.load_staged(p.buffer, p.first_byte, p.layout.bytes);
}

void QuantizedTensors::read(std::size_t tensor,
                            const std::function<void(std::uint64_t, std::span<const float>)>& to) {
  const Position& position = positions_[tensor];
  std::array<float, kPiece> values;
  stage(tensor);
  for (std::uint64_t first = 0; first < position.layout.elements; first += kPiece) {
    const std::uint64_t count = std::min(kPiece, position.layout.elements - first);
    nf4::dequantize_blocks(position.layout, data(position), first / nf4::kBlock, {values.data(), count});
    to(first, {values.data(), count});
  }
}

void QuantizedTensors::read(std::size_t tensor, std::uint64_t first, std::span<float> to) {
  const Position& position = positions_[tensor];
  std::array<float, nf4::kBlock> values;
  for (std::size_t done = 0; done < to.size();) {
    const std::uint64_t block = (first + done) / nf4::kBlock, begin = block * nf4::kBlock,
                        count = std::min(nf4::kBlock, position.layout.elements - begin),
                        skip = first + done - begin;
    nf4::dequantize_blocks(position.layout, data(position), block, {values.data(), count});
    const std::size_t n = std::min<std::size_t>(count - skip, to.size() - done);
    std::copy_n(values.begin() + static_cast<std::ptrdiff_t>(skip), n,
                to.begin() + static_cast<std::ptrdiff_t>(done));
    done += n;
  }
}

}  // namespace trainhost::executor
