// Checks every argument that comes from the host before it reaches a kernel.
#include "plugins/cpu/engine/instance.hpp"

#include <chrono>
#include <cstring>
#include <span>

#include "core/base/text.hpp"
#include "core/bridge/guard.hpp"
#include "core/model/init.hpp"
#include "plugins/cpu/common/profile.hpp"
#include "plugins/cpu/engine/float_mode.hpp"
#include "plugins/cpu/engine/openblas.hpp"
#include "plugins/cpu/engine/product.hpp"

namespace trainhost::cpu {
namespace {

using Clock = std::chrono::steady_clock;
std::uint64_t ns_since(Clock::time_point t) {
  return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - t).count());
}

plan::Program build(const th_host* host, const ModelSpec& model, const RunSpec& run) {
  require_supported(run);
  return plan::build_program(model, run, profile_of(model, run, host->thread_budget));
}

[[noreturn]] void bad_argument(const std::string& what) { throw bridge::StatusError(TH_E_ARG, what); }

}  // namespace

Instance::Instance(const th_host* host, const ModelSpec& model, const RunSpec& run)
    : host_(host),
      program_(build(host, model, run)),
      plan_(plan::place(program_)),
      storage_(host, program_, plan_),
      pool_(program_.profile.threads),
      executor_(program_, storage_, pool_, select_kernels(), &select_bf16_kernels()),
      places_(program_.tensor_infos.size()),
      loaded_(program_.tensor_infos.size()),
      kernel_set_(std::string(kId) + " " + kVersion + " " + executor_.exec().kernels.name + (bf16() ? std::string(" bf16:") + bf16()->name : "") + ", " + openblas_version()) {
  for (const plan::Param& p : program_.params)
    for (const plan::Slice& s : p.slices) places_[s.tensor] = {&p, s.first_element};
}

float* Instance::data(const Place& place, std::uint32_t scope) {
  plan::BufferId b = scope == TH_SCOPE_WEIGHTS   ? place.param->weight
                     : scope == TH_SCOPE_MOMENT1 ? place.param->m
                     : scope == TH_SCOPE_MOMENT2 ? place.param->v
                                                 : plan::kNoBuffer;
  return b == plan::kNoBuffer ? nullptr : static_cast<float*>(storage_.at(b)) + place.first;
}

void Instance::load(std::uint32_t scope, const th_tensor& t) {
  if (!t.name || !t.data) bad_argument("a tensor without a name or without data");
  for (std::size_t i = 0; i < places_.size(); ++i) {
    const TensorInfo& info = program_.tensor_infos[i];
    if (info.name != t.name) continue;
    if (t.dtype != TH_DT_F32) bad_argument(info.name + ": the cpu trainer takes f32");
    if (t.rank != info.rank || t.dim[0] != info.dim[0] || (info.rank == 2 && t.dim[1] != info.dim[1]))
      bad_argument(info.name + ": of another shape than the model's");
    if (t.first > info.elements() || t.count > info.elements() - t.first)
      bad_argument(info.name + ": a piece outside the tensor");
    float* to = data(places_[i], scope);
    if (!to) bad_argument(info.name + ": this run has no such state");
    std::memcpy(to + t.first, t.data, t.count * sizeof(float));
    if (scope == TH_SCOPE_WEIGHTS) loaded_[i] += t.count;
    return;
  }
  bad_argument("no tensor named " + escaped(t.name) + " in this model");
}

// Pieces of 64K elements, so that one large tensor keeps every thread busy; the values depend on the element alone.
void Instance::init(std::uint64_t seed) {
  constexpr std::uint64_t kPiece = 1 << 16;
  for (std::size_t i = 0; i < places_.size(); ++i) {
    const TensorInfo& info = program_.tensor_infos[i];
    const std::uint64_t n = info.elements();
    if (loaded_[i] >= n) continue;
    float* to = data(places_[i], TH_SCOPE_WEIGHTS);
    pool_.run(static_cast<std::uint32_t>((n + kPiece - 1) / kPiece), [&](std::uint32_t p, std::uint32_t) {
      std::uint64_t first = p * kPiece, count = std::min(kPiece, n - first);
      init_tensor(program_.model, info, seed, first, std::span<float>(to + first, count));
    });
  }
  ready_ = true;
}

void Instance::require_ready(const char* call) const {
  if (!ready_) throw bridge::StatusError(TH_E_STATE, std::string(call) + " before init()");
}

void Instance::check_ids(const std::int32_t* tokens, const std::int32_t* targets, std::uint64_t n) const {
  const std::int64_t vocab = static_cast<std::int64_t>(program_.model.vocab);
  for (std::uint64_t i = 0; i < n; ++i) {
    if (tokens[i] < 0 || tokens[i] >= vocab)
      bad_argument("token " + std::to_string(i) + " is " + std::to_string(tokens[i]) + "; the vocabulary has " +
                   std::to_string(vocab));
    if ((targets[i] < 0 || targets[i] >= vocab) && targets[i] != -100)
      bad_argument("target " + std::to_string(i) + " is " + std::to_string(targets[i]) + "; the vocabulary has " +
                   std::to_string(vocab));
  }
}

