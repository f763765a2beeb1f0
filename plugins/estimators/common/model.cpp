// Parameter counts come from core/model: the closed form of the trainable families, else of the architecture.
#include "plugins/estimators/common/model.hpp"

#include <utility>

#include "core/base/error.hpp"
#include "core/model/architecture.hpp"
#include "core/model/tensors.hpp"

namespace trainhost::rules {

bool countable_family(const std::string& family) {
  return trainable_family(family) || model::known_family(family);
}

std::uint64_t true_parameters(const ModelSpec& m) {
  if (trainable_family(m.family)) return count_parameters(m).total;
  return model::count(model::from_model(m)).total;
}

void need_dimensions(const ModelSpec& m, const char* estimator) {
  const std::pair<const char*, std::uint64_t> needed[] = {
      {"hidden_size", m.hidden}, {"num_hidden_layers", m.layers}, {"num_attention_heads", m.heads}};
  for (const auto& [key, value] : needed)
    if (!value)
      throw usage_error(std::string("the estimator ") + estimator + " needs " + key +
                        ", which the model's config.json does not have");
}

}  // namespace trainhost::rules
