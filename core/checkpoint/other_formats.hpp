// Recognises files that are mistaken for safetensors, by name and by their first bytes, for helpful hints.
// Pickles are never read, because reading one can execute code (rule 24).
#pragma once
#include <cstddef>
#include <filesystem>
#include <span>
#include <string>

namespace trainhost::checkpoint {

/// True for the extensions .bin, .pt, .pth, .pkl, .pickle and .ckpt.
bool has_pickle_extension(const std::filesystem::path& file);

/// A hint: how to convert a pickle to safetensors of this name.
std::string pickle_hint(const std::string& name = "model.safetensors");

/// A hint about the probable format of a file with these first bytes (at most 8); "" if unknown.
std::string identify_other_format(std::span<const std::byte> head);

}  // namespace trainhost::checkpoint
