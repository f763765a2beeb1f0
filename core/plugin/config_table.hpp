// Host extension "trainhost.config/1": reads values of a model's config.json by key. Rules:
// trainhost/config.h.
#pragma once
#include "trainhost/config.h"

namespace trainhost::plugin {

/// The functions; struct_size and self are not used. They never throw.
th_config config_table();

}  // namespace trainhost::plugin
