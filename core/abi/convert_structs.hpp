// Converts between the C structs of the SDK (th_model, th_run, th_profile) and the host's own types. No
// policy, no I/O. Used by the host's adapters and by plugins written in C++. Memory reports:
// report_transfer.hpp; errors: error_guard.hpp.
#pragma once
#include <cstdint>

#include "core/model/model_spec.hpp"
#include "core/model/run_spec.hpp"
#include "trainhost/model.h"

namespace trainhost::abi {

/// to_c() borrows: strings point into the argument, which must outlive the result. struct_size is that of
/// this build.
th_model to_c(const ModelSpec& m);
th_model to_c(ModelSpec&&) = delete;
th_run to_c(const RunSpec& r);
/// Copies the names, truncated to the size of the fields and always NUL-terminated.
th_profile to_c(const TrainerTraits& p);

/// from_c() reads only fields inside struct_size of the argument. A field that is absent, or zero where
/// zero is not a valid value (RoPE base, number of micro-batches, enums), keeps the default of the C++
/// type.
ModelSpec from_c(const th_model& m);
RunSpec from_c(const th_run& r);
TrainerTraits from_c(const th_profile& p);

}  // namespace trainhost::abi
