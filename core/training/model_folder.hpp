// The files of a model folder in Hugging Face layout beside config and weights: tokenizer, chat template,
// generation settings. A trained or merged model keeps those of the model that it was made from.
#pragma once
#include <filesystem>
#include <map>
#include <string>

namespace trainhost::training {

/// Name -> content of the known files that `folder` has; empty for "". Throws Error(kFailed) for one that
/// cannot be read or is larger than 512 MiB.
std::map<std::string, std::string> files_beside_weights(const std::filesystem::path& folder);

}  // namespace trainhost::training
