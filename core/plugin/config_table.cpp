// See config_table.hpp. The text is parsed for every question: 10 kB take about 50 us, and nothing must be
// stored or locked.
#include "core/plugin/config_table.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <new>
#include <string_view>

#include "core/base/json_value.hpp"

namespace trainhost::plugin {
namespace {

using Kind = JsonValue::Kind;

/// The member `key` of an object, or the element at that index of an array; nullptr if there is none. An
/// index is digits only, like a path of a JSON pointer.
const JsonValue* find_item(const JsonValue& container, std::string_view key) {
  if (!container.is_array()) return container.find(key);
  std::size_t i = 0;
  const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), i);
  if (error != std::errc() || end != key.data() + key.size()) return nullptr;
  return i < container.elements.size() ? &container.elements[i] : nullptr;
}

/// Looks up the dotted key in the model's config.json and passes the value to `take`, which returns whether
/// its type is right. Called by plugins; noexcept, since no exception may cross the interface.
template <class Take>
th_status ask(const th_model* m, const char* dotted, Take take) noexcept try {
  if (!m || !dotted) return TH_E_ARG;
  if (!TH_HAS(m, th_model, config_json) || !m->config_json) return TH_E_ABSENT;
  const JsonValue root = parse_json(m->config_json);
  const JsonValue* at = &root;
  for (std::string_view rest = dotted; !rest.empty();) {
    const std::size_t dot = std::min(rest.find('.'), rest.size());
    at = find_item(*at, rest.substr(0, dot));
    if (!at) return TH_E_ABSENT;
    rest.remove_prefix(std::min(dot + 1, rest.size()));
  }
  if (at->is_null()) return TH_E_ABSENT;
  return take(*at) ? TH_OK : TH_E_ARG;
} catch (const JsonError&) {
  return TH_E_ARG;
} catch (const std::bad_alloc&) {
  return TH_E_HOST_OOM;
} catch (...) {
  return TH_E_INTERNAL;
}

/// true and false read as 1 and 0, and 8.0 as 8: configs write both. Values beyond 2^63 are rejected, as the
/// conversion would be undefined.
th_status integer(const th_config*, const th_model* m, const char* key, std::int64_t* value) {
  if (!value) return TH_E_ARG;
  return ask(m, key, [&](const JsonValue& e) {
    if (e.kind == Kind::kBool) return *value = e.boolean, true;
    if (e.kind == Kind::kInteger) return *value = e.integer, true;
    if (e.kind != Kind::kNumber) return false;
    if (e.number != std::floor(e.number) || std::fabs(e.number) >= 0x1p63) return false;
    return *value = static_cast<std::int64_t>(e.number), true;
  });
}

th_status number(const th_config*, const th_model* m, const char* key, double* value) {
  if (!value) return TH_E_ARG;
  return ask(m, key, [&](const JsonValue& e) {
    if (e.kind != Kind::kInteger && e.kind != Kind::kNumber) return false;
    return *value = e.number, true;
  });
}

/// Copies at most to_bytes - 1 bytes and never splits a UTF-8 character; `length` is that of the whole text,
/// so the caller can ask again with a larger buffer.
th_status text(const th_config*, const th_model* m, const char* key, char* to, std::uint64_t to_bytes,
               std::uint64_t* length) {
  if (!to && to_bytes != 0) return TH_E_ARG;
  return ask(m, key, [&](const JsonValue& e) {
    if (!e.is_string()) return false;
    const std::string_view s = e.string;
    if (length) *length = s.size();
    if (to_bytes == 0) return true;
    std::size_t n = std::min<std::size_t>(s.size(), to_bytes - 1);
    if (n < s.size())
      while (n > 0 && (static_cast<unsigned char>(s[n]) & 0xC0) == 0x80) --n;
    std::memcpy(to, s.data(), n);
    return to[n] = '\0', true;
  });
}

th_status count(const th_config*, const th_model* m, const char* key, std::uint64_t* items) {
  if (!items) return TH_E_ARG;
  return ask(m, key, [&](const JsonValue& e) {
    if (e.is_array()) return *items = e.elements.size(), true;
    if (e.is_object()) return *items = e.members.size(), true;
    return false;
  });
}

}  // namespace

th_config config_table() {
  th_config c{};
  c.struct_size = sizeof c;
  c.integer = &integer;
  c.number = &number;
  c.text = &text;
  c.count = &count;
  return c;
}

}  // namespace trainhost::plugin
