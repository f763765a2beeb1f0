// A trainer plugin from a class of kernels: TH_MANIFEST followed by TRAINHOST_TRAINER(Mine) is the whole
// plugin. Exact plans, recompute, gradient accumulation, clipping, checkpoints, evaluation, generation,
// profiling and all argument checks are included. For memory that the CPU can address. Example:
// sdk/examples/plain_trainer; test of the kernels: kernel_check.hpp.
//
// clang-format off
// Mine has the twenty-one kernels of kernels.hpp (inherit ReferenceKernels and replace them one by one), and
//   static constexpr const char *id = "mine", *version = "1.0";      the same as in the manifest
// A class that inherits ReferenceKernels should name the kernels that it defines, so that a misspelt one is reported:
//   static constexpr const char* own_kernels = "linear linear_dx";
// Optional members:
//   static constexpr bool document_mask = true;                      its attention kernels read `starts`
//   static std::uint32_t probe(const th_host*);                      number of devices; throws th::Error(TH_E_UNAVAILABLE, why)
//   static void traits(const ModelSpec&, const RunSpec&, std::uint32_t threads, TrainerTraits&);   changes the defaults below
//   static void supports(const RunSpec&);                            throws th::Error(TH_E_UNSUPPORTED, why); default: f32, one rank
//   explicit Mine(const Setup&);                                     one object per run
//   void workspace(void* scratch, std::uint64_t bytes);              called once if traits() set workspace_bytes
//   void* take(std::uint64_t bytes, std::uint64_t alignment);        allocates the arena, zero-filled
//   void give_back(void*);                                           frees it
//   std::string kernel_set();                                        what the bits of results depend on
//   double peak_flops();                                             peak FLOP/s, measured; MFU is a share of it
// clang-format on
#pragma once
#include <memory>
#include <string>

#include "core/executor/calls.hpp"
#include "core/executor/kernel_backend.hpp"
#include "core/executor/trainer_run.hpp"

namespace trainhost::executor {

/// Description of a run, passed to the constructor of the kernels; the references stay valid as long as they
/// do.
struct Setup {
  const th_host* host;
  std::int32_t device;
  const ModelSpec& model;
  const RunSpec& run;
  const TrainerTraits& traits;
};

/// Alignment 64, one thread, one row of scores and one of their gradients at once, logits of at most 64 MiB,
/// no work space.
TrainerTraits default_traits(const char* id, const ModelSpec& model, const RunSpec& run);

/// Throws abi::StatusError (TH_E_UNSUPPORTED) for a run with several documents in one sequence.
void require_one_document(const char* id, const RunSpec& run);

/// Throws abi::StatusError (TH_E_UNSUPPORTED) for any other run than f32 on one rank.
void require_f32_on_one_rank(const char* id, const RunSpec& run);

template <class K>
struct KernelTrainer {
  // ---- front end: calls without an instance
  static std::uint32_t probe(const th_host* host) {
    if constexpr (requires { K::probe(host); }) return K::probe(host);
    (void)host;
    return 1;
  }
  static Choice choose(const th_host* host, const ModelSpec& model, const RunSpec& run) {
    if constexpr (requires { K::supports(run); })
      K::supports(run);
    else
      require_f32_on_one_rank(K::id, run);
    if constexpr (!requires { requires K::document_mask; }) require_one_document(K::id, run);
    return {traits(model, run, host ? host->thread_budget : 0), ""};
  }
  static TrainerTraits traits(const ModelSpec& model, const RunSpec& run, std::uint32_t threads) {
    TrainerTraits p = default_traits(K::id, model, run);
    if constexpr (requires { K::traits(model, run, threads, p); })
      K::traits(model, run, threads ? threads : 1, p);
    return p;
  }

  // ---- a run
  static std::shared_ptr<K> kernels(const Setup& setup) {
    if constexpr (std::is_constructible_v<K, const Setup&>)
      return std::make_shared<K>(setup);
    else
      return std::make_shared<K>();
  }
  static std::string kernel_set(K& k) {
    std::string set = std::string(K::id) + " " + K::version;
    if constexpr (requires {
                    { k.kernel_set() } -> std::convertible_to<std::string>;
                  })
      set += " " + std::string(k.kernel_set());
    const std::string left = inherited_kernels<K>();
    return left.empty() ? set : set + ", of the reference: " + left;
  }

