// A rank of torch.distributed.pipelining with the schedule 1F1B, or with several stages and the interleaved
// one: which micro-batches are in flight, and the buffers of the stages. Weights stay gathered, and the
// gradients of a stage are reduced after its last micro-batch.
#pragma once
#include <deque>
#include <utility>
#include <vector>

#include "core/frameworks/step_model.hpp"

namespace trainhost::frameworks {

/// When a stage frees what it has sent and received.
enum class StageBuffers : std::uint8_t {
  /// torch of December 2024: receives into one buffer per micro-batch and direction, and keeps the outputs of
  /// all micro-batches and the gradients of its inputs until the next step.
  kUntilNextStep,
  /// torch 2.8: the same, but only the last stage keeps its outputs.
  kOutputsOfLastStage,
  /// torch 2.15: a buffer is allocated when it receives; outputs are freed when they have been sent, and a
  /// gradient when the backward pass of the next micro-batch has ended. The last stage keeps its inputs.
  kUntilSent,
};

struct StageOfPipeline {
  std::uint32_t stages = 1, index = 0;
  /// The embedding, and the norm with the head, count as a layer each: torchtitan from 0.1 on.
  bool ends_count = false;
  bool alone = false;  // the model has the layers of this stage only
  /// Layers of the first and of the last stage, if they have not as many as the others; 0: they have.
  std::uint32_t first_layers = 0, last_layers = 0;
  StageBuffers buffers = StageBuffers::kUntilNextStep;
  /// Stages of each rank: `index` and every (stages / per_rank)-th after it, as interleaved 1F1B places them.
  std::uint32_t per_rank = 1;
  bool first() const { return index == 0; }
  bool last() const { return index + 1 == stages; }
  std::uint32_t ranks() const { return stages / per_rank; }
  /// The n-th stage of this rank, alone.
  StageOfPipeline of_rank(std::uint32_t n) const;
  bool operator==(const StageOfPipeline&) const = default;
};

/// First layer of the stage, and one past its last. Beside a given number in the first or the last stage the
/// others have equal numbers, which the caller has checked. Else layers that are left over go to the first
/// stages; in torchtitan 0.0 to those from the second on.
std::pair<std::uint32_t, std::uint32_t> layers_of_stage(std::uint32_t layers, const StageOfPipeline& stage);

/// What a rank does next: the forward or the backward pass of its n-th stage with the stage's next
/// micro-batch.
struct StageAction {
  std::uint32_t stage = 0;
  bool forward = true;
  bool operator==(const StageAction&) const = default;
};
/// One step of a rank: 1F1B, or ScheduleInterleaved1F1B. `stage.index` is the rank. The micro-batches of
/// several stages per rank are a multiple of the rounds, which have as many as there are ranks or more.
std::vector<StageAction> schedule_of_rank(const StageOfPipeline& stage, std::uint32_t micro_batches);
std::uint32_t rounds_of_schedule(const StageOfPipeline& stage, std::uint32_t micro_batches);

class Pipeline {
 public:
  /// models: of the rank's stages. Allocates the buffers that receive activations and gradients, if a stage
  /// has one per micro-batch.
  Pipeline(Tape& tape, const std::vector<StageModel*>& models, const StageOfPipeline& stage,
           std::uint32_t micro_batches);

  /// Forward and backward passes of a step.
  void run(std::uint32_t step);

 private:
  struct Stage {
    StageModel* model = nullptr;
    StageOfPipeline place;
    std::vector<Tensor> inputs, gradients;  // of each micro-batch, received; none for the first or last stage
    std::vector<Tensor> outputs;            // of this step, if they are kept
    Tensor sending, sent;                   // an output, and the gradient of an input; with kUntilSent
    std::deque<StageModel::Pass> in_flight;
    std::uint32_t forwards = 0, backwards = 0;  // of this step
  };

  void forward(std::uint32_t step, Stage& s);
  void backward(std::uint32_t step, Stage& s);
  Tensor received(const Stage& s, const char* name);
  bool keeps_outputs(const Stage& s) const;

  Tape& t_;
  std::uint32_t micro_batches_;
  std::vector<StageAction> actions_;
  std::vector<Stage> stages_;
};

}  // namespace trainhost::frameworks
