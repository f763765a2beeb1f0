// Whole files of f32 tensors, from whoever has them: the shards of a checkpoint and the model/ directory of a
// finished run. Knows nothing of trainers: values come through a function. Built on SafetensorsWriter.
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/model/tensors.hpp"

namespace trainhost::checkpoint {

/// Takes elements [first, first + values.size()) of tensor `name`; they are valid inside the call only.
using TensorSink =
    std::function<void(std::string_view name, std::uint64_t first, std::span<const float> values)>;
/// Hands every tensor to the sink once, in the order they were declared, each from its first element to its
/// last.
using TensorSource = std::function<void(const TensorSink&)>;

/// Writes `target` atomically; returns its XXH3-128. Throws run_error when `source` leaves the order, or
/// stops early.
std::string write_tensors(const std::filesystem::path& target, const std::vector<TensorInfo>& tensors,
                          const TensorSource& source);

/// A Hugging Face model directory: config.json, model.safetensors and the small files of `others` (name ->
/// content), complete or not there at all. A directory that exists already is replaced in one step; files in
/// it that are not written here are kept.
void write_model_dir(const std::filesystem::path& dir, std::string_view config_json,
                     const std::vector<TensorInfo>& tensors, const TensorSource& source,
                     const std::map<std::string, std::string>& others = {});

}  // namespace trainhost::checkpoint
