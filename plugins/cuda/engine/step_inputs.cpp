// Fills and sends the inputs of a step. Layout of the buffer: scalars to the device | scalars from the device
// | ids, targets, order and starts of each micro-batch | numbers of micro-batches. Weights are not sent here:
// checkpoint_tensors.cpp. See step_inputs.hpp.
#include "plugins/cuda/engine/step_inputs.hpp"

#include <algorithm>
#include <cassert>
#include <cstring>

#include "core/step/buffer_names.hpp"
#include "core/step/scratch_sizes.hpp"
#include "plugins/cuda/engine/cuda_errors.hpp"

namespace trainhost::cuda {
namespace {

constexpr const char* kSending = "sending token ids to the device";
constexpr std::int32_t kNotCounted = -100;  // a target without a loss
constexpr std::size_t kScalarBytes = step::kScalarCount * sizeof(double);

/// Token ids of the whole model, of which a TP rank has a part.
std::uint64_t vocabulary(const step::Program& p) {
  return std::uint64_t{p.model.vocab} * (p.run.mode == RunMode::kInference ? 1 : p.run.parallel.tensor);
}

}  // namespace

StepInputs::StepInputs(const step::Program& program, const Arenas& arenas)
    : program_(program),
      arenas_(arenas),
      ids_(program.find(step::role::kIds)),
      targets_(program.find(step::role::kTargets)),
      order_(program.find(step::role::kOrder)),
      starts_(program.find(step::role::kStarts)),
      micro_batch_(program.find(step::role::kMicroBatch)),
      token_(program.find(step::role::kIds, -1, step::kOfGenerate)),
      scalars_(program.find(step::role::kScalars)),
      fed_(step::fed_per_token(program.run)),
      count_(vocabulary(program) + 1) {
  auto* buffer = arenas.get<std::byte>(program.find(step::role::kFeed));
  up_ = reinterpret_cast<double*>(buffer);
  back_ = up_ + step::kScalarCount;
  staged_ = reinterpret_cast<std::int32_t*>(back_ + step::kScalarCount);
  numbers_ = staged_ + fed_ * program.run.tokens_per_step();
}

// A counting sort over the vocabulary: stable, so that rows with one id keep their order, and O(rows +
// vocab). The gradient kernel adds the rows of one id in this order, which makes its sums reproducible
// without atomics.
void StepInputs::sort_rows_by_id(const std::int32_t* tokens, std::uint64_t rows, std::int32_t* order) {
  std::fill(count_.begin(), count_.end(), 0u);
  for (std::uint64_t r = 0; r < rows; ++r) ++count_[static_cast<std::size_t>(tokens[r]) + 1];
  // count_[v] becomes the number of rows with an id below v: the position of the first row with id v.
  for (std::size_t v = 1; v < count_.size(); ++v) count_[v] += count_[v - 1];
  for (std::uint64_t r = 0; r < rows; ++r)
    order[count_[static_cast<std::size_t>(tokens[r])]++] = static_cast<std::int32_t>(r);
}

void StepInputs::fill(const std::int32_t* tokens, const std::int32_t* targets, const std::int32_t* starts,
                      std::uint64_t micro_batches, std::uint64_t rows) {
  assert((starts != nullptr) == (starts_ != step::kNoBuffer));
  const std::uint64_t m = program_.run.tokens_per_micro_batch();
  assert(rows <= m && micro_batches <= program_.run.accumulate);
  for (std::uint64_t i = 0; i < micro_batches; ++i) {
    std::int32_t* to = staged_ + i * fed_ * m;
    std::memcpy(to, tokens + i * m, rows * sizeof(std::int32_t));
    std::memcpy(to + m, targets + i * m, rows * sizeof(std::int32_t));
    std::fill(to + rows, to + m, 0), std::fill(to + m + rows, to + 2 * m, kNotCounted);
    sort_rows_by_id(to, m, to + 2 * m);
    if (!starts) continue;
    std::memcpy(to + 3 * m, starts + i * m, rows * sizeof(std::int32_t));
    for (std::uint64_t r = rows; r < m; ++r)
      to[3 * m + r] = static_cast<std::int32_t>(r % program_.run.seq_len);
  }
}

void StepInputs::number_micro_batches(std::uint64_t first) {
  if (micro_batch_ == step::kNoBuffer) return;
  for (std::uint64_t i = 0; i < program_.run.accumulate; ++i) {
    numbers_[2 * i] = static_cast<std::int32_t>(static_cast<std::uint32_t>(first + i));
    numbers_[2 * i + 1] = static_cast<std::int32_t>(static_cast<std::uint32_t>((first + i) >> 32));
  }
}

void StepInputs::send(cudaStream_t stream, std::uint64_t micro, std::uint64_t rows,
                      std::uint32_t instance) const {
  const std::uint64_t m = program_.run.tokens_per_micro_batch();
  const std::int32_t* from = staged_ + micro * fed_ * m;
  for (step::BufferId b : {ids_, targets_, order_, starts_}) {
    if (b == step::kNoBuffer) continue;  // starts, the last
    check(cudaMemcpyAsync(arenas_.at(b, instance), from, rows * sizeof(std::int32_t), cudaMemcpyHostToDevice,
                          stream),
          kSending);
    from += m;
  }
  if (micro_batch_ != step::kNoBuffer)
    check(cudaMemcpyAsync(arenas_.at(micro_batch_, instance), numbers_ + 2 * micro, 2 * sizeof(std::int32_t),
                          cudaMemcpyHostToDevice, stream),
          kSending);
}

host::Step StepInputs::host_step(std::uint64_t micro, std::uint64_t first, std::uint64_t rows) const {
  const std::uint64_t m = program_.run.tokens_per_micro_batch();
  const std::int32_t* ids = staged_ + micro * fed_ * m;
  return {ids + first, ids + m + first, first, rows, micro == 0};
}

void StepInputs::send_token(cudaStream_t stream, std::int32_t token) const {
  staged_[0] = token;
  check(cudaMemcpyAsync(arenas_.at(token_), staged_, sizeof token, cudaMemcpyHostToDevice, stream), kSending);
}

void StepInputs::send_scalars(cudaStream_t stream) const {
  check(cudaMemcpyAsync(arenas_.at(scalars_), up_, kScalarBytes, cudaMemcpyHostToDevice, stream), kSending);
}

void StepInputs::fetch_scalars(cudaStream_t stream) const {
  check(cudaMemcpyAsync(back_, arenas_.at(scalars_), kScalarBytes, cudaMemcpyDeviceToHost, stream),
        "fetching the loss");
}

}  // namespace trainhost::cuda
