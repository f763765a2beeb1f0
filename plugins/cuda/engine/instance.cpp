// Checks every argument that comes from the host before it reaches a kernel, and calls the executor. Also
// measures the metrics of a run: peak FLOP/s, and equality of the host's copy of a tied embedding. See
// instance.hpp.
#include "plugins/cuda/engine/instance.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>

#include "core/abi/error_guard.hpp"
#include "core/base/text.hpp"
#include "core/executor/initial_magnitudes.hpp"
#include "core/model/tensors.hpp"
#include "core/step/buffer_names.hpp"
#include "core/step/device_modes.hpp"
#include "plugins/cuda/common/cuda_traits.hpp"
#include "plugins/cuda/engine/start_up.hpp"

namespace trainhost::cuda {
namespace {

using Clock = std::chrono::steady_clock;
std::uint64_t ns_since(Clock::time_point t) {
  return static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - t).count());
}

using executor::bad_argument;

/// Makes the device current for the calling thread; returns its index. Called from the member initialisers,
/// because members allocate device memory.
/// host_computes: the mode has operations on the host. Then a thread that waits for the device sleeps instead
/// of spinning, because the threads of the host need its core.
int make_current(int device, bool host_computes) {
  set_device_name_for_messages({});
  check(cudaSetDevice(device), "selecting device " + std::to_string(device));
  check(cudaSetDeviceFlags(host_computes ? cudaDeviceScheduleBlockingSync : cudaDeviceScheduleAuto),
        "selecting how the host waits");
  return device;
}

void require_known_scope(std::uint32_t scope) {
  if (scope != TH_SCOPE_WEIGHTS && scope != TH_SCOPE_ADAPTER && !executor::is_state_scope(scope))
    bad_argument("unknown scope " + std::to_string(scope));
}

/// 10 * major + minor.
int compute_capability(int device) {
  int major = 0, minor = 0;
  check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device),
        "querying the compute capability");
  check(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device),
        "querying the compute capability");
  return 10 * major + minor;
}

std::string name_of(int device) {
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, device), "querying the device name");
  return properties.name;
}

/// "cuda 0.1.0 sm_90 resident, cuBLASLt 130100": on which the bits of a run depend.
std::string describe(int device, const TrainerTraits& p, Attention attention) {
  return std::string(kId) + " " + kVersion + " sm_" + std::to_string(compute_capability(device)) + " " +
         p.mode + ", cuBLASLt " + std::to_string(Gemm::library_version()) +
         (attention == Attention::kCudnn ? ", attention by " + CudnnAttention::version() : "");
}

std::uint64_t workspace_bytes(const step::Program& p) {
  const step::BufferId b = p.find(step::role::kVendorWorkspace);
  return b == step::kNoBuffer ? 0 : p[b].bytes();
}

}  // namespace

// start_up() is called between the construction of arenas_ and of the members that use their addresses.
Instance::Instance(const th_host* host, int device, const ModelSpec& model, const RunSpec& run,
                   const TrainerTraits& traits, Attention attention)
    : host_(host),
      device_(make_current(device, traits.mode != "resident")),
      program_(step::build_program(model, run, traits)),
      plan_(placement::place(program_)),
      ranks_(NcclRanks::of(host, program_, device, name_of(device))),
      cudnn_(attention == Attention::kCudnn
                 ? std::make_unique<CudnnAttention>(program_, compute_capability(device),
                                                    cudnn_backward_sequences(program_.model, run))
                 : nullptr),
      gemm_(std::min(kBlasWorkspaceBytes, workspace_bytes(program_))),
      arenas_(host, program_, plan_),
      pool_((start_up(host, device, program_, gemm_, arenas_, ranks_.get()), traits.threads)),
      executor_(host, program_, plan_, arenas_, gemm_, pool_, ranks_.get()),
      tensors_(program_, arenas_, executor_.stream(), ranks_ ? &ranks_->host() : nullptr),
      state_(program_, kId),
      loaded_(tensors_.count()),
      kernel_set_(describe(device, traits, attention) + (ranks_ ? ", " + ranks_->version() : "")) {
  if (cudnn_) cudnn_->use_workspace(arenas_.get<void>(program_.find(step::role::kVendorWorkspace)));
  executor_.context().cudnn = cudnn_.get();
  device_name_ = "device " + std::to_string(device) + " (" + name_of(device) + ")";
}

