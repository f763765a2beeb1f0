// ZeRO stage 3 of DeepSpeed: when the weights of a module are gathered and freed on one rank, and what the
// reduction of gradients and the step allocate, and what offload keeps in host memory. Describes DeepSpeed
// 0.19 with torch 2.15. Models call it for each module (step_model.hpp).
#pragma once
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/frameworks/autograd/tape.hpp"
#include "core/frameworks/trace/host_memory.hpp"

namespace trainhost::frameworks {

struct StepSettings;
struct ZeroPolicy;
class OptimizerStep;
class ZeroScript;
enum class ZeroCall : std::uint8_t;

/// A rank keeps a part of each parameter. A module gathers its own parameters before its forward pass and
/// before its backward pass, and frees them after it. The first micro-batch records the order of the modules.
/// Later ones also gather parameters of the modules that follow, several in one flat buffer from which they
/// are copied, and keep parameters that are used again soon. Small parameters are kept between steps.
///
/// With offload_parameters the parts are in host memory: each gather copies them to the device first. With
/// offload_optimizer the parts of the gradients are in host memory, in the type of the model for the sum of
/// the micro-batches and in f32 for the update; f32 weights and moments are there too.
///
/// The parameters of one model, in the order of model.parameters(). Tape and settings must outlive it.
class Zero3 {
 public:
  Zero3(Tape& tape, const StepSettings& settings);
  ~Zero3();
  Zero3(const Zero3&) = delete;
  Zero3& operator=(const Zero3&) = delete;

  /// A parameter without memory until a module gathers it. Modules are named by Tape::layer and a name.
  /// A frozen one is gathered like the others, and has neither gradient nor f32 weights.
  Tensor parameter(const Shape& shape, Element type, const char* module, bool trained = true);
  /// Another module that uses a parameter.
  void share(const Tensor& parameter, const char* module);
  /// Allocates the parts of the rank, when all parameters are known.
  void start();

  /// The model is called: reset_step() of the coordinator.
  void begin_forward();
  /// z3_leaf_module(): gathers what is in the modules inside of it too, which have no hooks. Others of this
  /// name have no parameters of their own.
  static constexpr const char* kLeaf = "mlp";
  /// boundary: the last micro-batch of a step.
  void before_backward(bool boundary);
  /// Calls a module. The backward pass of the module begins at its result and ends at its input, if
  /// `of_input`.
  Tensor call(const char* module, const Tensor& input, const std::function<Tensor(const Tensor&)>& body,
              bool of_input = true);
  /// `module` reads a parameter of another module. Where it is absent, it is gathered, and from then on
  /// belongs to both.
  void read(const Tensor& parameter, const char* module);
  void after_gradient(const Tensor& parameter);
  void after_backward();
  void step();
  const HostMemory& host() const { return host_; }

 private:
  friend class ZeroPlayer;
  /// Ascending, each once. They have few elements, and are made and searched for each call of a module.
  using Indices = std::vector<std::size_t>;
  enum class State : std::uint8_t { kAbsent, kInFlight, kPresent };
  struct Gather {
    Tensor flat;  // of several parameters, until they are copied out
    std::vector<std::size_t> parameters;
    bool complete = false;
  };
  struct Parameter {
    Tensor tensor;
    std::uint64_t elements = 0, part = 0;  // part: elements of a rank
    std::int32_t layer = -1;
    std::uint32_t ordinal = 0;  // among those of its layer
    const char* module = "";
    bool persists = false;
    State state = State::kAbsent;
    Indices users;                   // modules that run
    std::shared_ptr<Gather> gather;  // not yet waited for
    std::int64_t fetched_for = -1;   // the last use, in calls, that a gather looked at
  };
  struct Use {
    std::size_t parameter;
    std::int64_t call;
  };
  struct Group {
    std::vector<std::size_t> parameters;
    std::vector<Tensor> master;  // one
    std::unique_ptr<OptimizerStep> optimizer;
  };

  std::size_t module(const char* name);
  Tensor buffer(std::uint64_t elements, Element type, Purpose purpose, const char* name);
  void add_groups(const std::vector<std::size_t>& parameters);
  void keep_weights(const std::vector<std::size_t>& trained, const std::vector<std::size_t>& frozen);
  void start_groups();
  void gather_persistent();
  Tensor parts_from_host(const std::vector<std::size_t>& parameters);
  void copy_to_host(const Parameter& p);
  std::uint64_t part_of(const std::vector<std::size_t>& parameters) const;
  Tensor weight_memory(const Parameter& p, std::uint64_t elements);
  void use_own_part(Parameter& p);
  void mark_persistent();

  void fetch(std::size_t module, bool forward);
  void prefetch(std::size_t module);
  void require_expected(std::size_t module);
  void release_in_flight();
  void count_gradients(std::size_t module, bool takes_gradient);
  void gather(const Indices& parameters);
  void wait(std::size_t parameter);
  void release(std::size_t module, bool forward);
  void release_recomputed(std::size_t module);
  const Indices& released_by(std::size_t module);
  bool is_leaf(std::size_t module) const;
  Indices parameters_inside(std::size_t module) const;
  void free_weight(Parameter& p);
  void before_backward(std::size_t module);
  void after_backward_of(std::size_t module);
  void reduce_bucket();
  // Where calls are noted only (zero_script.hpp).
  void note(ZeroCall call, std::size_t module);
  void view(std::size_t module);
  void view_parameter(Parameter& p);
  void end_views(std::size_t module);
  void end_all_views();
  static void end_view(Tape& tape, Parameter& p);

  Tape& t_;
  const StepSettings& s_;
  const ZeroPolicy& policy_;
  ZeroScript* const script_;  // none: the calls are carried out
  std::map<std::int32_t, std::uint32_t> parameters_of_layer_;
  std::vector<std::pair<std::int32_t, const char*>> names_;  // of the modules: layer and name
  std::vector<Parameter> parameters_;
  std::unordered_map<const TensorBody*, std::size_t> index_of_;
  std::vector<std::vector<std::size_t>> modules_of_layer_;  // [0]: outside
  std::vector<Indices> modules_;                            // parameters of each

  enum class Order : std::uint8_t { kUnknown, kRecorded, kKnown } order_ = Order::kUnknown;
  std::vector<std::size_t> calls_;  // modules in the order of their forward and backward passes
  std::deque<Use> uses_;            // that are not gathered yet
  std::int64_t call_ = 0, gathered_elements_ = 0;
  struct Released {
    std::size_t module;
    Indices parameters;
  };
  std::vector<std::vector<Released>> released_;  // by call; decided once
  struct Expected {
    int now = 0, with_gradients = 0;
  };
  std::vector<Expected> expected_;        // by module: gradients of its inputs
  std::vector<std::size_t> in_backward_;  // modules whose backward pass has begun

  /// Frozen parameters that a recomputation uses: released by the module whose backward pass has begun.
  std::vector<Indices> recomputed_;  // by module
  std::vector<Tensor> kept_;         // for the whole run
  Tensor gradients_of_parts_;
  HostMemory host_;
  std::vector<Tensor> norms_;  // of the gradients that were copied to the host
  bool boundary_ = true;
  std::vector<Group> groups_;
  std::vector<std::size_t> in_bucket_;
  std::uint64_t bucket_elements_ = 0;
  std::size_t gradients_ = 0;  // complete in this micro-batch, of
  std::size_t trained_ = 0;    // parameters
};

}  // namespace trainhost::frameworks
