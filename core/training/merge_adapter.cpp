// Folds adapters in the layout of PEFT into the weights of their model: merge_adapter() of adapter_files.hpp.
#include <fmt/format.h>

#include <optional>
#include <vector>

#include "core/base/text.hpp"
#include "core/checkpoint/durable.hpp"
#include "core/checkpoint/tensor_files.hpp"
#include "core/runfile/adapter_config.hpp"
#include "core/runfile/run_config.hpp"
#include "core/training/adapter_files.hpp"
#include "core/training/merged_weights.hpp"
#include "core/training/model_folder.hpp"

namespace trainhost::training {

std::size_t merge_adapter(const MergeRequest& r) {
  constexpr std::uint64_t kPieceElements = 1u << 20;
  const std::optional<std::filesystem::path> adapter = runfile::adapter_folder(r.adapter);
  if (!adapter)
    throw usage_error(
        fmt::format("{} contains no adapter: adapter_config.json and adapter/adapter_config.json are missing",
                    escaped(r.adapter.string(), 4096)),
        "give the output.dir of a run that trained an adapter, or the folder of an adapter of PEFT");
  MergedWeights weights(*adapter, r.model);
  if (checkpoint::file_type_of(r.output) != std::filesystem::file_type::not_found)
    throw usage_error(fmt::format("{} exists", escaped(r.output.string(), 4096)), "-o names a new folder");
  std::vector<float> scratch(kPieceElements);
  weights.require_weights_of_adapter(scratch);
  // In f32: the type of the model's weights, bf16 with its 8 bits, would round away a part of the adapter.
  checkpoint::write_model_dir(
      r.output, runfile::model_config_json(weights.model()), tensors(weights.model()),
      [&](const checkpoint::TensorSink& sink) {
        weights.stream(scratch, [&](const TensorInfo& t, std::uint64_t first, std::span<const float> values) {
          sink(t.name, first, values);
        });
      },
      files_beside_weights(weights.folder()));
  return weights.adapted_matrices();
}

}  // namespace trainhost::training
