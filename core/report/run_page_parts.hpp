// The parts of a page of runs beside its curves: numbers, memory, samples, events, log, settings,
// environment.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/report/run_table.hpp"

namespace trainhost::report {

/// The content of the element `id`; empty if the runs have nothing to show there.
struct RunPagePart {
  const char *id, *heading;
  std::string html;
};

/// All parts, in the order of the page.
std::vector<RunPagePart> run_page_parts(const RunRecords& runs);

/// The tier that computes, with its predicted bytes: the device if the plan has one.
std::optional<std::pair<std::string, std::uint64_t>> compute_tier(const RunRecord& r);

/// The CSS class of the colour of run `i` of a page.
std::string run_colour(std::size_t i);

}  // namespace trainhost::report