void Instance::use_device() const {
  set_device_name_for_messages(device_name_);
  check(cudaSetDevice(device_), "selecting device " + std::to_string(device_));
}

/// After an interrupted update the weights are neither the old nor the new ones.
void Instance::require_complete_update() const {
  if (executor_.half_updated())
    throw abi::StatusError(TH_E_DEVICE_LOST,
                           "the last update failed before it was complete: the weights are not usable");
}

void Instance::load(std::uint32_t scope, const th_tensor& t) {
  use_device();
  require_known_scope(scope);
  const auto* from = static_cast<const float*>(t.data);
  if (executor::is_state_scope(scope))
    return tensors_.write_state(scope, state_.find(scope, t), t.first, {from, t.count});
  const std::size_t i = executor::find_tensor(tensors_.infos(), t, kId);
  executor::require_scope(program_.run, tensors_.info(i), scope);
  tensors_.write(i, t.first, t.count, from);
  loaded_[i] += t.count, host_copies_stale_ = true;
}

// Fills the weights that load() has not written, one piece of the staging size at a time. All threads compute
// parts of a piece; an initial value depends only on seed, tensor and element index. Moments are zero
// already. Magnitudes of DoRA come last, because they follow from the other weights, which the ranks exchange
// where none has all.
void Instance::init(std::uint64_t seed) {
  use_device();
  std::vector<float> piece;
  std::vector<std::size_t> magnitudes;
  for (std::size_t i = 0; i < tensors_.count(); ++i) {
    const TensorInfo& info = tensors_.info(i);
    const std::uint64_t n = info.elements();
    if (loaded_[i] >= n) continue;
    if (info.part == AdapterPart::kMagnitude) {
      magnitudes.push_back(i);
      continue;
    }
    piece.resize(std::min(n, tensors_.piece()));
    for (std::uint64_t first = 0; first < n; first += piece.size()) {
      constexpr std::uint64_t kPart = 1 << 16;  // elements per task
      const std::uint64_t count = std::min<std::uint64_t>(piece.size(), n - first);
      pool_.run(static_cast<std::uint32_t>((count + kPart - 1) / kPart), [&](std::uint32_t p) {
        const std::uint64_t from = p * kPart, part = std::min(kPart, count - from);
        init_tensor(program_.model, info, seed, first + from, std::span<float>(piece.data() + from, part));
      });
      tensors_.write(i, first, count, piece.data());
    }
  }
  for (const std::size_t i : magnitudes) {
    const std::vector<float> values = executor::initial_magnitudes(
        program_, tensors_.infos(), i,
        [&](std::size_t t, const auto& to) {
          tensors_.read(t, false, [&](std::uint64_t first, std::uint64_t n, const float* part) {
            to(first, {part, n});
          });
        },
        [&](std::uint32_t count, const auto& f) { pool_.run(count, f); });
    tensors_.write(i, 0, values.size(), values.data());
  }
  host_copies_stale_ = true;
}

void Instance::step(const th_step& in, th_step_out& out) {
  use_device();
  require_complete_update();
  executor::validate_step(program_, in);
  if (host_copies_stale_) executor_.refresh_host_copies(), host_copies_stale_ = false;
  const auto start = Clock::now();
  const std::uint64_t compute_before = executor_.counters().compute_ns;
  auto cancelled = [this] { return host_->cancelled && host_->cancelled(host_) != 0; };
  UpdateResult result;
  Outcome outcome = Outcome::kCancelled;
  const bool evaluate = in.flags & TH_STEP_EVALUATE;
  const UpdateInput update{in.tokens, in.targets, in.lr, in.step_index, in.starts};
  if (!cancelled())
    outcome = evaluate ? executor_.evaluate(in.tokens, in.targets, in.starts, in.batch, result)
                       : executor_.update(update, cancelled, result);
  out.wall_ns = ns_since(start);
  out.device_ns = executor_.counters().compute_ns - compute_before;
  if (!evaluate && outcome == Outcome::kNonFinite) result.cause = executor_.find_nonfinite(update, cancelled);
  executor::return_result(outcome, result, out);
}

