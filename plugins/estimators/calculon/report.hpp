// Report of the calculon plugin: entries with formulas in trainhost's components and tiers, and notes with
// the true values of what Calculon's model omits. The sizes come from closed_form.hpp.
#pragma once
#include <string>
#include <vector>

#include "core/base/memory_report.hpp"
#include "plugins/estimators/calculon/mapping.hpp"

namespace trainhost::calculon {

/// One rank of the stage that needs most. Tier 1 is `device`; tier 2 is the host, or the disk for what the
/// run offloads to it. The device entries sum to Calculon's tier-1 requirement plus the embedding terms.
/// Claim: approximation within a factor of two (lower bound of activations: half of them without score
/// matrices). Throws like map() and sizes().
MemoryReport report(const ModelSpec& m, const RunSpec& r, const Options& o, Tier device);

/// Notes of that report: every assumption that the model or the run breaks, with the bytes.
std::vector<std::string> notes(const ModelSpec& m, const RunSpec& r, const Options& o);

/// Parameters of the whole model as Calculon counts them, all ranks; with the embedding terms if o.embedding.
std::uint64_t form_parameters(const ModelSpec& m, const Options& o, const Mapped& mapped);

}  // namespace trainhost::calculon
