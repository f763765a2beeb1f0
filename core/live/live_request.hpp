// Requests of the page of runs: what they ask for. The server sends what request_of() allows, and nothing
// else. See live_server.hpp.
#pragma once
#include <boost/beast/http/empty_body.hpp>
#include <boost/beast/http/parser.hpp>

namespace trainhost::live {

enum class Request {
  kPage,          // "/"
  kEvents,        // "/events"
  kOtherPath,     // not found
  kNotGet,        // another method than GET
  kOtherMachine,  // the Host is not this machine
};

/// Reads the header of a request; one that is too long, or has a body, is an error.
class RequestParser : public boost::beast::http::request_parser<boost::beast::http::empty_body> {
 public:
  RequestParser() { header_limit(kMostHeaderBytes); }
  static constexpr unsigned kMostHeaderBytes = 8192;
};

/// A question mark and what follows it in the path are ignored.
Request request_of(const RequestParser::value_type& r);

}  // namespace trainhost::live
