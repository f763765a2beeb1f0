// Checks every argument that comes from the host before it reaches a kernel.
#include "plugins/cuda/engine/instance.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>

#include "core/abi/error_guard.hpp"
#include "core/base/text.hpp"
#include "core/model/tensors.hpp"
#include "core/step/operands.hpp"
#include "plugins/cuda/common/cuda_traits.hpp"

namespace trainhost::cuda {
namespace {

using Clock = std::chrono::steady_clock;
std::uint64_t ns_since(Clock::time_point t) {
  return static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - t).count());
}

[[noreturn]] void bad_argument(const std::string& what) { throw abi::StatusError(TH_E_ARG, what); }

/// The device must be current before any member takes memory of it.
int current(int device) {
  speak_of({});
  check(cudaSetDevice(device), "choosing device " + std::to_string(device));
  return device;
}

State state_of(std::uint32_t scope) {
  switch (scope) {
    case TH_SCOPE_WEIGHTS:
      return State::kWeights;
    case TH_SCOPE_MOMENT1:
      return State::kMoment1;
    case TH_SCOPE_MOMENT2:
      return State::kMoment2;
    default:
      bad_argument("no state of kind " + std::to_string(scope));
  }
}

std::string describe(int device, const TrainerTraits& p) {
  int major = 0, minor = 0;
  check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device),
        "asking for the compute capability");
  check(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device),
        "asking for the compute capability");
  return std::string(kId) + " " + kVersion + " sm_" + std::to_string(major) + std::to_string(minor) + " " +
         p.mode + ", cuBLASLt " + std::to_string(Gemm::library_version());
}

}  // namespace

Instance::Instance(const th_host* host, int device, const ModelSpec& model, const RunSpec& run,
                   const TrainerTraits& traits)
    : host_(host),
      device_(current(device)),
      program_(step::build_program(model, run, traits)),
      plan_(placement::place(program_)),
      arenas_(host, program_, plan_),
      workspace_(program_.find("vendor_workspace")),
      gemm_(arenas_.get<void>(workspace_), workspace_ == step::kNoBuffer ? 0 : program_[workspace_].bytes()),
      pool_(traits.threads),
      executor_(program_, plan_, arenas_, gemm_, pool_),
      tensors_(program_, arenas_, executor_.stream()),
      loaded_(tensors_.count()),
      kernel_set_(describe(device, traits)) {
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, device), "asking for the device's name");
  device_name_ =
      std::make_shared<const std::string>("device " + std::to_string(device) + " (" + properties.name + ")");
}

void Instance::use_device() const {
  speak_of(device_name_);
  check(cudaSetDevice(device_), "choosing device " + std::to_string(device_));
}

/// What an interrupted update left is neither the old state nor the new one.
void Instance::check_whole() const {
  if (executor_.half_updated())
    throw abi::StatusError(
        TH_E_DEVICE_LOST,
        "the last update was interrupted half-way: the weights on the device are not usable");
}

void Instance::load(std::uint32_t scope, const th_tensor& t) {
  use_device();
  if (!t.name || !t.data) bad_argument("a tensor without a name or without data");
  const State state = state_of(scope);
  for (std::size_t i = 0; i < tensors_.count(); ++i) {
    const TensorInfo& info = tensors_.info(i);
    if (info.name != t.name) continue;
    if (t.dtype != TH_DT_F32) bad_argument(info.name + ": the cuda trainer takes f32");
    if (t.rank != info.rank || t.dim[0] != info.dim[0] || (info.rank == 2 && t.dim[1] != info.dim[1]))
      bad_argument(info.name + ": of another shape than the model's");
    if (t.first > info.elements() || t.count > info.elements() - t.first)
      bad_argument(info.name + ": a piece outside the tensor");
    if (!tensors_.has(i, state)) bad_argument(info.name + ": this run has no such state");
    tensors_.write(i, state, t.first, t.count, static_cast<const float*>(t.data));
    if (state == State::kWeights) loaded_[i] += t.count, mirrors_stale_ = true;
    return;
  }
  bad_argument("no tensor named " + escaped(t.name) + " in this model");
}

// A piece at a time, made by all threads: the values depend on the element alone. Moments begin as zeros.
void Instance::init(std::uint64_t seed) {
  use_device();
  std::vector<float> piece;
  for (std::size_t i = 0; i < tensors_.count(); ++i) {
    const TensorInfo& info = tensors_.info(i);
    const std::uint64_t n = info.elements();
    if (loaded_[i] >= n) continue;
    piece.resize(std::min(n, tensors_.piece()));
    for (std::uint64_t first = 0; first < n; first += piece.size()) {
      constexpr std::uint64_t kPart = 1 << 16;
      const std::uint64_t count = std::min<std::uint64_t>(piece.size(), n - first);
      pool_.run(static_cast<std::uint32_t>((count + kPart - 1) / kPart), [&](std::uint32_t p) {
        const std::uint64_t from = p * kPart, part = std::min(kPart, count - from);
        init_tensor(program_.model, info, seed, first + from, std::span<float>(piece.data() + from, part));
      });
      tensors_.write(i, State::kWeights, first, count, piece.data());
    }
  }
  mirrors_stale_ = true;
}

