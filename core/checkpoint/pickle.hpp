// Files that are not safetensors but are often taken for them: pickles above all, which run code when read
// and are never read here (rule 24). Told by name and by their first bytes, to give a hint that helps.
#pragma once
#include <cstddef>
#include <filesystem>
#include <span>
#include <string>

namespace trainhost::checkpoint {

/// Is it named like a pickle: .bin, .pt, .pth, .pkl, .pickle, .ckpt?
bool named_like_a_pickle(const std::filesystem::path& file);

/// How to turn a pickle into safetensors.
std::string pickle_hint();

/// A sentence on what a file with these first bytes (at most 8) probably is; "" = nothing known.
std::string what_else_it_is(std::span<const std::byte> head);

}  // namespace trainhost::checkpoint
