// One stage of torch.distributed.pipelining with the schedule 1F1B: which micro-batches are in flight, and
// the buffers of the stage. Describes torch of December 2024, which keeps the output of every micro-batch
// until the next step. Weights stay gathered, and gradients are reduced after the last micro-batch.
#pragma once
#include <deque>
#include <utility>
#include <vector>

#include "core/frameworks/step_model.hpp"

namespace trainhost::frameworks {

struct StageOfPipeline {
  std::uint32_t stages = 1, index = 0;
  /// The embedding, and the norm with the head, count as a layer each: torchtitan from 0.1 on.
  bool ends_count = false;
  bool first() const { return index == 0; }
  bool last() const { return index + 1 == stages; }
  bool operator==(const StageOfPipeline&) const = default;
};

/// First layer of the stage, and one past its last. Layers that are left over go to the first stages; in
/// torchtitan 0.0 to those from the second on.
std::pair<std::uint32_t, std::uint32_t> layers_of_stage(std::uint32_t layers, const StageOfPipeline& stage);

/// The order of the passes of a step in one stage.
class Schedule {
 public:
  virtual ~Schedule() = default;
  /// Forward and backward passes of a step.
  virtual void run(std::uint32_t step) = 0;
};

class Pipeline : public Schedule {
 public:
  /// Allocates the buffers that receive activations and gradients, one of each per micro-batch.
  Pipeline(Tape& tape, StageModel& model, const StageOfPipeline& stage, std::uint32_t micro_batches);

  void run(std::uint32_t step) override;

 private:
  void forward(std::uint32_t step, std::uint32_t micro_batch);
  void backward(std::uint32_t step, std::uint32_t micro_batch);

  Tape& t_;
  StageModel& model_;
  StageOfPipeline stage_;
  std::uint32_t micro_batches_;
  std::vector<Tensor> inputs_, gradients_;  // received; none for the first or last stage
  std::vector<Tensor> outputs_;             // of this step
  std::deque<StageModel::Pass> in_flight_;
};

}  // namespace trainhost::frameworks
