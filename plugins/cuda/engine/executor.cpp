// The order of things inside an update: all micro-batches, the gradient norm and the checks, and only then
// the weights.
#include "plugins/cuda/engine/executor.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/model/model_spec.hpp"
#include "core/step/buffer_names.hpp"
#include "core/step/operands.hpp"
#include "plugins/cuda/engine/op_timer.hpp"
#include "plugins/cuda/host/host_loops.hpp"

namespace trainhost::cuda {

using step::OpKind;
using step::SectionKind;

namespace {

enum Recorded { kFirstMicro, kLaterMicro };

/// Does any operation need the host, or a copy?
bool leaves_the_device(const step::Program& p) {
  return std::any_of(p.ops.begin(), p.ops.end(), [&](const step::Op& op) {
    return op.kind == OpKind::kCopy || step::runs_on_host(p, op);
  });
}

}  // namespace

std::uint64_t counted_targets(const std::int32_t* targets, std::uint64_t n) {
  return n - static_cast<std::uint64_t>(std::count(targets, targets + n, -100));
}

class Executor::Scope {
 public:
  explicit Scope(Executor& e) : e_(e) {}
  ~Scope() {
    if (!done_) {
      try {
        e_.settle();
        done_ = true;
      } catch (...) {  // the device is lost: what was under way will not come
      }
    }
    e_.steps_ = false;
    e_.order_.all_done();
    e_.events_.reset();
    for (auto& events : e_.event_of_) events.clear();
    e_.kernel_mark_ = 0, e_.kernel_event_ = nullptr;
    if (done_)
      e_.host_work_->tasks.clear();
    else
      e_.abandon_tasks();
  }
  void finish() {
    e_.settle();
    done_ = true;
  }

 private:
  Executor& e_;
  bool done_ = false;
};

Executor::Executor(const step::Program& program, const placement::MemoryPlan& plan, const Arenas& arenas,
                   Gemm& gemm, ThreadPool& pool)
    : program_(program),
      plan_(plan),
      arenas_(arenas),
      pool_(pool),
      ctx_{program, arenas, gemm, kernels_, {}, program.find(step::role::kScalars), 0},
      inputs_(program, arenas),
      host_work_(new HostWork{this, {}}),
      cut_(step::backward_begin(program)),
      host_scalars_(program.find(step::role::kScalars, -1, step::kOnHost)) {
  if (leaves_the_device(program)) {
    up_ = std::make_unique<Stream>(), down_ = std::make_unique<Stream>(), host_ = std::make_unique<Stream>();
    rings_ = std::any_of(program.buffers.begin(), program.buffers.end(),
                         [](const step::Buffer& b) { return b.ring > 1; });
  }
  prepare_products(ctx_);
  // table[pos] = cos[D/2] | sin[D/2] of pos * inv_freq, computed in double; a piece of positions at a time.
  const std::vector<double> inv_freq = rope_inv_freq(ctx_.model());
  const std::size_t half = inv_freq.size(), d = 2 * half;
  const step::BufferId table = program.find(step::role::kRopeTable),
                       staging = program.find(step::role::kStaging);
  float* staged = arenas.get<float>(staging);
  const std::uint64_t positions = program[table].rows,
                      piece = std::max<std::uint64_t>(1, program[staging].bytes() / (d * sizeof(float)));
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
    kernels_.wait_for_all();
  }
}

Executor::~Executor() {
  try {
    settle();
  } catch (...) {
    abandon_tasks();
  }
  if (!host_work_->abandoned) return;
  static std::mutex mutex;
  static auto& left = *new std::vector<std::unique_ptr<HostWork>>;
  std::lock_guard lock(mutex);
  left.push_back(std::move(host_work_));
}

void Executor::settle() {
  cudaError_t failed = cudaSuccess;
  for (const Stream* s : {const_cast<const Stream*>(&kernels_), const_cast<const Stream*>(up_.get()),
                          const_cast<const Stream*>(down_.get()), const_cast<const Stream*>(host_.get())}) {
    if (!s) continue;
    const cudaError_t status = cudaStreamSynchronize(*s);  // of all, whatever one of them says
    if (failed == cudaSuccess) failed = status;
  }
  check(failed, "waiting for the device");
}

