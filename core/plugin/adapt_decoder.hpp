// The host's Decoder on top of a plugin's decode table. Header private to the module: used by
// adapt_trainer.cpp.
#pragma once
#include <memory>
#include <optional>

#include "core/plugin/plugin.hpp"
#include "core/plugin/plugin_library.hpp"

namespace trainhost::plugin {

/// nullopt if the plugin has no decoder, or one of another revision. Throws PluginError.
std::optional<DecodeMemory> decoder_memory(const Library& library, const ModelSpec& m,
                                           const DecodeSpec& spec);

/// The decoder holds the library. Throws PluginError; kDoesNotFit if the memory is not available.
std::unique_ptr<Decoder> adapt_decoder(std::shared_ptr<Library> library, const ModelSpec& m,
                                       const DecodeSpec& spec);

}  // namespace trainhost::plugin
