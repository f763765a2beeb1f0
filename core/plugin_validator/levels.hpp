// One function per file of checks. A new level needs one file, one declaration here and one entry in
// check_table.cpp.
#pragma once
#include <vector>

#include "core/plugin_validator/validator_check.hpp"

namespace trainhost::plugin_validator {

std::vector<Check> file_checks();                // level 1
std::vector<Check> load_checks();                // level 2
std::vector<Check> process_checks();             // level 3
std::vector<Check> estimator_argument_checks();  // level 4
std::vector<Check> trainer_argument_checks();    // level 4
std::vector<Check> family_checks();              // level 4: families that the manifest does not list
std::vector<Check> trainer_order_checks();       // level 4
std::vector<Check> estimator_checks();           // level 5
std::vector<Check> report_checks();              // level 5: memory reports of both kinds
std::vector<Check> trainer_checks();             // level 5
std::vector<Check> trainer_memory_checks();      // level 5
std::vector<Check> contract_checks();            // level 5: rules of calling the host
std::vector<Check> estimator_number_checks();    // level 6
std::vector<Check> trainer_number_checks();      // level 6: loss, gradient, norm
std::vector<Check> trainer_reference_checks();   // level 6: comparison with the reference in double
std::vector<Check> trainer_state_checks();       // level 6: state after load, save and steps
std::vector<Check> budget_checks();              // level 7
std::vector<Check> cancel_checks();              // level 7
std::vector<Check> concurrency_checks();         // level 7
std::vector<Check> exhaustion_checks();          // level 8
std::vector<Check> repeated_use_checks();        // level 8
std::vector<Check> fuzz_checks();                // level 9
std::vector<Check> long_run_checks();            // level 10

/// A check of estimators on level 5 and of trainers on level 7. In level7_concurrency.cpp.
void check_report_from_four_threads(WatchedPlugin& plugin);

}  // namespace trainhost::plugin_validator
