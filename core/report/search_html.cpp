// The page of a search. Until the pages are merged: the table in a page.
#include "core/report/search_view.hpp"
#include "core/report/terminal.hpp"

namespace trainhost::report {

std::string search_html(const SearchView& v) {
  return "<!doctype html><meta charset=\"utf-8\"><title>trainhost search</title><pre>" + search_table(v, Terminal{}) + "</pre>\n";
}

}  // namespace trainhost::report
