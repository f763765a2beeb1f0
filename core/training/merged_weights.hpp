// The weights of a model with an adapter folded in: W + scale * B A in place of every adapted matrix W, with
// DoRA its rows in the norms of the magnitudes. Read from the folders of both, tensor by tensor, so that the
// merged model is never in memory: `trainhost merge` writes the tensors to files, `trainhost generate` passes
// them to a session.
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "core/checkpoint/safetensors.hpp"
#include "core/model/adapters.hpp"
#include "core/model/model_spec.hpp"
#include "core/model/tensors.hpp"
#include "core/runfile/adapter_config.hpp"

namespace trainhost::training {

class MergedWeights {
 public:
  /// Receives elements [first, first + values.size()) of a tensor; `values` is valid only during the call.
  using Sink =
      std::function<void(const TensorInfo& tensor, std::uint64_t first, std::span<const float> values)>;

  /// `adapter`: folder in the layout of PEFT. `model`: folder of the model; "" = base_model_name_or_path of
  /// the adapter. Checks every tensor of both. Throws usage_error for an adapter that PEFT would apply in
  /// another way, and for tensors that do not belong to the model.
  MergedWeights(const std::filesystem::path& adapter, const std::filesystem::path& model);

  const std::filesystem::path& folder() const { return folder_; }  // of the model
  /// The merged model. Its LM head is a tensor of its own if only one of embedding and head was adapted.
  const ModelSpec& model() const { return model_; }
  std::size_t adapted_matrices() const { return factors_.size(); }

  /// Throws usage_error for weights other than those that the adapter was trained on, where it says which.
  /// Reads all weights.
  void require_weights_of_adapter(std::span<float> scratch);
  /// Passes every tensor of the model to the sink, in the order of tensors(). Products are summed in double.
  void stream(std::span<float> scratch, const Sink& sink);

 private:
  /// A and B of one matrix, and with DoRA its magnitudes, as f32. `scale` is the factor of B A.
  struct Factors {
    std::vector<float> a, b, magnitude;
    double scale = 0;
    bool by_columns = false;  // of the embedding: its outputs are the columns of the table
  };
  void read_factors(const runfile::AdapterConfig& config);
  /// The tensor of the model from which a tensor of the merged model is computed.
  const TensorInfo& source_of(const TensorInfo& t) const;
  AdapterProduct change_of(const Factors& f, const TensorInfo& w) const;
  std::vector<double> factors_of_outputs(const Factors& f, const TensorInfo& w, std::span<float> scratch);

  std::filesystem::path folder_;
  ModelSpec model_;
  std::string frozen_weights_;               // metadata of the adapter; "" if it does not state them
  std::vector<TensorInfo> infos_;            // of the merged model
  std::vector<TensorInfo> sources_;          // of the model
  std::map<std::string, Factors> factors_;   // by the name of the adapted matrix
  std::map<std::string, TensorInfo> saved_;  // modules_to_save: tensor of the adapter, by that of the model
  checkpoint::WeightSource adapter_;
  checkpoint::WeightSource weights_;
};

}  // namespace trainhost::training
