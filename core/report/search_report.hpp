// Renders a SearchResult for `search`.
#pragma once
#include <string>

#include "core/planning/search_result.hpp"
#include "core/report/terminal.hpp"

namespace trainhost::report {

std::string search_table(const planning::SearchResult& v, const Terminal& t);
std::string search_json(const planning::SearchResult& v);
std::string search_csv(const planning::SearchResult& v);
std::string search_html(const planning::SearchResult& v);

}  // namespace trainhost::report
