// What a trainer receives from the host and returns to it in load(), save(), step() and next(): checks of the
// arguments, and the result of a step. Shared by Run (trainer_run.hpp) and by trainers with a loop of their
// own (plugins/cuda/engine).
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "core/abi/error_guard.hpp"
#include "core/step/program.hpp"
#include "trainhost/trainer.h"

namespace trainhost::executor {

/// Throws StatusError(TH_E_ARG): an argument from the host is invalid.
[[noreturn]] inline void bad_argument(const std::string& what) { throw abi::StatusError(TH_E_ARG, what); }

/// Index into program.tensor_infos of the tensor that `piece` is a part of. Throws StatusError (TH_E_ARG) for
/// a name, shape, type or range that the model does not have. `trainer`: its name in messages.
std::size_t find_tensor(const step::Program& program, const th_tensor& piece, const std::string& trainer);

/// The same among these tensors, by index.
std::size_t find_tensor(std::span<const TensorInfo> tensors, const th_tensor& piece,
                        const std::string& trainer);

/// True if load() and save() transfer the tensor in this scope: adapters and what is trained beside them
/// in TH_SCOPE_ADAPTER, all tensors of the model in TH_SCOPE_WEIGHTS, moments of both in theirs.
bool is_in_scope(const RunSpec& r, const TensorInfo& t, std::uint32_t scope);
/// Throws abi::StatusError (TH_E_ARG) unless is_in_scope().
void require_scope(const RunSpec& r, const TensorInfo& t, std::uint32_t scope);

/// The th_tensor of a whole f32 tensor, without data. Its name is borrowed from `info`.
th_tensor describe_tensor(const TensorInfo& info);

/// Passes a tensor to the sink. Throws StatusError with the code of the sink if it fails.
void send_tensor(th_tensor_sink& sink, const th_tensor& tensor);

/// Throws StatusError: TH_E_ARG for a batch that does not match the run or has ids outside the vocabulary,
/// TH_E_STATE for an update of an inference run.
void validate_step(const step::Program& program, const th_step& step);

/// Throws StatusError (TH_E_ARG) for a token outside the vocabulary or a position outside the cache.
void validate_next(const step::Program& program, std::int32_t token, std::uint32_t position);

/// Throws StatusError for an inference run (TH_E_STATE) and if `bytes` is too small for the records of a step
/// (TH_E_ARG).
void validate_record_buffer(const step::Program& program, const void* records, std::uint64_t bytes);

/// Targets that are counted (not -100).
std::uint64_t counted_targets(const std::int32_t* targets, std::uint64_t n);

/// The layer in "grad_norm.layer.3", of several ranks in "grad_norm_part.layer.3"; -1 for
/// "grad_norm.outside_layers"; nullopt for other metrics.
std::optional<std::int32_t> layer_of_metric(std::string_view key, std::uint32_t layers, bool part);

struct UpdateInput {
  const std::int32_t *tokens, *targets;  // [accumulate * micro_batch * seq] each
  double lr;
  std::uint64_t step_index;
  const std::int32_t* starts = nullptr;  // as many; see StepState
};
struct UpdateResult {
  double loss = 0.0, grad_norm = 0.0;
  std::uint64_t counted = 0;
  std::string cause;  // of kNonFinite: see nonfinite.hpp; "" if it was not looked for
};
enum class Outcome { kDone, kCancelled, kNonFinite };

/// Copies the result to `out`. Throws StatusError unless the outcome is kDone.
void return_result(Outcome outcome, const UpdateResult& result, th_step_out& out);

}  // namespace trainhost::executor
