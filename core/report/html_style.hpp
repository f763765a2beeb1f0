// The look and the one small script of the HTML reports, as text. Colours are given twice, for light and for
// dark; each has a contrast of at least 4.5 against its background, so that a label may stand on it (a test
// computes it).
#pragma once
#include <cstddef>
#include <string>

namespace trainhost::report::html {

inline constexpr std::size_t kColours = 12;

std::string style();

extern const char* const kScript;
/// base64 of the SHA-256 of kScript: the page's policy lets this script run and no other.
/// tests/interop/pages_test.py prints the right one when the script was changed.
extern const char* const kScriptHash;

}  // namespace trainhost::report::html
