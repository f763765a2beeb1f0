// The table's parts: one function a file of checks. A new level is one more file and one more line in table.cpp.
#pragma once
#include <vector>

#include "core/check/check.hpp"

namespace trainhost::check {

std::vector<Check> file_checks();                  // level 1
std::vector<Check> load_checks();                  // level 2
std::vector<Check> process_checks();               // level 3
std::vector<Check> estimator_argument_checks();    // level 4
std::vector<Check> trainer_argument_checks();      // level 4
std::vector<Check> trainer_order_checks();         // level 4
std::vector<Check> estimator_checks();             // level 5
std::vector<Check> report_checks();                // level 5: what both kinds say about memory
std::vector<Check> trainer_checks();               // level 5
std::vector<Check> trainer_memory_checks();        // level 5
std::vector<Check> contract_checks();              // level 5: what the checking host saw during a tour
std::vector<Check> budget_checks();                // level 7

}  // namespace trainhost::check
