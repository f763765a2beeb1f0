// See live_request.hpp.
#include "core/live/live_request.hpp"

namespace trainhost::live {
namespace {

namespace http = boost::beast::http;
using boost::beast::string_view;

/// Whether a request is for this machine: the name before the port.
bool names_this_machine(string_view host) {
  for (const string_view name : {"127.0.0.1", "localhost", "[::1]"})
    if (host.starts_with(name) && (host.size() == name.size() || host[name.size()] == ':')) return true;
  return false;
}

}  // namespace

Request request_of(const RequestParser::value_type& r) {
  // A second Host could name another machine than the first.
  if (r.count(http::field::host) != 1 || !names_this_machine(r[http::field::host]))
    return Request::kOtherMachine;
  if (r.method() != http::verb::get) return Request::kNotGet;
  const string_view path = r.target().substr(0, r.target().find('?'));
  return path == "/" ? Request::kPage : path == "/events" ? Request::kEvents : Request::kOtherPath;
}

}  // namespace trainhost::live
