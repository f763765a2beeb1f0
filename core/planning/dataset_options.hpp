// Converts the dataset settings of a run file to those of core/data. Planning needs them to compute the bytes
// that the dataset holds in memory, training to open it.
#pragma once
#include "core/data/dataset.hpp"
#include "core/runfile/run_config.hpp"

namespace trainhost::planning {

data::OpenOptions open_options(const runfile::RunConfig& c);

/// Sets the vocabulary of the built-in model to that of data.tokenizer, where the run names a tokenizer but
/// no model.
void adopt_vocabulary(runfile::RunConfig& c);

}  // namespace trainhost::planning
