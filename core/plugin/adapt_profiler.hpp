// The profiler's tables as the host's class; see adapt.hpp.
#pragma once
#include <memory>
#include <span>

#include "core/plugin/instance_turns.hpp"
#include "core/plugin/plugin_library.hpp"
#include "core/plugin/profiler.hpp"
#include "trainhost/profiler.h"

namespace trainhost::plugin {

/// The library's profiler; a table of nulls where it offers none. Throws Refused when the table is cut short
/// or has an empty slot.
th_profiler profiler_table(Library& library);

/// Starts: from here on the instance writes to `records`, which must outlive the result, as must the instance
/// and its turns.
std::unique_ptr<Profiler> adapt_profiler(std::shared_ptr<Library> library, const th_profiler& table,
                                         th_trainer_inst* instance, Turns& turns,
                                         std::span<std::byte> records, Profiler::Reached reached);

}  // namespace trainhost::plugin
