// Comes right before <toml++/toml.h>, in each of the files that parse TOML: header-only there, with the parser's own checks
// in every build type, and as an exception, because a malformed file must end in a message and never in an abort. All those
// files share one definition: the parser's functions are one for the whole program, and take whichever the linker keeps.
#pragma once
#include <stdexcept>
#undef NDEBUG  // toml++ turns TOML_ASSERT off under NDEBUG, and into undefined behaviour

namespace trainhost {
/// The parser found itself in a state that it had ruled out; the text did it.
struct TomlAssertion : std::logic_error {
  TomlAssertion() : std::logic_error("the parser cannot make sense of it") {}
};
[[noreturn]] inline void toml_assertion_failed() { throw TomlAssertion(); }
}  // namespace trainhost

#ifdef TOML_HEADER_ONLY
#undef TOML_HEADER_ONLY
#endif
#define TOML_HEADER_ONLY 1
#define TOML_ENABLE_WINDOWS_COMPAT 0
#define TOML_ASSERT(expr) static_cast<void>((expr) || (::trainhost::toml_assertion_failed(), 0))
