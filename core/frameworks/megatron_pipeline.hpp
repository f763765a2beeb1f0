// One stage of the schedule 1F1B of Megatron Core: which micro-batches are in flight, and which variables
// keep what was sent and received. The memory of an output is freed when it has been sent.
#pragma once
#include <algorithm>
#include <deque>

#include "core/frameworks/pipeline.hpp"

namespace trainhost::frameworks {

class MegatronPipeline : public Schedule {
 public:
  /// Runs no more micro-batches than fill the stage, and one after them: later ones repeat that one.
  MegatronPipeline(Tape& tape, StageModel& model, const StageOfPipeline& stage, std::uint32_t micro_batches)
      : t_(tape),
        model_(model),
        stage_(stage),
        micro_batches_(std::min(micro_batches, stage.stages - stage.index + 1)) {}
  void run(std::uint32_t step) override;

 private:
  void receive_input();
  void forward(std::uint32_t step, std::uint32_t micro_batch);
  void free_output();
  void backward(std::uint32_t step, std::uint32_t micro_batch);
  Tensor received(const char* name);

  Tape& t_;
  StageModel& model_;
  StageOfPipeline stage_;
  std::uint32_t micro_batches_;
  struct InFlight {
    Tensor input, output;
  };
  std::deque<InFlight> in_flight_;
  // Variables of the schedule, which keep a tensor until they get the next one.
  Tensor input_, output_gradient_, input_gradient_;
};

}  // namespace trainhost::frameworks
