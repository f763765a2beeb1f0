// See run_tensors.hpp. Names, shapes and pieces come from the host through the C interface: each is checked.
// A tensor may be a slice of a fused parameter (q, k and v in qkv), so it has a position in one.
#include "core/executor/run_tensors.hpp"

#include <algorithm>
#include <array>
#include <cassert>
#include <cstring>
#include <span>

#include "core/abi/error_guard.hpp"
#include "core/base/bf16.hpp"
#include "core/executor/initial_magnitudes.hpp"
#include "core/model/tensor_parts.hpp"

namespace trainhost::executor {
namespace {

bool has_tensor_ranks(const step::Program& p) {
  return p.run.mode != RunMode::kInference && p.run.parallel.tensor > 1;
}

/// Reads values of a weight, f32 or bf16, for RankOperations::gather().
auto copy_of(const void* own, DType type) {
  return [own, type](std::uint64_t first, std::uint64_t count, float* to) {
    if (type == DType::kBF16)
      std::transform(static_cast<const std::uint16_t*>(own) + first,
                     static_cast<const std::uint16_t*>(own) + first + count, to, f32_from_bf16);
    else
      std::copy_n(static_cast<const float*>(own) + first, count, to);
  };
}

/// Calls f(element of the part, values) for what a piece of a whole tensor has of a part of it, in order.
template <class F>
void for_present(const th_tensor& piece, const TensorPart& part, F&& f) {
  const std::span<const float> values(static_cast<const float*>(piece.data), piece.count);
  const std::uint64_t begin = part.elements_before(piece.first),
                      end = part.elements_before(piece.first + piece.count);
  part.for_runs(begin, end - begin, [&](std::uint64_t at, std::uint64_t whole, std::uint64_t n) {
    f(at, values.subspan(whole - piece.first, n));
  });
}

std::vector<TensorInfo> whole_tensors(const step::Program& p) {
  return has_tensor_ranks(p) ? all_tensors(whole_of_model(p.model, p.run.parallel), p.run) : p.tensor_infos;
}

}  // namespace

// positions_ has, by tensor, the parameter and the offset of its slice in elements.
Tensors::Tensors(const step::Program& program, Storage& storage, RankOperations& ranks, std::string trainer)
    : program_(program),
      storage_(storage),
      ranks_(ranks),
      trainer_(std::move(trainer)),
      whole_(whole_tensors(program)),
      quantized_(program, storage),
      states_(program, trainer_),
      positions_(program.tensor_infos.size()),
      loaded_(program.tensor_infos.size()) {
  for (const step::Param& p : program_.params)
    for (const step::Slice& s : p.slices) positions_[s.tensor] = {&p, s.first_element};
}

TensorPart Tensors::part_of(const TensorInfo& whole) const {
  const Parallelism& p = program_.run.parallel;
  return part_of_tensor(whole, has_tensor_ranks(program_) ? p : Parallelism{},
                        p.tensor_rank ? p.tensor_rank - 1 : 0);
}

/// Of a piece that begins at element `first` of a tensor of the whole model, copies what this rank has.
void Tensors::copy_present(std::span<const float> piece, std::uint64_t first, const Present& here,
                           const TensorPart& part) {
  const std::uint64_t begin = std::max(part.elements_before(first), here.first),
                      end = std::min(part.elements_before(first + piece.size()), here.first + here.count);
  if (begin >= end) return;
  part.for_runs(begin, end - begin, [&](std::uint64_t i, std::uint64_t whole, std::uint64_t n) {
    here.store(i, piece.subspan(whole - first, n));
  });
}

void Tensors::Present::store(std::uint64_t at, std::span<const float> values) const {
  if (type == DType::kF32) {
    std::ranges::copy(values, static_cast<float*>(to) + (at - first));
    return;
  }
  assert(type == DType::kBF16);
  std::uint16_t* out = static_cast<std::uint16_t*>(to) + (at - first);
  for (const float x : values) *out++ = bf16_from_f32(x);
}

Tensors::Present Tensors::present(std::size_t tensor, step::BufferId buffer) {
  const auto& [param, first] = positions_[tensor];
  const step::Buffer& b = program_[buffer];
  const Shard here = step::present_elements(program_, buffer);
  const std::uint64_t begin = std::max(first, here.first),
                      end =
                          std::min(first + program_.tensor_infos[tensor].elements(), here.first + here.count);
  if (begin >= end) return {};
  return {begin - first, end - begin,
          static_cast<std::byte*>(storage_.at(buffer)) + (begin - here.first) * size_of(b.dtype), b.dtype};
}

void Tensors::store_weight(std::size_t tensor, std::uint64_t first, std::span<const float> values) {
  const step::Param& p = *positions_[tensor].param;
  for (const step::BufferId b : {p.weight, p.master}) {
    if (b == step::kNoBuffer) continue;
    const Present here = present(tensor, b);
    const std::uint64_t begin = std::max(first, here.first),
                        end = std::min(first + values.size(), here.first + here.count);
    if (begin < end) here.store(begin, values.subspan(begin - first, end - begin));
  }
}

void Tensors::Present::for_values(const std::function<void(std::uint64_t, std::span<const float>)>& f) const {
  if (type == DType::kF32) return f(first, {static_cast<const float*>(to), count});
  std::array<float, 4096> values;
  for (std::uint64_t done = 0; done < count; done += values.size()) {
    const std::uint64_t n = std::min<std::uint64_t>(values.size(), count - done);
    copy_of(to, type)(done, n, values.data());
    f(first + done, {values.data(), n});
  }
}

Tensors::SavedWeight Tensors::saved_weight(const step::Param& p) const {
  const bool frozen = p.grad == step::kNoBuffer, rounded = program_[p.weight].dtype != DType::kF32;
  const step::BufferId from = rounded && !frozen ? p.master : p.weight;
  // With ZeRO a rank without elements of a small parameter has no master copy of it.
  return {from, from == step::kNoBuffer || program_[from].whole > 0};
}

void Tensors::read_weight(std::size_t tensor,
                          const std::function<void(std::uint64_t, std::span<const float>)>& to) {
  const auto& [param, offset] = positions_[tensor];
  const bool divided = part_of(whole_[tensor]).elements() < whole_[tensor].elements();
  if (quantized_.contains(tensor)) {
    if (!divided) return quantized_.read(tensor, to);
    return ranks_.gather({whole_[tensor], param->weight, 0, false,
                          [&](std::uint64_t first, std::uint64_t count, float* out) {
                            quantized_.read(tensor, first, {out, count});
                          }},
                         to);
  }
  const auto [from, sharded] = saved_weight(*param);
  if (!sharded && !divided) return present(tensor, from).for_values(to);
  const bool absent = from == step::kNoBuffer;
  ranks_.gather({whole_[tensor], param->weight, offset, sharded,
                 copy_of(absent ? nullptr : storage_.at(from), absent ? DType::kF32 : program_[from].dtype)},
                to);
}

void Tensors::load(std::uint32_t scope, const th_tensor& t) {
  if (is_state_scope(scope)) return load_state(scope, t);
  const std::size_t i = find_tensor(whole_, t, trainer_);
  require_scope(program_.run, program_.tensor_infos[i], scope);
  if (quantized_.contains(i))
    for_present(t, part_of(whole_[i]),
                [&](std::uint64_t at, std::span<const float> values) { quantized_.load(i, at, values); });
  else
    for (const step::BufferId b : {positions_[i].param->weight, positions_[i].param->master})
      if (b != step::kNoBuffer)
        copy_present({static_cast<const float*>(t.data), t.count}, t.first, present(i, b),
                     part_of(whole_[i]));
  loaded_[i] += t.count;
  // Without a sum that could overflow.
  // Counts elements, so pieces may come in any order; a piece that is loaded again counts again.
}

void Tensors::load_state(std::uint32_t scope, const th_tensor& t) {
  const step::StateLocation& at = states_.find(scope, t);
  const std::span<const float> values(static_cast<const float*>(t.data), t.count);
  if (at.form == step::StateLocation::Form::kF32)
    copy_present(values, t.first,
                 {at.part.first, at.part.count, at.part.count ? floats(at) : nullptr, DType::kF32},
                 part_of(at.info));
  else
    for_present(t, part_of(at.info), [&](std::uint64_t first, std::span<const float> piece) {
      encode_numbers(scope, at.info, piece, codes(at) + first);
    });
}

// Divided into pieces of 64K elements, so that one large tensor occupies all threads. The values depend only
// on the element.
void Tensors::init(std::uint64_t seed, Backend& backend) {
  constexpr std::uint64_t kPiece = 1 << 16;
  std::vector<std::size_t> magnitudes;
  for (std::size_t i = 0; i < positions_.size(); ++i) {
    const TensorInfo& info = whole_[i];
    const std::uint64_t n = info.elements();
    // Completely loaded. A partly loaded tensor is overwritten as a whole.
    if (loaded_[i] >= n) continue;
    if (info.part == AdapterPart::kMagnitude) {
      magnitudes.push_back(i);
      continue;
    }
    if (quantized_.contains(i)) {
      quantized_.init(i, info, part_of(info), seed, backend);
      continue;
    }
    // What this rank has of the weight contains what it has of the master copy.
    const Present here = present(i, positions_[i].param->weight);
    backend.for_each(static_cast<std::uint32_t>((here.count + kPiece - 1) / kPiece), [&](std::uint32_t p) {
      const std::uint64_t first = here.first + p * kPiece,
                          count = std::min(kPiece, here.first + here.count - first);
      part_of(info).for_runs(first, count, [&](std::uint64_t at, std::uint64_t whole, std::uint64_t run) {
        std::array<float, 1024> values;
        for (std::uint64_t done = 0; done < run; done += values.size()) {
          const std::span<float> part(values.data(), std::min<std::uint64_t>(values.size(), run - done));
          init_tensor(program_.model, info, seed, whole + done, part);
          store_weight(i, at + done, part);
        }
      });
    });
  }
  if (program_.run.parallel.zero == 3 ||
      has_tensor_ranks(program_))  // the ranks exchange the weights, one tensor after the other
    for (const std::size_t i : magnitudes) init_magnitudes(i);
  else
    backend.for_each(static_cast<std::uint32_t>(magnitudes.size()),
                     [&](std::uint32_t i) { init_magnitudes(magnitudes[i]); });
}

void Tensors::init_magnitudes(std::size_t tensor) {
  // Several tensors are initialised at the same time, so each is on one thread.
  const std::vector<float> magnitudes = initial_magnitudes(
      program_, whole_, tensor, [&](std::size_t i, const auto& to) { read_weight(i, to); },
      [](std::uint32_t count, const auto& f) {
        for (std::uint32_t i = 0; i < count; ++i) f(i);
      });
  const TensorPart here = part_of(whole_[tensor]);
  store_weight(tensor, 0, {magnitudes.data() + here.first_row, here.part_rows});
}

void Tensors::save_own(std::uint32_t scope, th_tensor_sink& sink) {
  if (is_state_scope(scope)) return save_own_state(scope, sink);
  for (std::size_t i = 0; i < positions_.size(); ++i) {
    if (!is_in_scope(program_.run, program_.tensor_infos[i], scope)) continue;
    const auto& [param, offset] = positions_[i];
    const SavedWeight from = saved_weight(*param);
    const bool sharded = quantized_.contains(i) ? program_[param->weight].whole > 0 : from.sharded;
    const Shard own = elements_to_write(program_, whole_[i], sharded, param->weight, offset);
    if (own.count == 0) continue;
    const TensorInfo info = info_of_part(whole_[i], part_of(whole_[i]));
    th_tensor t = describe_tensor(info);
    const auto send = [&](std::uint64_t first, std::span<const float> values) {
      const std::uint64_t begin = std::max(first, own.first),
                          end = std::min(first + values.size(), own.first + own.count);
      if (begin >= end) return;
      t.first = begin, t.count = end - begin, t.data = const_cast<float*>(values.data() + (begin - first));
      send_tensor(sink, t);
    };
    if (quantized_.contains(i)) {
      quantized_.read(i, send);
      continue;
    }
    present(i, from.buffer).for_values(send);
  }
}

void Tensors::save_own_state(std::uint32_t scope, th_tensor_sink& sink) {
  constexpr std::uint64_t kPiece = 16384;
  std::vector<float> values;
  for (const step::StateLocation& at : states_.of(scope)) {
    const Shard own =
        elements_to_write(program_, at.info, program_.run.parallel.zero > 0, at.grad, at.first_element);
    if (own.count == 0) continue;
    const TensorInfo info = info_of_part(at.info, part_of(at.info));
    th_tensor t = describe_tensor(info);
    if (at.form == step::StateLocation::Form::kF32) {
      t.first = own.first, t.count = own.count, t.data = floats(at) + (own.first - at.part.first);
      send_tensor(sink, t);
      continue;
    }
    values.resize(kPiece);
    for (std::uint64_t done = 0; done < own.count; done += kPiece) {
      t.first = own.first + done, t.count = std::min(kPiece, own.count - done), t.data = values.data();
      decode_numbers(scope, {codes(at) + t.first, t.count}, values.data());
      send_tensor(sink, t);
    }
  }
}

void Tensors::save(std::uint32_t scope, th_tensor_sink& sink) {
  if (scope & TH_SAVE_OWN_PART) return save_own(scope & ~TH_SAVE_OWN_PART, sink);
  if (is_state_scope(scope)) return save_state(scope, sink);
  for (std::size_t i = 0; i < positions_.size(); ++i) {
    if (!is_in_scope(program_.run, program_.tensor_infos[i], scope)) continue;
    th_tensor t = describe_tensor(whole_[i]);
    read_weight(i, [&](std::uint64_t first, std::span<const float> part) {
      t.first = first, t.count = part.size(), t.data = const_cast<float*>(part.data());
      send_tensor(sink, t);
    });
  }
}

/// 8-bit moments are sent as the numbers of their codes, a piece at a time.
void Tensors::save_state(std::uint32_t scope, th_tensor_sink& sink) {
  constexpr std::uint64_t kPiece = 16384;
  std::vector<float> values;
  for (const step::StateLocation& at : states_.of(scope)) {
    th_tensor t = describe_tensor(at.info);
    const bool sharded = program_.run.parallel.zero > 0;
    if (sharded || part_of(at.info).elements() < at.info.elements()) {
      const bool coded = at.form == step::StateLocation::Form::kCodes,
                 whole_parts = at.grad == step::kNoBuffer;
      const auto read = [&](std::uint64_t first, std::uint64_t count, float* to) {
        if (coded)
          decode_numbers(scope, {codes(at) + first, count}, to);
        else
          std::copy_n((whole_parts ? floats(at) : storage_.f32(at.buffer)) + first, count, to);
      };
      ranks_.gather({at.info, at.grad, whole_parts ? 0 : at.first_element, sharded, read},
                    [&](std::uint64_t first, std::span<const float> part) {
                      t.first = first, t.count = part.size(), t.data = const_cast<float*>(part.data());
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
