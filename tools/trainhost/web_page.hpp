// `plan --web`: the planner as a web page (tools/web), filled in with the run of the command line.
#pragma once
#include <filesystem>

#include "tools/trainhost/arguments.hpp"

namespace trainhost::cli {

/// The page of this installation, share/trainhost/planner.html, or of a source tree, with the run of `a` as
/// its state. Throws usage_error where no page is installed, and for a run that cannot be read.
std::string planner_page(const PlanArguments& a);

/// Writes planner_page() to a.web; "true" = into the cache folder of the user, and opens it in a browser:
/// that of $BROWSER, else of xdg-open. Prints where the page is.
void show_planner_page(const PlanArguments& a);

}  // namespace trainhost::cli