void Instance::check_ids(const std::int32_t* tokens, const std::int32_t* targets, std::uint64_t n) const {
  const std::int64_t vocab = static_cast<std::int64_t>(program_.model.vocab);
  for (std::uint64_t i = 0; i < n; ++i) {
    if (tokens[i] < 0 || tokens[i] >= vocab)
      bad_argument("token " + std::to_string(i) + " is " + std::to_string(tokens[i]) +
                   "; the vocabulary has " + std::to_string(vocab));
    if ((targets[i] < 0 || targets[i] >= vocab) && targets[i] != -100)
      bad_argument("target " + std::to_string(i) + " is " + std::to_string(targets[i]) +
                   "; the vocabulary has " + std::to_string(vocab));
  }
}

void Instance::step(const th_step& in, th_step_out& out) {
  use_device();
  check_whole();
  const RunSpec& r = program_.run;
  const bool evaluate = in.flags & TH_STEP_EVALUATE;
  const std::uint64_t most = evaluate ? r.micro_batch : std::uint64_t{r.accumulate} * r.micro_batch;
  if (!evaluate && r.mode == RunMode::kInference)
    throw abi::StatusError(TH_E_STATE, "an inference run has no update");
  if (in.seq != r.seq_len || in.batch == 0 || in.batch > most || (!evaluate && in.batch != most))
    bad_argument("a step of " + std::to_string(in.batch) + " x " + std::to_string(in.seq) +
                 " tokens; the run has " + std::to_string(most) + " x " + std::to_string(r.seq_len));
  if (!in.tokens || !in.targets) bad_argument("a step without tokens or targets");
  check_ids(in.tokens, in.targets, std::uint64_t{in.batch} * in.seq);
  if (!evaluate && counted_targets(in.targets, std::uint64_t{in.batch} * in.seq) == 0)
    bad_argument("a step without a counted target");

  if (mirrors_stale_) executor_.refresh_mirrors(), mirrors_stale_ = false;
  const auto start = Clock::now();
  const std::uint64_t computed = executor_.counters().compute_ns;
  auto cancelled = [this] { return host_->cancelled && host_->cancelled(host_) != 0; };
  UpdateResult result;
  Outcome outcome = Outcome::kCancelled;
  if (!cancelled())
    outcome = evaluate ? executor_.evaluate(in.tokens, in.targets, in.batch, result)
                       : executor_.update({in.tokens, in.targets, in.lr, in.step_index}, cancelled, result);
  out.loss = result.loss;
  out.grad_norm = result.grad_norm;
  out.tokens_counted = result.counted;
  out.wall_ns = ns_since(start);
  out.device_ns = executor_.counters().compute_ns - computed;
  if (outcome == Outcome::kCancelled) throw abi::StatusError(TH_E_CANCELLED, "stopped by the host");
  if (outcome == Outcome::kNonFinite)
    throw abi::StatusError(TH_E_NONFINITE,
                           "loss " + std::to_string(result.loss) + ", gradient norm " +
                               std::to_string(result.grad_norm) + ": the update was not applied",
                           "a smaller optimizer.lr, or a longer warm-up");
}

void Instance::save(std::uint32_t scope, th_tensor_sink& sink) {
  use_device();
  check_whole();
  const State state = state_of(scope);
  for (std::size_t i = 0; i < tensors_.count(); ++i) {
    if (!tensors_.has(i, state)) continue;  // an optimizer without that moment
    const TensorInfo& info = tensors_.info(i);
    th_tensor t{};
    t.struct_size = sizeof t;
    t.dtype = TH_DT_F32;
    t.rank = info.rank;
    t.dim[0] = info.dim[0];
    t.dim[1] = info.rank == 2 ? info.dim[1] : 0;
    t.name = info.name.c_str();
    tensors_.read(i, state, [&](std::uint64_t first, std::uint64_t n, const float* data) {
      t.data = const_cast<float*>(data);
      t.first = first, t.count = n;
      if (th_status s = sink.tensor(&sink, &t); s != TH_OK)
        throw abi::StatusError(s, "the host refused tensor " + info.name);
    });
  }
}

void Instance::next(std::int32_t token, std::uint32_t position, float* logits) {
  use_device();
  check_whole();
  if (token < 0 || static_cast<std::uint64_t>(token) >= program_.model.vocab)
    bad_argument("token " + std::to_string(token) + " is outside the vocabulary");
  if (position >= program_.run.seq_len)
    bad_argument("position " + std::to_string(position) + "; the cache holds " +
                 std::to_string(program_.run.seq_len));
  executor_.next_logits(token, position, logits);
}

void Instance::counters(th_counters& c) const {
  const RunCounters& t = executor_.counters();
  c.h2d_count = t.activation.up, c.d2h_count = t.activation.down;
  c.h2d_bytes = t.activation.up_bytes, c.d2h_bytes = t.activation.down_bytes;
  c.sync_count = t.sync.up + t.sync.down, c.sync_bytes = t.sync.up_bytes + t.sync.down_bytes;
  c.chunks = t.chunks;
  c.launches = const_cast<Executor&>(executor_).context().launches;
  c.compute_ns = t.compute_ns, c.exposed_transfer_ns = t.exposed_ns;
  c.stream_count = t.stream.up + t.stream.down, c.stream_bytes = t.stream.up_bytes + t.stream.down_bytes;
}

