// What follows from several keys of one job together: devices, accumulated micro-batches, the model.
#pragma once
#include "core/framework_files/job.hpp"

namespace trainhost::framework_files {

/// Derives the rest of a job after all files and options were read. Throws usage_error for keys that
/// contradict each other, and for what no file may leave open: the model, the length of the sequences, the
/// micro-batch, the number of devices of a sharded run.
void combine(Job& job);

}  // namespace trainhost::framework_files
