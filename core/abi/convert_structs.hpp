// The one place that knows both sides of the plugin boundary: the C structs of the SDK and the host's own
// types. Converts, and nothing else: no policy, no I/O. Used by the host's adapters and by plugins written in
// C++. See report_transfer.hpp for memory trees and error_guard.hpp for errors.
#pragma once
#include <cstdint>

#include "core/model/model_spec.hpp"
#include "core/model/run_spec.hpp"
#include "trainhost/model.h"

namespace trainhost::abi {

/// to_c borrows: strings point into the argument, which must outlive the result. struct_size is this build's.
th_model to_c(const ModelSpec& m);
th_model to_c(ModelSpec&&) = delete;
th_run to_c(const RunSpec& r);
/// Copies the names, cut to the fields' width and always terminated.
th_profile to_c(const TrainerTraits& p);

/// from_c reads only fields inside the other side's struct_size. A field that is absent, or zero where zero
/// is no value (a rope base, a count of micro-batches, an enum), keeps the default of the C++ type.
ModelSpec from_c(const th_model& m);
RunSpec from_c(const th_run& r);
TrainerTraits from_c(const th_profile& p);

}  // namespace trainhost::abi