void Instance::save(std::uint32_t scope, th_tensor_sink& sink) {
  use_device();
  require_complete_update();
  const bool own_part = scope & TH_SAVE_OWN_PART;
  scope &= ~TH_SAVE_OWN_PART;
  require_known_scope(scope);
  const auto send = [&sink](th_tensor t) {
    return [&sink, t](std::uint64_t first, std::uint64_t n, const float* data) mutable {
      t.data = const_cast<float*>(data);
      t.first = first, t.count = n;
      executor::send_tensor(sink, t);
    };
  };
  // Of its own part a TP rank sends the elements of what it has of a tensor.
  const auto describe = [&](const TensorInfo& whole) {
    return own_part ? tensors_.info_of_own_part(whole) : whole;
  };
  if (executor::is_state_scope(scope)) {
    for (const step::StateLocation& at : state_.of(scope)) {
      const TensorInfo info = describe(at.info);
      tensors_.read_state(scope, at, own_part, send(executor::describe_tensor(info)));
    }
    return;
  }
  for (std::size_t i = 0; i < tensors_.count(); ++i) {
    if (!executor::is_in_scope(program_.run, tensors_.info(i), scope)) continue;
    const TensorInfo info = describe(tensors_.info(i));
    tensors_.read(i, own_part, send(executor::describe_tensor(info)));
  }
}

void Instance::next(std::int32_t token, std::uint32_t position, float* logits) {
  use_device();
  require_complete_update();
  executor::validate_next(program_, token, position);
  executor_.next_logits(token, position, logits);
}

void Instance::counters(th_counters& c) const {
  const RunCounters& t = executor_.counters();
  c.h2d_count = t.activation.up, c.d2h_count = t.activation.down;
  c.h2d_bytes = t.activation.up_bytes, c.d2h_bytes = t.activation.down_bytes;
  c.sync_count = t.sync.up + t.sync.down, c.sync_bytes = t.sync.up_bytes + t.sync.down_bytes;
  c.chunks = t.chunks;
  c.launches = const_cast<Executor&>(executor_).context().launches;
  c.compute_ns = t.compute_ns;
  // In the resident mode, the only one of several ranks, the device waits for nothing but communication.
  (ranks_ ? c.communication_wait_ns : c.exposed_transfer_ns) = t.exposed_ns;
  c.communication_bytes = executor_.traffic().bytes, c.communication_wait_ns += executor_.traffic().waited_ns;
  c.stream_count = t.stream.up + t.stream.down, c.stream_bytes = t.stream.up_bytes + t.stream.down_bytes;
}

const char* Instance::info(std::string_view key) const {
  if (key == "kernel_set") return kernel_set_.c_str();
  if (key == "mode") return program_.traits.mode.c_str();
  return nullptr;
}

double Instance::metric(std::string_view key) {
  use_device();
  if (key == "peak_flops") return measure_peak_flops();
  if (key == "sync_mismatch") return count_sync_mismatches();
  if (key == "stream_bytes")
    return static_cast<double>(executor_.counters().stream.up_bytes + executor_.counters().stream.down_bytes);
  if (const std::optional<std::int32_t> layer =
          executor::layer_of_metric(key, program_.model.layers, ranks_ != nullptr))
    if (const double squares = executor_.layer_grad_squares(*layer); squares >= 0.0)
      return std::sqrt(squares);
  throw abi::StatusError(TH_E_UNSUPPORTED, "the cuda trainer has no metric named " + escaped(key));
}

