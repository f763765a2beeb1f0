// What the calculon plugin says: leaves with formulas in trainhost's components and tiers, and notes with the
// true values that the model leaves out. The figures are those of closed_form.hpp; nothing is computed twice
// here.
#pragma once
#include <string>
#include <vector>

#include "core/base/memory_report.hpp"
#include "plugins/estimators/calculon/mapping.hpp"

namespace trainhost::calculon {

/// One rank of the stage that holds most. Tier 1 is `device`; tier 2 is the host, or the disk for what the
/// run puts there. The leaves of the device sum to Calculon's tier-1 requirement and the embedding terms
/// beside it. Claim: approximation, taken to be within a factor of two (activations: down to half of what
/// stays without the score matrices). Throws as map() and sizes().
MemoryReport report(const ModelSpec& m, const RunSpec& r, const Options& o, Tier device);

/// The sentences of such a report: every assumption that this model or this run breaks, with the figure.
std::vector<std::string> notes(const ModelSpec& m, const RunSpec& r, const Options& o);

/// Parameters of the whole model as the form counts them, over all ranks; with the embedding terms where `o`
/// asks for them.
std::uint64_t form_parameters(const ModelSpec& m, const Options& o, const Mapped& mapped);

}  // namespace trainhost::calculon
