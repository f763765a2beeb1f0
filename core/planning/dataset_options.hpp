// Dataset settings of a run file in the form that core/data takes them. Planning needs them to count the
// bytes that the dataset holds in memory; training needs them to open it.
#pragma once
#include "core/data/dataset.hpp"
#include "core/runfile/run_config.hpp"

namespace trainhost::planning {

/// What core/data needs to open the data of this run.
data::OpenOptions open_options(const runfile::RunConfig& c);

/// A run that names a tokenizer but no model trains the built-in model with that tokenizer's vocabulary.
void adopt_vocabulary(runfile::RunConfig& c);

}  // namespace trainhost::planning