/// No task begins any more, and none is still running.
void Executor::abandon_tasks() {
  std::lock_guard lock(host_work_->turn);
  host_work_->abandoned = true;
}

// ---- micro-batches
// -------------------------------------------------------------------------------------------------------

/// Operations [begin, end) in order; the head of the hybrid mode as a pipeline of pieces.
void Executor::range(std::uint32_t begin, std::uint32_t end) {
  const std::vector<step::Op>& ops = program_.ops;
  for (std::uint32_t i = begin, next = i; i < end; i = next) {
    next = i + 1;
    // Of the kernels' queue alone: copies and the host's work run beside it.
    const bool timed = log_ && steps_ && ops[i].kind != OpKind::kCopy && ops[i].kind != OpKind::kHold &&
                       !step::runs_on_host(program_, ops[i]);
    if (ops[i].kind == OpKind::kHeadLogits && i + 3 < end && ops[i + 2].kind == OpKind::kCrossEntropy) {
      if (timed) log_->enter(i, kernels_);
      head_in_pieces(&ops[i]);
      if (timed) log_->leave(1, kernels_);
      next = i + 4;
      continue;
    }
    while (next < end && one_launch(ops[i].kind) && ops[next].kind == ops[i].kind &&
           step::runs_on_host(program_, ops[next]) == step::runs_on_host(program_, ops[i]))
      ++next;
    if (timed) log_->enter(i, kernels_);
    one({&ops[i], next - i});
    if (timed) log_->leave(next - i, kernels_);
  }
}

void Executor::forward(std::uint32_t micro) {
  const step::Section s = program_.section(SectionKind::kMicro);
  ctx_.step = {program_.run.tokens_per_micro_batch(), micro, rings_ ? micro % 2 : 0, micro == 0, 0};
  inputs_.send(kernels_, micro, ctx_.step.rows, ctx_.step.instance);
  range(s.begin, cut_);
}

void Executor::backward(std::uint32_t micro) {
  ctx_.step = {program_.run.tokens_per_micro_batch(), micro, rings_ ? micro % 2 : 0, micro == 0, 0};
  range(cut_, program_.section(SectionKind::kMicro).end);
}

/// One after the other, or with rings each forward part before the backward part of the micro-batch before
/// it, so that the device computes while logits travel.
void Executor::micro_batches(const std::function<bool()>& cancelled, bool& stopped) {
  const std::uint32_t n = program_.run.accumulate;
  const auto stop = [&] { return stopped = cancelled && cancelled(); };
  if (resident() && !log_) {
    for (std::uint32_t m = 0; m < n; ++m) {
      if (stop()) return;
      ctx_.step = {program_.run.tokens_per_micro_batch(), m, 0, m == 0, 0};
      inputs_.send(kernels_, m, ctx_.step.rows, 0);
      const step::Section s = program_.section(SectionKind::kMicro);
      graphs_.run(m == 0 ? kFirstMicro : kLaterMicro, kernels_, ctx_.launches,
                  [&] { range(s.begin, s.end); });
    }
    return;
  }
  if (stop()) return;
  if (rings_) forward(0);
  for (std::uint32_t m = 0; m < n; ++m) {
    if (!rings_)
      forward(m);
    else if (m + 1 < n)
      forward(m + 1);
    backward(m);
    if (m + 1 < n && stop()) return;
  }
}

// ---- updates
// -------------------------------------------------------------------------------------------------------------