  /// A run with its kernels and their allocator. Members are in order of dependency.
  class Instance {
   public:
    Instance(const th_host* host, std::int32_t device, const ModelSpec& model, const RunSpec& run)
        : model_(model),
          spec_(run),
          traits_(choose(host, model, run).traits),
          kernels_(kernels({host, device, model_, spec_, traits_})),
          memory_(*kernels_),
          run_(
              host, model, run, traits_,
              [this](const step::Program& program, Storage& storage) {
                return std::make_unique<KernelBackend<K>>(kernels_, program, storage,
                                                          KernelTrainer::kernel_set(*kernels_));
              },
              OwnMemory::kHas ? &memory_ : nullptr) {
      if (host->log && !wrong_kernels_.empty()) host->log(host, TH_LOG_WARN, K::id, wrong_kernels_.c_str());
      if (host->log)
        host->log(host, TH_LOG_DEBUG, K::id, (std::string("kernels: ") + run_.info("kernel_set")).c_str());
    }

    void load(std::uint32_t scope, const th_tensor& t) { run_.load(scope, t); }
    void init(std::uint64_t seed) { run_.init(seed); }
    void step(const th_step& in, th_step_out& out) { run_.step(in, out); }
    void save(std::uint32_t scope, th_tensor_sink& sink) { run_.save(scope, sink); }
    void next(std::int32_t token, std::uint32_t position, float* logits) {
      run_.next(token, position, logits);
    }
    void counters(th_counters& c) const { run_.counters(c); }
    const char* info(std::string_view key) const {
      if (key == "wrong_kernels" && !wrong_kernels_.empty()) return wrong_kernels_.c_str();
      return run_.info(key);
    }
    double metric(std::string_view key) { return run_.metric(key); }
    void start_profile(void* records, std::uint64_t bytes, th_moments* m) {
      run_.start_profile(records, bytes, m);
    }
    void read_profile(th_op_sink& sink) const { run_.read_profile(sink); }
    void stop_profile() { run_.stop_profile(); }

   private:
    struct OwnMemory final : Allocator {
      static constexpr bool kHas = requires(K & k, void* p) {
        p = k.take(1u, 1u);
        k.give_back(p);
      };
      explicit OwnMemory(K& k) : kernels(k) {}
      void* take(std::uint64_t bytes, std::uint64_t alignment) override {
        if constexpr (kHas) return kernels.take(bytes, alignment);
        (void)bytes, (void)alignment;
        return nullptr;
      }
      void give_back(void* block) override {
        if constexpr (kHas) kernels.give_back(block);
        (void)block;
      }
      K& kernels;
    };

    const ModelSpec model_;
    const RunSpec spec_;
    const TrainerTraits traits_;
    std::shared_ptr<K> kernels_;
    OwnMemory memory_;
    Run run_;
    const std::string wrong_kernels_ = wrong_kernel_names<K>();
  };
  static std::unique_ptr<Instance> create(const th_host* host, std::int32_t device, const ModelSpec& model,
                                          const RunSpec& run) {
    if (const std::uint32_t found = probe(host); device < 0 || static_cast<std::uint32_t>(device) >= found)
      throw abi::StatusError(TH_E_ARG, "device " + std::to_string(device) +
                                           " does not exist: the trainer found " + std::to_string(found));
    return std::make_unique<Instance>(host, device, model, run);
  }

  // ---- the tables
  using Front = FrontCalls<KernelTrainer>;
  using Calls = InstanceCalls<Instance, KernelTrainer>;
  static const th_trainer* trainer() { return &kTrainerTable<Front, Calls>; }
  static const th_generate* generate() { return &kGenerateTable<Calls>; }
  static const th_profiler* profiler() { return &kProfilerTable<Front, Calls>; }
};

}  // namespace trainhost::executor

/// Entry point of a plugin whose trainer is the class of kernels K. The manifest is separate: TH_MANIFEST.
#define TRAINHOST_TRAINER(K)                                                     \
  TH_PLUGIN(K::id, K::version, trainhost::executor::KernelTrainer<K>::trainer(), \
            trainhost::executor::KernelTrainer<K>::generate(),                   \
            trainhost::executor::KernelTrainer<K>::profiler())
