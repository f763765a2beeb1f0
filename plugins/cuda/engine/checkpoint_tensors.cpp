// A weight that is stored in bf16 is written to its f32 master copy and rounded to bf16 from there; without a
// master copy (inference) it is rounded before it is written. Reading prefers the master copy, so that a
// saved and loaded weight has the same bits. See checkpoint_tensors.hpp.
#include "plugins/cuda/engine/checkpoint_tensors.hpp"

#include <algorithm>
#include <cassert>
#include <cstring>

#include "core/step/buffer_names.hpp"
#include "plugins/cuda/engine/cuda_errors.hpp"
#include "plugins/cuda/host/host_loops.hpp"
#include "plugins/cuda/kernels/kernel_functions.hpp"

namespace trainhost::cuda {
namespace {

/// That the ranks exchange at once, and as much for the elements of the whole.
constexpr std::uint64_t kGathered = 1 << 16;

std::vector<TensorInfo> whole_tensors(const step::Program& p) {
  if (p.run.mode == RunMode::kInference) return p.tensor_infos;
  return all_tensors(whole_of_model(p.model, p.run.parallel), p.run);
}

}  // namespace

QuantizedStorage::QuantizedStorage(const step::Program& program, const Arenas& arenas, cudaStream_t stream)
    : program_(program),
      arenas_(arenas),
      stream_(stream),
      staging_(arenas.get<std::byte>(program.find(step::role::kNf4Staging))) {}

std::byte* QuantizedStorage::staged(step::BufferId b, std::uint64_t first) {
  return on_device(b) ? staging_ : arenas_.get<std::byte>(b) + first;
}

void QuantizedStorage::load_staged(step::BufferId b, std::uint64_t first, std::uint64_t n) {
  if (!on_device(b)) return;
  check(cudaMemcpyAsync(staging_, arenas_.get<std::byte>(b) + first, n, cudaMemcpyDeviceToHost, stream_),
        "fetching " + program_[b].name());
  check(cudaStreamSynchronize(stream_), "fetching " + program_[b].name());
}

void QuantizedStorage::store_staged(step::BufferId b, std::uint64_t first, std::uint64_t n) {
  if (!on_device(b)) return;
  check(cudaMemcpyAsync(arenas_.get<std::byte>(b) + first, staging_, n, cudaMemcpyHostToDevice, stream_),
        "sending " + program_[b].name());
  check(cudaStreamSynchronize(stream_), "sending " + program_[b].name());
}

CheckpointTensors::CheckpointTensors(const step::Program& program, const Arenas& arenas, cudaStream_t stream,
                                     Collectives* ranks)
    : program_(program),
      arenas_(arenas),
      stream_(stream),
      ranks_(ranks),
      whole_(whole_tensors(program)),
      locations_(program.tensor_infos.size()),
      quantized_storage_(program, arenas, stream),
      quantized_(program, quantized_storage_) {
  const step::BufferId staging = program.find(step::role::kStaging);
  staging_ = arenas.get<std::byte>(staging);
  piece_ = program[staging].bytes() / sizeof(float);
  // A tensor of the checkpoint is a slice of a parameter's buffers: q, k and v of one layer share one.
  for (const step::Param& p : program.params)
    for (const step::Slice& s : p.slices) locations_[s.tensor] = {&p, s.first_element};
  // Moments start at zero. Memory of the host's allocator is zeroed already, memory of cudaMalloc is not.
  for (const step::Param& p : program.params)
    for (step::BufferId b : {p.m, p.v})
      if (b != step::kNoBuffer && program[b].tier == Tier::kDevice)
        check(cudaMemsetAsync(arenas.at(b), 0, program[b].bytes(), stream),
              "setting " + program[b].name() + " to zero");
  check(cudaStreamSynchronize(stream), "setting the moments to zero");
}

/// The buffer with the f32 values of a weight; kNoBuffer for bf16 weights without a master copy.
step::BufferId CheckpointTensors::f32_weight(const Location& p) const {
  if (p.param->master != step::kNoBuffer) return p.param->master;
  return program_[p.param->weight].dtype == DType::kF32 ? p.param->weight : step::kNoBuffer;
}

/// Writes bytes [first, first + n) of a buffer from staged memory. Blocks until the staging buffer can be
/// used again.
void CheckpointTensors::put(step::BufferId b, std::uint64_t first, std::uint64_t n, const void* staged) {
  std::byte* to = arenas_.get<std::byte>(b) + first;
  if (program_[b].tier != Tier::kDevice) {
    std::memcpy(to, staged, n);
    return;
  }
  check(cudaMemcpyAsync(to, staged, n, cudaMemcpyHostToDevice, stream_), "sending " + program_[b].name());
  check(cudaStreamSynchronize(stream_), "sending " + program_[b].name());
}

/// Writes what this rank has of the elements of a parameter from `at` on, in the type of the buffer.
void CheckpointTensors::put_present(step::BufferId b, std::uint64_t at, std::span<const float> values) {
  const Shard here = step::present_elements(program_, b);
  const std::uint64_t begin = std::max(at, here.first),
                      end = std::min(at + values.size(), here.first + here.count),
                      element = size_of(program_[b].dtype);
  if (begin >= end) return;
  const std::span<const float> part = values.subspan(begin - at, end - begin);
  if (program_[b].dtype == DType::kF32)
    std::memcpy(staging_, part.data(), part.size_bytes());
  else
    host::to_half(part.size(), part.data(), reinterpret_cast<host::Half*>(staging_));
  put(b, (begin - here.first) * element, part.size() * element, staging_);
}

/// Passes a tensor that is divided among the ranks to `to`, on every rank.
void CheckpointTensors::gather(const executor::DividedTensor& tensor, const Sink& to) {
  std::vector<float> scratch(2 * kGathered);
  executor::gather_tensor(
      program_, *ranks_, scratch, tensor,
      [&](std::uint64_t first, std::span<const float> values) { to(first, values.size(), values.data()); });
}

TensorPart CheckpointTensors::part_of(const TensorInfo& whole) const {
  const Parallelism& p = program_.run.parallel;
  return part_of_tensor(whole, ranks_ ? p : Parallelism{}, p.tensor_rank ? p.tensor_rank - 1 : 0);
}

bool CheckpointTensors::is_divided(const TensorInfo& whole) const {
  return part_of(whole).elements() < whole.elements();
}

/// Of elements of a whole tensor from `first` on, those that this rank has, one after the other; `first`
/// becomes their place in its part. Valid until the next call.
std::span<const float> CheckpointTensors::elements_of_part(const TensorInfo& whole, std::uint64_t& first,
                                                           std::span<const float> values) {
  const TensorPart part = part_of(whole);
  if (part.elements() == whole.elements()) return values;
  const std::uint64_t of_values = first, begin = part.elements_before(first),
                      end = part.elements_before(first + values.size());
  of_part_.resize(end - begin);
  part.for_runs(begin, end - begin, [&](std::uint64_t at, std::uint64_t element, std::uint64_t n) {
    std::copy_n(values.begin() + static_cast<std::ptrdiff_t>(element - of_values), n,
                of_part_.begin() + static_cast<std::ptrdiff_t>(at - begin));
  });
  first = begin;
  return of_part_;
}

/// Bytes [first, first + n) of a buffer where the host can read them: in the staging buffer, or where they
/// are.
const std::byte* CheckpointTensors::fetch(step::BufferId b, std::uint64_t first, std::uint64_t n) {
  const std::byte* at = arenas_.get<const std::byte>(b) + first;
  if (program_[b].tier != Tier::kDevice) return at;
  check(cudaMemcpyAsync(staging_, at, n, cudaMemcpyDeviceToHost, stream_), "fetching " + program_[b].name());
  check(cudaStreamSynchronize(stream_), "fetching " + program_[b].name());
  return staging_;
}

/// Elements [first, first + n) of a buffer as f32.
void CheckpointTensors::fetch_floats(step::BufferId b, std::uint64_t first, std::uint64_t n, float* to) {
  const std::uint64_t element = size_of(program_[b].dtype);
  assert(n <= piece_);
  const std::byte* from = fetch(b, first * element, n * element);
  if (program_[b].dtype == DType::kBF16)
    host::to_float(n, reinterpret_cast<const host::Half*>(from), to);
  else
    std::memcpy(to, from, n * element);
}

void CheckpointTensors::write(std::size_t tensor, std::uint64_t first, std::uint64_t n, const float* from) {
  const std::span<const float> values = elements_of_part(whole_[tensor], first, {from, n});
  if (!values.empty()) write_part(tensor, first, values);
}

/// Elements from `first` on of what this rank has of a weight.
void CheckpointTensors::write_part(std::size_t tensor, std::uint64_t first, std::span<const float> values) {
  if (quantized_.contains(tensor)) return quantized_.load(tensor, first, values);
  const Location& p = locations_[tensor];
  const step::BufferId f32 = f32_weight(p), weight = p.param->weight;
  // The weight itself is bf16 and must be written as well.
  const bool rounds = program_[weight].dtype == DType::kBF16;
  for (std::uint64_t done = 0; done < values.size(); done += piece_) {
    // Elements, not bytes: f32 and bf16 buffers of a parameter have the same number.
    const std::uint64_t count = std::min(piece_, values.size() - done), at = p.first + first + done;
    const std::span<const float> piece = values.subspan(done, count);
    if (f32 != step::kNoBuffer) put_present(f32, at, piece);
    if (!rounds) continue;
    if (f32 != step::kNoBuffer && program_[weight].tier == Tier::kDevice &&
        program_[f32].tier == Tier::kDevice && !program_[f32].whole) {
      // Rounds on the device: the f32 values are there already.
      check(to_bf16(stream_, count, arenas_.get<float>(f32) + at, arenas_.get<Bf16>(weight) + at),
            "rounding " + program_[weight].name());
      check(cudaStreamSynchronize(stream_), "rounding " + program_[weight].name());
    } else {
      put_present(weight, at, piece);
    }
  }
}

void CheckpointTensors::read(std::size_t tensor, bool own_part, const Sink& to) {
  const TensorInfo& whole = whole_[tensor];
  if (quantized_.contains(tensor)) {
    if (!own_part && is_divided(whole)) {
      quantized_.stage(tensor);
      return gather({whole, step::kNoBuffer, 0, false,
                     [&](std::uint64_t first, std::uint64_t count, float* out) {
                       quantized_.read(tensor, first, {out, count});
                     }},
                    to);
    }
    const Shard own = own_part ? executor::elements_to_write(program_, whole, false, step::kNoBuffer, 0)
                               : Shard{0, whole.elements()};
    return quantized_.read(tensor, [&](std::uint64_t first, std::span<const float> values) {
      const std::uint64_t begin = std::max(first, own.first),
                          end = std::min(first + values.size(), own.first + own.count);
      if (begin < end) to(begin, end - begin, values.data() + (begin - first));
    });
  }
  const Location& p = locations_[tensor];
  const step::BufferId f32 = f32_weight(p), from = f32 == step::kNoBuffer ? p.param->weight : f32;
  const std::uint64_t element = f32 == step::kNoBuffer ? sizeof(host::Half) : sizeof(float);
  // A rank may have no element of a small parameter, and then no master copy.
  const bool has_master = p.param->grad != step::kNoBuffer && program_[p.param->weight].dtype != DType::kF32;
  const bool sharded =
      ranks_ && (has_master ? program_.run.parallel.zero > 0 : program_[p.param->weight].whole > 0);
  if (!own_part && (sharded || is_divided(whole)))
    return gather({whole, p.param->weight, p.first, sharded,
                   [&](std::uint64_t first, std::uint64_t count, float* out) {
                     const step::BufferId own = has_master ? p.param->master : p.param->weight;
                     fetch_floats(own, first, count, out);
                   }},
                  to);
  Shard wanted{0, whole.elements()};  // elements of the tensor, or of this rank's part of it
  std::uint64_t before = 0;           // elements of the parameter before those in the buffer
  if (own_part) {
    wanted = executor::elements_to_write(program_, whole, sharded, p.param->weight, p.first);
    if (sharded) before = step::present_elements(program_, from).first;
  }
  // Needed only where weights exist in bf16 alone (inference): the staging buffer then has the bf16 values.
  std::vector<float> widened(f32 == step::kNoBuffer ? std::min(piece_, wanted.count) : 0);
  for (std::uint64_t done = wanted.first, end = wanted.first + wanted.count; done < end; done += piece_) {
    const std::uint64_t count = std::min(piece_, end - done);
    const std::byte* at = fetch(from, (p.first + done - before) * element, count * element);
    const float* out = reinterpret_cast<const float*>(at);
    if (!widened.empty()) {
      host::to_float(count, reinterpret_cast<const host::Half*>(at), widened.data());
      out = widened.data();
    }
    to(done, count, out);
  }
}

void CheckpointTensors::write_state(std::uint32_t scope, const step::StateLocation& at, std::uint64_t first,
                                    std::span<const float> values) {
  values = elements_of_part(at.info, first, values);
  const bool codes = at.form == step::StateLocation::Form::kCodes;
  const std::uint64_t element = codes ? 1 : sizeof(float);
  if (program_.run.parallel.zero > 0) {
    // `byte` is that of the first element that this rank has.
    const std::uint64_t begin = std::max(first, at.part.first),
                        end = std::min(first + values.size(), at.part.first + at.part.count);
    if (begin >= end) return;
    values = values.subspan(begin - first, end - begin), first = begin - at.part.first;
  }
  for (std::uint64_t done = 0; done < values.size(); done += piece_) {
    const std::span<const float> part = values.subspan(done, std::min(piece_, values.size() - done));
    if (codes)
      executor::encode_numbers(scope, at.info, part, reinterpret_cast<std::uint8_t*>(staging_));
    else
      std::memcpy(staging_, part.data(), part.size_bytes());
    put(at.buffer, at.byte + (first + done) * element, part.size() * element, staging_);
  }
}

void CheckpointTensors::read_state(std::uint32_t scope, const step::StateLocation& at, bool own_part,
                                   const Sink& to) {
  const bool sharded = ranks_ && program_.run.parallel.zero > 0;
  const bool codes = at.form == step::StateLocation::Form::kCodes;
  const std::uint64_t element = codes ? 1 : sizeof(float),
                      piece = codes ? std::min<std::uint64_t>(piece_, 1 << 16) : piece_;
  if (!own_part && (sharded || is_divided(at.info))) {
    // 8-bit state is that of one tensor; f32 state is in a buffer with that of the parameter.
    const std::uint64_t offset = at.grad == step::kNoBuffer ? 0 : at.first_element,
                        base = at.grad == step::kNoBuffer ? at.byte : 0;
    return gather(
        {at.info, at.grad, offset, sharded,
         [&](std::uint64_t first, std::uint64_t count, float* out) {
           const std::byte* from = fetch(at.buffer, base + first * element, count * element);
           if (codes)
             executor::decode_numbers(scope, {reinterpret_cast<const std::uint8_t*>(from), count}, out);
           else
             std::memcpy(out, from, count * element);
         }},
        to);
  }
  Shard wanted{0, at.info.elements()};
  std::uint64_t before = 0;  // elements of the tensor before those in the buffer
  if (own_part) {
    wanted = executor::elements_to_write(program_, at.info, sharded, at.grad, at.first_element);
    if (sharded) before = at.part.first;
  }
  std::vector<float> numbers(codes ? std::min(piece, wanted.count) : 0);
  for (std::uint64_t done = wanted.first, end = wanted.first + wanted.count; done < end; done += piece) {
    const std::uint64_t count = std::min(piece, end - done);
    const std::byte* from = fetch(at.buffer, at.byte + (done - before) * element, count * element);
    if (codes)
      executor::decode_numbers(scope, {reinterpret_cast<const std::uint8_t*>(from), count}, numbers.data());
    to(done, count, codes ? numbers.data() : reinterpret_cast<const float*>(from));
  }
}

}  // namespace trainhost::cuda
