// The profiler table of a plugin as the host's Profiler class; see adapt.hpp.
#pragma once
#include <memory>
#include <span>

#include "core/plugin/instance_calls.hpp"
#include "core/plugin/plugin_library.hpp"
#include "core/plugin/profiler.hpp"
#include "trainhost/profiler.h"

namespace trainhost::plugin {

/// The library's profiler table; all null if it has none. Throws Rejection if the table is truncated or
/// lacks a function.
th_profiler profiler_table(Library& library);

/// Starts: from here on the instance writes to `records`, which must outlive the result, as must the instance
/// and its calls.
std::unique_ptr<Profiler> adapt_profiler(std::shared_ptr<Library> library, const th_profiler& table,
                                         th_trainer_inst* instance, InstanceCalls& calls,
                                         std::span<std::byte> records, Profiler::OnBoundary reached);

}  // namespace trainhost::plugin