const char* Instance::info(std::string_view key) const {
  if (key == "kernel_set") return kernel_set_.c_str();
  if (key == "mode") return program_.traits.mode.c_str();
  return nullptr;
}

double Instance::metric(std::string_view key) {
  use_device();
  if (key == "peak_flops") return peak_flops();
  if (key == "sync_mismatch") return sync_mismatch();
  if (key == "stream_bytes")
    return static_cast<double>(executor_.counters().stream.up_bytes + executor_.counters().stream.down_bytes);
  throw abi::StatusError(TH_E_UNSUPPORTED, "the cuda trainer has no figure named " + escaped(key));
}

/// Elements in which a tied table on the device and the host's copy of it differ, bit for bit. 0 where there
/// is one owner.
double Instance::sync_mismatch() {
  if (mirrors_stale_) executor_.refresh_mirrors(), mirrors_stale_ = false;
  std::uint64_t wrong = 0;
  const step::Section s = program_.section(step::SectionKind::kUpdate);
  const step::BufferId staging = program_.find("staging");
  std::byte* staged = arenas_.get<std::byte>(staging);
  for (std::uint32_t i = s.begin; i < s.end; ++i) {
    const step::Op& op = program_.ops[i];
    if (op.kind != step::OpKind::kCopy) continue;
    const std::uint64_t bytes = program_[op[step::operand::copy::kFrom]].bytes(),
                        el = size_of(program_[op[step::operand::copy::kFrom]].dtype),
                        piece = program_[staging].bytes();
    for (std::uint64_t at = 0; at < bytes; at += piece) {
      const std::uint64_t n = std::min(piece, bytes - at);
      check(cudaMemcpyAsync(staged, arenas_.get<std::byte>(op[step::operand::copy::kFrom]) + at, n,
                            cudaMemcpyDeviceToHost, executor_.stream()),
            "fetching the embedding");
      check(cudaStreamSynchronize(executor_.stream()), "fetching the embedding");
      const std::byte* mine = arenas_.get<std::byte>(op[step::operand::copy::kTo]) + at;
      for (std::uint64_t e = 0; e < n; e += el) wrong += std::memcmp(staged + e, mine + e, el) != 0;
    }
  }
  return static_cast<double>(wrong);
}

void Instance::start_profile(void* records, std::uint64_t bytes, th_moments* moments) {
  if (program_.run.mode == RunMode::kInference)
    throw abi::StatusError(TH_E_STATE, "an inference run has no update to profile");
  const std::uint64_t need = abi::record_bytes(program_);
  if (!records || bytes < need)
    bad_argument(std::to_string(bytes) + " bytes for records; a step of this run needs " +
                 std::to_string(need));
  use_device();
  log_.emplace(program_, plan_, records, moments);
  executor_.watch(&*log_);
}

void Instance::read_profile(th_op_sink& sink) const {
  if (!log_) throw abi::StatusError(TH_E_STATE, "nothing is profiled");
  log_->read(sink);
}

void Instance::stop_profile() {
  executor_.watch(nullptr);
  log_.reset();
}

// Square products in the arithmetic of the run, in the part of the arena that is free between steps: as large
// as it has room for, up to 8192. The operands are whatever lies there, made finite first.
double Instance::peak_flops() {
  const std::uint64_t el = size_of(program_.run.weight), room = arenas_.transient_bytes();
  std::uint64_t n = 8192;
  while (n >= 512 && 3 * n * n * el > room) n /= 2;
  if (n < 512)
    throw abi::StatusError(TH_E_UNSUPPORTED,
                           "not enough free memory on the device to measure its rate beside this run");
  std::byte* at = arenas_.transient();
  cudaStream_t stream = executor_.stream();
  check(cudaMemsetAsync(at, 0x3c, 2 * n * n * el, stream),
        "measuring the device");  // 0.0115 and alike: no zeros
  GemmShape s{};
  s.product = Product::kForward, s.M = s.n = s.k = n;
  s.operands = program_.run.weight == DType::kBF16 ? DType::kBF16 : DType::kF32;
  s.tf32 = program_.run.compute == DType::kTF32;
  const Event begin(true), end(true);
  constexpr int kTimes = 5;
  for (int i = 0; i < kTimes + 1; ++i) {
    if (i == 1) check(cudaEventRecord(begin, stream), "recording an event");
    gemm_.run(stream, s, at, at + n * n * el, nullptr, nullptr, at + 2 * n * n * el);
  }
  check(cudaEventRecord(end, stream), "recording an event");
  check(cudaEventSynchronize(end), "measuring the device");
  const double seconds = static_cast<double>(std::max<std::uint64_t>(elapsed_ns(begin, end), 1)) * 1e-9,
               side = static_cast<double>(n);
  return kTimes * 2.0 * side * side * side / seconds;
}

}  // namespace trainhost::cuda