/// Number of elements in which a tied embedding on the device and the host's copy differ bit for bit; 0 in
/// modes without a copy. Fetches the table in pieces of the staging buffer.
double Instance::count_sync_mismatches() {
  if (host_copies_stale_) executor_.refresh_host_copies(), host_copies_stale_ = false;
  const step::EmbeddingCopy table = step::embedding_copy(program_);
  if (table.host == step::kNoBuffer) return 0.0;
  std::uint64_t mismatches = 0;
  const step::BufferId staging = program_.find(step::role::kStaging);
  std::byte* staged = arenas_.get<std::byte>(staging);
  const std::uint64_t bytes = program_[table.device].bytes(), el = size_of(program_[table.device].dtype),
                      piece = program_[staging].bytes();
  for (std::uint64_t at = 0; at < bytes; at += piece) {
    const std::uint64_t n = std::min(piece, bytes - at);
    check(cudaMemcpyAsync(staged, arenas_.get<std::byte>(table.device) + at, n, cudaMemcpyDeviceToHost,
                          executor_.stream()),
          "fetching the embedding");
    check(cudaStreamSynchronize(executor_.stream()), "fetching the embedding");
    const std::byte* copy = arenas_.get<std::byte>(table.host) + at;
    for (std::uint64_t e = 0; e < n; e += el) mismatches += std::memcmp(staged + e, copy + e, el) != 0;
  }
  return static_cast<double>(mismatches);
}

void Instance::start_profile(void* records, std::uint64_t bytes, th_moments* moments) {
  executor::validate_record_buffer(program_, records, bytes);
  use_device();
  timer_.emplace(program_, plan_, records, moments);
  executor_.set_op_timer(&*timer_);
}

void Instance::read_profile(th_op_sink& sink) const {
  if (!timer_) throw abi::StatusError(TH_E_STATE, "the profiler was not started");
  timer_->read(sink);
}

void Instance::stop_profile() {
  executor_.set_op_timer(nullptr);
  timer_.reset();
}

// Times square products n x n x n in the arithmetic of the run. The operands are in the part of the arena
// that has no contents between steps, so nothing is allocated; n is the largest power of two up to 8192 that
// fits. The operands are filled with a finite non-zero pattern, because the power consumption and so the
// clock rate depend on the data.
double Instance::measure_peak_flops() {
  const std::uint64_t el = size_of(program_.run.weight), available = arenas_.transient_bytes();
  std::uint64_t n = 8192;
  while (n >= 512 && 3 * n * n * el > available) n /= 2;
  if (n < 512)
    throw abi::StatusError(TH_E_UNSUPPORTED,
                           "not enough free memory in the device arena to measure the peak rate");
  std::byte* at = arenas_.transient();  // A | B | result, n x n each
  cudaStream_t stream = executor_.stream();
  check(cudaMemsetAsync(at, 0x3c, 2 * n * n * el, stream),
        "measuring the peak rate");  // 0x3c3c3c3c = 0.0115 in f32
  GemmShape s{};
  s.product = Product::kForward, s.M = s.n = s.k = n;
  s.operands = program_.run.weight == DType::kBF16 ? DType::kBF16 : DType::kF32;
  s.tf32 = program_.run.compute == DType::kTF32;
  const Event begin(true), end(true);
  constexpr int kTimes = 5;  // timed, after one product that is not
  for (int i = 0; i < kTimes + 1; ++i) {
    if (i == 1) check(cudaEventRecord(begin, stream), "recording an event");
    gemm_.run(stream, s, at, at + n * n * el, nullptr, nullptr, at + 2 * n * n * el);
  }
  check(cudaEventRecord(end, stream), "recording an event");
  check(cudaEventSynchronize(end), "measuring the peak rate");
  const double seconds = static_cast<double>(std::max<std::uint64_t>(elapsed_ns(begin, end), 1)) * 1e-9,
               side = static_cast<double>(n);
  return kTimes * 2.0 * side * side * side / seconds;
}

}  // namespace trainhost::cuda