Outcome Executor::update(const UpdateInput& in, const std::function<bool()>& cancelled, UpdateResult& out) {
  const RunSpec& r = program_.run;
  out.counted = counted_targets(in.targets, r.tokens_per_step());
  Scope scope(*this);
  double* s = inputs_.up();
  std::fill(s, s + step::kScalarCount, 0.0);
  const double t = static_cast<double>(in.step_index) + 1.0;
  s[step::kLossScale] = 1.0 / static_cast<double>(out.counted);
  s[step::kLr] = in.lr;
  s[step::kStepSize] = in.lr / (1.0 - std::pow(r.beta1, t));
  s[step::kInvSqrtBias2] = 1.0 / std::sqrt(1.0 - std::pow(r.beta2, t));
  s[step::kDecayFactor] = 1.0 - in.lr * r.weight_decay;
  if (host_scalars_ != step::kNoBuffer)
    std::memcpy(arenas_.at(host_scalars_), s, step::kScalarCount * sizeof(double));
  inputs_.fill(in.tokens, in.targets, r.accumulate, r.tokens_per_micro_batch());

  steps_ = true;
  if (log_) log_->begin_update(kernels_);
  counters_.begin_step(kernels_);
  inputs_.send_scalars(kernels_);
  bool stopped = false;
  micro_batches(cancelled, stopped);
  if (stopped) {
    scope.finish();
    return Outcome::kCancelled;
  }
  update_section();
  counters_.end_step(kernels_);
  scope.finish();
  half_updated_ = false;
  counters_.read();
  if (log_) log_->end_update();
  const double* back = inputs_.back();
  out.loss = back[step::kLossSum] / static_cast<double>(out.counted);
  out.grad_norm = back[step::kGradNorm];
  return back[step::kApplied] != 0.0 ? Outcome::kDone : Outcome::kNonFinite;
}

// ---- evaluation and generation
// ---------------------------------------------------------------------------------------------

Outcome Executor::evaluate(const std::int32_t* tokens, const std::int32_t* targets, std::uint32_t sequences,
                           UpdateResult& out) {
  const std::uint64_t rows = std::uint64_t{sequences} * program_.run.seq_len;
  out.counted = counted_targets(targets, rows);
  Scope scope(*this);
  std::fill(inputs_.up(), inputs_.up() + step::kScalarCount, 0.0);
  inputs_.fill(tokens, targets, 1, rows);
  inputs_.send_scalars(kernels_);
  ctx_.step = {rows, 0, 0, true, 0};
  inputs_.send(kernels_, 0, rows, 0);
  const step::Section s = program_.section(SectionKind::kEval);
  range(s.begin, s.end);
  inputs_.fetch_scalars(kernels_);
  scope.finish();
  out.loss = out.counted ? inputs_.back()[step::kEvalLossSum] / static_cast<double>(out.counted) : 0.0;
  return std::isfinite(out.loss) ? Outcome::kDone : Outcome::kNonFinite;
}

void Executor::next_logits(std::int32_t token, std::uint32_t position, float* logits) {
  Scope scope(*this);
  ctx_.step = {1, 0, 0, true, position};
  inputs_.send_token(kernels_, token);
  const step::Section s = program_.section(SectionKind::kGenerate);
  range(s.begin, s.end);
  const step::BufferId made = program_.ops[s.end - 1][step::operand::head_logits::kLogits],
                       staging = program_.find(step::role::kStaging);
  const step::Buffer& b = program_[made];
  check(cudaMemcpyAsync(arenas_.at(staging), arenas_.at(made), b.bytes(), cudaMemcpyDeviceToHost, kernels_),
        "fetching logits");
  scope.finish();
  if (b.dtype == DType::kBF16)
    host::to_float(b.cols, arenas_.get<const host::Half>(staging), logits);
  else
    std::memcpy(logits, arenas_.at(staging), b.bytes());
}

void Executor::refresh_mirrors() {
  const step::Section s = program_.section(SectionKind::kUpdate);
  for (std::uint32_t i = s.begin; i < s.end; ++i) {
    const step::Op& op = program_.ops[i];
    if (op.kind != OpKind::kCopy) continue;
    const step::BufferId from = op[step::operand::copy::kFrom], to = op[step::operand::copy::kTo];
    check(cudaMemcpyAsync(arenas_.at(to), arenas_.at(from), program_[from].bytes(), cudaMemcpyDeviceToHost,
                          kernels_),
          "copying the embedding to the host");
  }
  kernels_.wait_for_all();
}

}  // namespace trainhost::cuda