void Instance::step(const th_step& in, th_step_out& out) {
  const RunSpec& r = program_.run;
  const bool evaluate = in.flags & TH_STEP_EVALUATE;
  const std::uint64_t most = evaluate ? r.micro_batch : std::uint64_t{r.accumulate} * r.micro_batch;
  if (!evaluate && r.mode == RunMode::kInference)
    throw bridge::StatusError(TH_E_STATE, "an inference run has no update");
  if (in.seq != r.seq_len || in.batch == 0 || in.batch > most || (!evaluate && in.batch != most))
    bad_argument("a step of " + std::to_string(in.batch) + " x " + std::to_string(in.seq) + " tokens; the run has " +
                 std::to_string(most) + " x " + std::to_string(r.seq_len));
  if (!in.tokens || !in.targets) bad_argument("a step without tokens or targets");
  check_ids(in.tokens, in.targets, std::uint64_t{in.batch} * in.seq);
  if (!evaluate && counted_targets(in.targets, std::uint64_t{in.batch} * in.seq) == 0)
    bad_argument("a step without a counted target");

  FlushDenormals mode;
  const auto start = Clock::now();
  auto cancelled = [this] { return host_->cancelled && host_->cancelled(host_) != 0; };
  UpdateResult result;
  Outcome outcome = evaluate ? executor_.evaluate(in.tokens, in.targets, in.batch, cancelled, result)
                             : executor_.update({in.tokens, in.targets, in.lr, in.step_index}, cancelled, result);
  out.loss = result.loss;
  out.grad_norm = result.grad_norm;
  out.tokens_counted = result.counted;
  out.wall_ns = out.device_ns = ns_since(start);
  compute_ns_ += out.wall_ns;
  if (outcome == Outcome::kCancelled) throw bridge::StatusError(TH_E_CANCELLED, "stopped by the host");
  if (outcome == Outcome::kNonFinite)
    throw bridge::StatusError(TH_E_NONFINITE, "loss " + std::to_string(result.loss) + ", gradient norm " +
                                                  std::to_string(result.grad_norm) + ": the update was not applied",
                              "a smaller optimizer.lr, or a longer warm-up");
}

void Instance::save(std::uint32_t scope, th_tensor_sink& sink) {
  for (std::size_t i = 0; i < places_.size(); ++i) {
    const TensorInfo& info = program_.tensor_infos[i];
    float* from = data(places_[i], scope);
    if (!from) continue;  // an optimizer without that moment
    th_tensor t{};
    t.struct_size = sizeof t;
    t.dtype = TH_DT_F32;
    t.rank = info.rank;
    t.dim[0] = info.dim[0];
    t.dim[1] = info.rank == 2 ? info.dim[1] : 0;
    t.name = info.name.c_str();
    t.data = from;
    t.count = info.elements();
    if (th_status s = sink.tensor(&sink, &t); s != TH_OK)
      throw bridge::StatusError(s, "the host refused tensor " + info.name);
  }
}

void Instance::next(std::int32_t token, std::uint32_t position, float* logits) {
  if (token < 0 || static_cast<std::uint64_t>(token) >= program_.model.vocab)
    bad_argument("token " + std::to_string(token) + " is outside the vocabulary");
  if (position >= program_.run.seq_len)
    bad_argument("position " + std::to_string(position) + "; the cache holds " + std::to_string(program_.run.seq_len));
  FlushDenormals mode;
  executor_.next_logits(token, position, logits);
}

void Instance::start_profile(void* records, std::uint64_t bytes, th_moments* moments) {
  if (program_.run.mode == RunMode::kInference) throw bridge::StatusError(TH_E_STATE, "an inference run has no update to profile");
  if (!records || bytes < bridge::record_bytes(program_))
    bad_argument(std::to_string(bytes) + " bytes for records; a step of this run needs " + std::to_string(bridge::record_bytes(program_)));
  log_.emplace(program_, plan_, records, moments);
  executor_.watch(&*log_);
}

void Instance::read_profile(th_op_sink& sink) const {
  if (!log_) throw bridge::StatusError(TH_E_STATE, "nothing is profiled");
  log_->read(sink);
}

void Instance::stop_profile() {
  executor_.watch(nullptr);
  log_.reset();
}

// Products of 256 x 512 x 512 on every thread for about 50 ms, in the arithmetic of the run: small enough for the caches,
// large enough to be the library's best. The operands are the engine's own and are given back: they are no part of a run.
double Instance::peak_flops() {
  constexpr std::uint64_t kM = 256, kN = 512, kK = 512;
  static_assert(kM % kBf16Block == 0 && kN % kBf16Block == 0, "whole tiles, which need no spare one");
  const std::uint32_t threads = pool_.threads();
  std::vector<float> a(threads * kM * kK, 0.5f), b(threads * kN * kK, 0.25f), c(threads * kM * kN);
  std::vector<std::uint64_t> done(threads * 8);
  FlushDenormals mode;
  const auto start = Clock::now();
  pool_.run(threads, [&](std::uint32_t i, std::uint32_t) {
    do {
      float *left = a.data() + i * kM * kK, *right = b.data() + i * kN * kK, *out = c.data() + i * kM * kN;
      if (bf16())  // packed operands take half of the room
        bf16()->multiply(kM, kN, kK / kBf16Block, reinterpret_cast<std::uint16_t*>(left), reinterpret_cast<std::uint16_t*>(right), false,
                         out, kN, nullptr);
      else
        blas_tile(Right::kTransposed, {0, kM}, {0, kN}, kN, kK, left, right, false, out);
      ++done[i * 8];
    } while (ns_since(start) < 50'000'000);
  });
  std::uint64_t products = 0;
  for (std::uint32_t i = 0; i < threads; ++i) products += done[i * 8];
  return static_cast<double>(products) * 2.0 * kM * kN * kK / (static_cast<double>(ns_since(start)) * 1e-9);
}

}  // namespace trainhost::cpu
