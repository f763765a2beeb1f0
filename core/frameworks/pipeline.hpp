// One stage of torch.distributed.pipelining with the schedule 1F1B: which micro-batches are in flight, and
// the buffers of the stage. Weights stay gathered, and gradients are reduced after the last micro-batch.
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
  bool first() const { return index == 0; }
  bool last() const { return index + 1 == stages; }
  bool operator==(const StageOfPipeline&) const = default;
};

/// First layer of the stage, and one past its last. Beside a given number in the first or the last stage the
/// others have equal numbers, which the caller has checked. Else layers that are left over go to the first
/// stages; in torchtitan 0.0 to those from the second on.
std::pair<std::uint32_t, std::uint32_t> layers_of_stage(std::uint32_t layers, const StageOfPipeline& stage);

class Pipeline {
 public:
  /// Allocates the buffers that receive activations and gradients, if the stage has one per micro-batch.
  Pipeline(Tape& tape, StageModel& model, const StageOfPipeline& stage, std::uint32_t micro_batches);

  /// Forward and backward passes of a step.
  void run(std::uint32_t step);

 private:
  void forward(std::uint32_t step, std::uint32_t micro_batch);
  void backward(std::uint32_t step, std::uint32_t micro_batch);
  Tensor received(const char* name);
  bool keeps_outputs() const;

  Tape& t_;
  StageModel& model_;
  StageOfPipeline stage_;
  std::uint32_t micro_batches_;
  std::vector<Tensor> inputs_, gradients_;  // of each micro-batch, received; none for the first or last stage
  std::vector<Tensor> outputs_;             // of this step, if they are kept
  Tensor sending_, sent_;                   // an output, and the gradient of an input; with kUntilSent
  std::deque<StageModel::Pass> in_flight_;
};

}  // namespace trainhost::frameworks
