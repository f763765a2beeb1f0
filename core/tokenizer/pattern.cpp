// See pattern.hpp. The only file that uses PCRE2.
#include "core/tokenizer/pattern.hpp"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <cassert>
#include <new>
#include <stdexcept>

#include "core/base/error.hpp"

namespace trainhost::tokenizer {
namespace {

// What Oniguruma means by \s and \w. PCRE2's own \s has U+180E too, and its \w depends on its version.
constexpr const char* kSpace =
    R"(\x{9}-\x{d}\x{20}\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";
constexpr const char* kWord = R"(\p{L}\p{M}\p{Nd}\p{Nl}\p{Pc})";

/// The expression in PCRE2's syntax. `can_resume` becomes false for assertions about the text before a match.
std::string translated(std::string_view regex, bool& can_resume) {
  std::string out;
  bool in_class = false;
  for (std::size_t i = 0; i < regex.size(); ++i) {
    const char c = regex[i];
    if (c == '\\' && i + 1 < regex.size()) {
      const char kind = regex[++i];
      const bool negated = kind == 'S' || kind == 'W';
      if (kind == 's' || kind == 'w') {
        const std::string content = kind == 's' ? kSpace : kWord;
        out += in_class ? content : "[" + content + "]";
      } else if (negated && !in_class) {
        out += std::string("[^") + (kind == 'S' ? kSpace : kWord) + "]";
      } else if (kind == 'h' || kind == 'H') {
        throw std::invalid_argument("\\h is a hexadecimal digit in Oniguruma and is not supported");
      } else {
        if (!in_class && (kind == 'b' || kind == 'B' || kind == 'A' || kind == 'G' || kind == 'K'))
          can_resume = false;
        out += {'\\', kind};
      }
    } else if (in_class) {
      if (c == '[' && !(i + 1 < regex.size() && regex[i + 1] == ':'))
        throw std::invalid_argument("nested character classes are not supported");
      if (c == '[') {  // [:alpha:]
        const std::size_t end = regex.find(":]", i);
        if (end == std::string_view::npos) throw std::invalid_argument("unterminated [:");
        out += regex.substr(i, end + 2 - i);
        i = end + 1;
        continue;
      }
      if (c == '&' && i + 1 < regex.size() && regex[i + 1] == '&')
        throw std::invalid_argument("intersections of character classes (&&) are not supported");
      in_class = c != ']';
      out += c;
    } else {
      if (c == '[') {
        in_class = true;
        out += c;
        if (i + 1 < regex.size() && regex[i + 1] == '^') out += regex[++i];
        if (i + 1 < regex.size() && regex[i + 1] == ']') out += "\\", out += regex[++i];
        continue;
      }
      if (c == '^' || regex.substr(i).starts_with("(?<=") || regex.substr(i).starts_with("(?<!"))
        can_resume = false;
      out += c;
    }
  }
  return out;
}

/// Memory of a thread's matches: one pair of offsets, and a stack for the JIT code that grows with long
/// words.
struct Scratch {
  pcre2_match_data* data = pcre2_match_data_create(1, nullptr);
  pcre2_match_context* context = pcre2_match_context_create(nullptr);
  pcre2_jit_stack* stack = pcre2_jit_stack_create(32 << 10, 64 << 20, nullptr);
  Scratch() {
    if (!data || !context) throw std::bad_alloc();
    if (stack) pcre2_jit_stack_assign(context, nullptr, stack);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  ~Scratch() {
    if (stack) pcre2_jit_stack_free(stack);
    pcre2_match_context_free(context);
    pcre2_match_data_free(data);
  }
};

Scratch& scratch() {
  static thread_local Scratch s;
  return s;
}

}  // namespace

Pattern::Pattern(std::string_view regex) {
  const std::string text = translated(regex, can_resume_);
  int error = 0;
  PCRE2_SIZE at = 0;
  pcre2_code* code =
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(),
                    PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C, &error, &at, nullptr);
  if (!code) {
    PCRE2_UCHAR reason[200] = {};
    pcre2_get_error_message(error, reason, sizeof reason);
    throw std::invalid_argument(reinterpret_cast<const char*>(reason));
  }
  code_ = std::shared_ptr<void>(code, [](void* p) { pcre2_code_free(static_cast<pcre2_code*>(p)); });
  jit_ = pcre2_jit_compile(code, PCRE2_JIT_COMPLETE | PCRE2_JIT_PARTIAL_HARD) == 0;
}

Pattern Pattern::literal(std::string_view text) {
  Pattern p;
  p.literal_ = text;
  return p;
}

Pattern::Result Pattern::find(std::string_view text, std::size_t from, bool open, Match& match) const {
  assert(from <= text.size());
  if (!code_) {
    const std::size_t at = literal_.empty() ? std::string_view::npos : text.find(literal_, from);
    if (at == std::string_view::npos) return Result::kNone;
    match = {at, at + literal_.size()};
    return Result::kMatch;
  }
  const Scratch& s = scratch();
  const auto* code = static_cast<const pcre2_code*>(code_.get());
  const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  const std::uint32_t options = open ? PCRE2_PARTIAL_HARD : 0;
  int result = jit_ ? pcre2_jit_match(code, subject, text.size(), from, options, s.data, s.context)
                    : PCRE2_ERROR_JIT_STACKLIMIT;
  if (result == PCRE2_ERROR_JIT_STACKLIMIT)  // the interpreter allocates what it needs
    result = pcre2_match(code, subject, text.size(), from, options | PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT,
                         s.data, s.context);
  const PCRE2_SIZE* offsets = pcre2_get_ovector_pointer(s.data);
  if (result >= 0) {
    match = {offsets[0], offsets[1]};
    return Result::kMatch;
  }
  if (result == PCRE2_ERROR_PARTIAL) return Result::kUndecided;
  if (result == PCRE2_ERROR_NOMATCH) return Result::kNone;
  PCRE2_UCHAR reason[200] = {};
  pcre2_get_error_message(result, reason, sizeof reason);
  throw run_error(std::string("a pattern of the tokenizer cannot be matched: ") +
                  reinterpret_cast<const char*>(reason));
}

std::string Pattern::unicode_version() {
  char version[64] = {};
  pcre2_config(PCRE2_CONFIG_UNICODE_VERSION, version);
  return std::string("Unicode ") + version;
}

}  // namespace trainhost::tokenizer
