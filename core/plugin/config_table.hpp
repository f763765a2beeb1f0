// Host extension "trainhost.config/1": what a plugin may ask of a model's config.json. See trainhost/config.h
// for the rules.
#pragma once
#include "trainhost/config.h"

namespace trainhost::plugin {

/// The functions, without struct_size and self: they need neither. Nothing thrown crosses into the plugin.
th_config config_table();

}  // namespace trainhost::plugin
