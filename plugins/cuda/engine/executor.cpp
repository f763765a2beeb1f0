// The order of work in an update: all micro-batches, then the gradient norm and the check for finite values,
// then the weights. Work is only queued here; the host blocks at the end of an update (Scope::finish). How
// queues wait for each other: executor_queues.cpp; the update section: executor_update.cpp; the search for a
// value that is not finite: executor_nonfinite.cpp.
#include "plugins/cuda/engine/executor.hpp"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstring>

#include "core/model/model_spec.hpp"
#include "core/step/buffer_names.hpp"
#include "core/step/device_modes.hpp"
#include "core/step/operands.hpp"
#include "plugins/cuda/common/cuda_traits.hpp"
#include "plugins/cuda/engine/op_timer.hpp"
#include "plugins/cuda/host/host_loops.hpp"

namespace trainhost::cuda {

using step::OpKind;
using step::SectionKind;

namespace {

/// Keys of CudaGraphs. The first micro-batch overwrites gradients, the later ones add to them, so their
/// kernels have different arguments.
enum GraphKey { kFirstMicro, kLaterMicro };

/// True if the program has copies between tiers or operations on the host.
bool uses_host_memory(const step::Program& p) {
  return std::any_of(p.ops.begin(), p.ops.end(), [&](const step::Op& op) {
    return op.kind == OpKind::kCopy || step::runs_on_host(p, op);
  });
}

/// Consecutive operations of this kind are one launch, or one group of NCCL.
bool queued_together(OpKind kind) {
  return shares_launch(kind) || (executor::RankOperations::contains(kind) && kind != OpKind::kSumScalars);
}

}  // namespace

Executor::Executor(const th_host* host, const step::Program& program, const placement::MemoryPlan& plan,
                   const Arenas& arenas, Gemm& gemm, ThreadPool& pool, NcclRanks* ranks)
    : host_interface_(host),
      program_(program),
      plan_(plan),
      arenas_(arenas),
      pool_(pool),
      ranks_(ranks),
      ctx_{program, arenas, gemm, kernels_, {}, program.find(step::role::kScalars), 0},
      inputs_(program, arenas),
      host_tasks_(new HostTaskQueue{this, {}}),
      backward_begin_(step::backward_begin(program)),
      host_scalars_(program.find(step::role::kScalars, -1, step::kOnHost)) {
  if (ranks) {
    communication_ = std::make_unique<Stream>();
    collective_done_.resize(program.buffers.size());
  }
  if (uses_host_memory(program)) {
    for (std::unique_ptr<Stream>* s : {&up_, &down_, &host_, &embedding_, &hidden_})
      *s = std::make_unique<Stream>();
    rings_ = std::any_of(program.buffers.begin(), program.buffers.end(),
                         [](const step::Buffer& b) { return b.ring > 1; });
  }
  // Rotary table [positions, D]: row p = cos[D/2] | sin[D/2] of p * inv_freq. The angles and their functions
  // are computed in double and rounded once. Filled in pieces of the staging buffer.
  const std::vector<double> inv_freq = rope_inv_freq(ctx_.model());
  const std::size_t half = inv_freq.size(), d = 2 * half;
  const step::BufferId table = program.find(step::role::kRopeTable),
                       staging = program.find(step::role::kStaging);
  float* staged = arenas.get<float>(staging);
  const std::uint64_t positions = program[table].rows,
                      piece = std::max<std::uint64_t>(1, program[staging].bytes() / (d * sizeof(float)));
  assert(program[staging].bytes() >= d * sizeof(float));
  for (std::uint64_t first = 0; first < positions; first += piece) {
    const std::uint64_t n = std::min(piece, positions - first);
    for (std::uint64_t p = 0; p < n; ++p)
      for (std::size_t i = 0; i < half; ++i) {
        const double angle = static_cast<double>(first + p) * inv_freq[i];
        staged[p * d + i] = static_cast<float>(std::cos(angle));
        staged[p * d + half + i] = static_cast<float>(std::sin(angle));
      }
    check(cudaMemcpyAsync(arenas.get<float>(table) + first * d, staged, n * d * sizeof(float),
                          cudaMemcpyHostToDevice, kernels_),
          "filling the rotary table");
    kernels_.wait_for_all();  // the next piece overwrites the staging buffer
  }
}

Executor::~Executor() {
  try {
    wait_for_all_queues();
  } catch (...) {
    abandon_host_tasks();
  }
  if (!host_tasks_->abandoned) return;
  // The driver may still call the callbacks of abandoned tasks, at any time until the process ends. Their
  // arguments are therefore moved to a list that is never freed.
  static std::mutex mutex;
  static auto& leaked = *new std::vector<std::unique_ptr<HostTaskQueue>>;
  std::lock_guard lock(mutex);
  leaked.push_back(std::move(host_tasks_));
}

void Executor::wait_for_all_queues() {
  if (ranks_)  // work that waits for other ranks may never end
    for (const Stream* s : {communication_.get(), &kernels_}) ranks_->wait_for(*s, "computing a step");
  cudaError_t failed = cudaSuccess;
  const Stream* all[] = {&kernels_, up_.get(), down_.get(), host_.get(), embedding_.get(), hidden_.get()};
  for (const Stream* s : all) {
    if (!s) continue;
    const cudaError_t status = cudaStreamSynchronize(*s);  // every stream, even if one of them has failed
    if (failed == cudaSuccess) failed = status;
  }
  check(failed, "waiting for the device");
}

/// Blocks until no callback runs; callbacks that start later return at once.
void Executor::abandon_host_tasks() {
  std::lock_guard lock(host_tasks_->running);
  host_tasks_->abandoned = true;
}

// ---- micro-batches

/// Queues the operation `i` of a section that ends at `end`, and those that belong to it: consecutive
/// operations of the update that are one launch, and the language-model head of the hybrid mode, a pipeline
/// of pieces. Returns the index of the operation after them.
std::uint32_t Executor::queue_next(std::uint32_t i, std::uint32_t end) {
  const std::vector<step::Op>& ops = program_.ops;
  if (skips(ops[i])) return i + 1;
  // The profiler records the kernel queue only: copies and host operations run concurrently with it.
  const bool timed = timer_ && in_update_ && ops[i].kind != OpKind::kCopy && ops[i].kind != OpKind::kHold &&
                     !step::runs_on_host(program_, ops[i]);
  // The hybrid head is always the four operations kHeadLogits, kCopy, kCrossEntropy, kCopy.
  if (ops[i].kind == OpKind::kHeadLogits && i + 3 < end && ops[i + 2].kind == OpKind::kCrossEntropy) {
    if (timed) timer_->enter(i, kernels_);
    queue_head_in_pieces(&ops[i]);
    if (timed) timer_->leave(1, kernels_);
    return i + 4;
  }
  std::uint32_t next = i + 1;
  while (next < end && queued_together(ops[i].kind) && ops[next].kind == ops[i].kind &&
         step::runs_on_host(program_, ops[next]) == step::runs_on_host(program_, ops[i]))
    ++next;
  if (timed) timer_->enter(i, kernels_);
  queue_one({&ops[i], next - i});
  if (timed) timer_->leave(next - i, kernels_);
  return next;
}

void Executor::queue_range(std::uint32_t begin, std::uint32_t end) {
  for (std::uint32_t i = begin; i < end;) i = queue_next(i, end);
}

void Executor::queue_forward(std::uint32_t micro) {
  const step::Section s = program_.section(SectionKind::kMicro);
  ctx_.step = {program_.run.tokens_per_micro_batch(), micro, rings_ ? micro % 2 : 0, micro == 0, 0};
  inputs_.send(kernels_, micro, ctx_.step.rows, ctx_.step.instance);
  queue_range(s.begin, backward_begin_);
}

void Executor::queue_backward(std::uint32_t micro) {
  ctx_.step = {program_.run.tokens_per_micro_batch(), micro, rings_ ? micro % 2 : 0, micro == 0, 0};
  queue_range(backward_begin_, program_.section(SectionKind::kMicro).end);
}

/// Queues all micro-batches in order; with rings, forward m + 1 before backward m, so that the device
/// computes forward m + 1 while the logits of m are on the host. Returns false if `cancelled` returned true.
bool Executor::queue_micro_batches(const std::function<bool()>& cancelled) {
  const std::uint32_t n = program_.run.accumulate;
  std::uint32_t asked = 0;
  const auto stop = [&] {
    // With several ranks update() has asked before the first micro-batch.
    if (std::uint64_t counted = 0; ranks_) return asked++ > 0 && !agree_to_go_on(counted, cancelled);
    return cancelled && cancelled();
  };
  if (resident() && !timer_) {
    const step::Section s = program_.section(SectionKind::kMicro);
    const auto queue = [&] { queue_range(s.begin, s.end); };
    for (std::uint32_t m = 0; m < n; ++m) {
      if (stop()) return false;
      ctx_.step = {program_.run.tokens_per_micro_batch(), m, 0, m == 0, 0};
      // Outside the graph: the source address depends on the micro-batch.
      inputs_.send(kernels_, m, ctx_.step.rows, 0);
      if (may_capture_ && !graphs_.run(m == 0 ? kFirstMicro : kLaterMicro, kernels_, ctx_.launches, queue)) {
        may_capture_ = false;
        if (host_interface_->log)
          host_interface_->log(host_interface_, TH_LOG_WARN, kId,
                               ("steps run without CUDA graphs: " + graphs_.error()).c_str());
      }
      if (!may_capture_) queue();
    }
    return true;
  }
  if (stop()) return false;
  if (rings_) queue_forward(0);
  for (std::uint32_t m = 0; m < n; ++m) {
    if (!rings_)
      queue_forward(m);
    else if (m + 1 < n)
      queue_forward(m + 1);
    queue_backward(m);
    if (m + 1 < n && stop()) return false;
  }
  return true;
}

// ---- updates

// Constants of the step, computed in double. They are read from device memory by the kernels, not passed as
// kernel arguments, so that a captured graph can be replayed in the next step.
void Executor::set_inputs(const UpdateInput& in, std::uint64_t counted) {
  const RunSpec& r = program_.run;
  double* s = inputs_.up();
  std::fill(s, s + step::kScalarCount, 0.0);
  const double t = static_cast<double>(in.step_index) + 1.0;
  s[step::kLossScale] = 1.0 / static_cast<double>(counted);
  s[step::kLr] = in.lr;
  s[step::kStepSize] = in.lr / (1.0 - std::pow(r.beta1, t));
  s[step::kInvSqrtBias2] = 1.0 / std::sqrt(1.0 - std::pow(r.beta2, t));
  s[step::kDecayFactor] = 1.0 - in.lr * r.weight_decay;
  s[step::kMomentWeight] = std::pow(t, -0.8);  // beta2_decay of torch.optim.Adafactor
  s[step::kRelativeLr] = std::min(in.lr, 1.0 / std::sqrt(t));
  if (host_scalars_ != step::kNoBuffer)
    std::memcpy(arenas_.at(host_scalars_), s, step::kScalarCount * sizeof(double));
  inputs_.fill(in.tokens, in.targets, in.starts, r.accumulate, r.tokens_per_micro_batch());
  // Among the micro-batches of all ranks, so that masks of dropout do not depend on the ranks.
  const std::uint64_t data = ranks_ ? r.parallel.data : 1, own = data > 1 ? r.parallel.data_rank - 1 : 0;
  inputs_.number_micro_batches((in.step_index * data + own) * r.accumulate);
}

Outcome Executor::update(const UpdateInput& in, const std::function<bool()>& cancelled, UpdateResult& out) {
  out.counted = counted_targets(in.targets, program_.run.tokens_per_step());
  assert(out.counted > 0 || ranks_);  // checked by Instance::step()
  if (ranks_ && !agree_to_go_on(out.counted, cancelled)) return Outcome::kCancelled;
  Scope scope(*this);
  set_inputs(in, out.counted);

  in_update_ = true, gradients_complete_ = false;
  if (timer_) timer_->begin_update(kernels_);
  counters_.begin_step(kernels_);
  inputs_.send_scalars(kernels_);
  if (!queue_micro_batches(cancelled)) {
    scope.finish();  // gradients were changed, but no weight and no moment
    return Outcome::kCancelled;
  }
  run_update_section();
  counters_.end_step(kernels_);
  scope.finish();
  half_updated_ = false;  // set by run_update_section(); remains set if finish() throws
  gradients_complete_ = true;
  // The first update is not captured: what happens at the first use of a kernel may not be permitted then.
  // Nor are steps of several ranks: their collectives are on another stream, and end by a timeout.
  if (!updated_) updated_ = true, may_capture_ = !ranks_;
  counters_.read();
  if (timer_) timer_->end_update();
  const double* back = inputs_.back();
  // TP ranks have computed the same loss, and their sum was taken.
  out.loss =
      back[step::kLossSum] / static_cast<double>(out.counted * (ranks_ ? program_.run.parallel.tensor : 1));
  out.grad_norm = back[step::kGradNorm];
  return back[step::kApplied] != 0.0 ? Outcome::kDone : Outcome::kNonFinite;
}

// ---- evaluation and generation

Outcome Executor::evaluate(const std::int32_t* tokens, const std::int32_t* targets,
                           const std::int32_t* starts, std::uint32_t sequences, UpdateResult& out) {
  const std::uint64_t given = std::uint64_t{sequences} * program_.run.seq_len,
                      rows = program_.run.tokens_per_micro_batch();
  out.counted = counted_targets(targets, given);
  Scope scope(*this);
  gradients_complete_ = false;
  std::fill(inputs_.up(), inputs_.up() + step::kScalarCount, 0.0);
  // The device computes a whole micro-batch in any case: products of fewer rows would be other shapes, whose
  // algorithms were not chosen and whose code was not loaded before the memory of the plan was allocated.
  inputs_.fill(tokens, targets, starts, 1, given);
  inputs_.send_scalars(kernels_);
  ctx_.step = {rows, 0, 0, true, 0};
  inputs_.send(kernels_, 0, rows, 0);
  const step::Section s = program_.section(SectionKind::kEval);
  queue_range(s.begin, s.end);
  inputs_.fetch_scalars(kernels_);
  scope.finish();
  out.loss = out.counted ? inputs_.back()[step::kEvalLossSum] / static_cast<double>(out.counted) : 0.0;
  return std::isfinite(out.loss) ? Outcome::kDone : Outcome::kNonFinite;
}

void Executor::next_logits(std::int32_t token, std::uint32_t position, float* logits) {
  Scope scope(*this);
  gradients_complete_ = false;
  ctx_.step = {1, 0, 0, true, position};
  inputs_.send_token(kernels_, token);
  const step::Section s = program_.section(SectionKind::kGenerate);
  queue_range(s.begin, s.end);
  // Before it the weights of ZeRO 3 may be gathered, behind it the logits of TP ranks are.
  std::uint32_t head = s.end - 1;
  while (executor::RankOperations::contains(program_.ops[head].kind)) --head;
  assert(program_.ops[head].kind == OpKind::kHeadLogits);
  const step::BufferId result = program_.ops[head][step::operand::head_logits::kLogits],
                       staging = program_.find(step::role::kStaging);
  const step::Buffer& b = program_[result];
  assert(b.bytes() <= program_[staging].bytes());
  check(cudaMemcpyAsync(arenas_.at(staging), arenas_.at(result), b.bytes(), cudaMemcpyDeviceToHost, kernels_),
        "fetching logits");
  scope.finish();
  if (b.dtype == DType::kBF16)
    host::to_float(b.cols, arenas_.get<const host::Half>(staging), logits);
  else
    std::memcpy(logits, arenas_.at(staging), b.bytes());
}

void Executor::refresh_host_copies() {
  const step::EmbeddingCopy copy = step::embedding_copy(program_);
  if (copy.host == step::kNoBuffer) return;
  check(cudaMemcpyAsync(arenas_.at(copy.host), arenas_.at(copy.device), program_[copy.device].bytes(),
                        cudaMemcpyDeviceToHost, kernels_),
        "copying the embedding to the host");
  kernels_.wait_for_all();
}

}  // namespace trainhost::cuda
