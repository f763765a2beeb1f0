// Text helpers for messages: nearest names, parsing and formatting of sizes, escaping of untrusted text. Pure
// functions.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace trainhost {

/// `name` in lower case, without the separators - _ . : / and spaces: "Llama-3.1" and "llama_31" compare
/// equal.
std::string comparable(std::string_view name);

/// The candidate that equals `word` after comparable(); else one that is another name of the same thing
/// ("half" and "fp16"); else that with the smallest edit distance (a transposition counts 1), if the distance
/// is at most a third of the longer length (at least 1); else the first candidate that begins with `word`, or
/// the longest that `word` continues with _ or -. Ties: the first.
std::optional<std::string> nearest(std::string_view word, std::span<const std::string> candidates);

/// "; did you mean 'x'?" or "", to append to a message.
std::string did_you_mean(std::string_view word, std::span<const std::string> candidates);

/// Bytes from "512MiB", "80GB", "2e9", "1.5 TiB", "4096". Decimal units are powers of 1000, binary of 1024.
/// nullopt if it is not a size, is negative, not finite, or exceeds 63 bits.
std::optional<std::uint64_t> parse_size(std::string_view text);

/// "1.53 GiB", "512 B", "7.95 MiB": three significant digits, binary units.
std::string format_bytes(std::uint64_t bytes);

/// "1,234,567".
std::string format_count(std::uint64_t n);

/// Printable form of untrusted text: control characters and invalid UTF-8 become \xNN; truncated at `max`
/// bytes.
std::string escaped(std::string_view text, std::size_t max = 200);

/// escaped() with &, <, >, " and ' as character references, for HTML and XML.
std::string escaped_markup(std::string_view text, std::size_t max = 200);

/// FNV-1a, 64 bits; for plan digests, not for untrusted input.
std::uint64_t fnv1a(std::string_view bytes, std::uint64_t seed = 0xcbf29ce484222325ULL);

bool valid_utf8(std::string_view text);

}  // namespace trainhost
