// One stage of the schedule 1F1B of Megatron Core: which micro-batches are in flight, and which variables
// keep what was sent and received. The memory of an output is freed when it has been sent.
#pragma once
#include <deque>

#include "core/frameworks/pipeline.hpp"

namespace trainhost::frameworks {

class MegatronPipeline : public Schedule {
 public:
  MegatronPipeline(Tape& tape, StageModel& model, const StageOfPipeline& stage, std::uint32_t micro_batches)
      : t_(tape), model_(model), stage_(stage), micro_batches_(micro_batches) {}
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
