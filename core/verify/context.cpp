// See context.hpp. The text: opened once, by the rules that training opens it by, and kept alive by the
// function that hands out its batches.
#include "core/verify/context.hpp"

#include "core/data/dataset.hpp"
#include "core/planning/dataset_options.hpp"
#include "core/training/batches.hpp"

namespace trainhost::verify {

Feed Context::text() {
  if (!text_) {
    auto source = std::make_shared<data::Source>(data::open_source(planning::open_options(run)));
    auto batches = std::make_shared<training::Batches>(*source->train, run);
    text_ = [source, batches](std::uint64_t t, std::span<std::int32_t> tokens,
                              std::span<std::int32_t> targets) { batches->fill(t, tokens, targets); };
  }
  return text_;
}

}  // namespace trainhost::verify
