// The style sheet and the script of the HTML reports as text. Colours exist for light and dark mode; each has
// a contrast of at least 4.5 with its background, so that labels on it are readable (a test computes it).
#pragma once
#include <cstddef>
#include <string>

namespace trainhost::report::html {

inline constexpr std::size_t kColours = 12;

std::string style();

/// The rules for charts alone, for a file that is only SVG: no custom properties, which few programs for
/// drawings know; the dark colours are last, in @media.
std::string svg_style();

extern const char* const kScript;
/// base64 of the SHA-256 of kScript: the content security policy of the page allows only this script. After a
/// change of the script, tests/interop/pages_test.py prints the new value.
extern const char* const kScriptHash;

}  // namespace trainhost::report::html
