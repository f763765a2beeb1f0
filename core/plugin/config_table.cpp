// See config_table.hpp. The text is parsed for every question: 10 kB take about 50 us, and nothing must be
// stored or locked.
#include "core/plugin/config_table.hpp"

#include <simdjson.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <new>
#include <string_view>

namespace trainhost::plugin {
namespace {

using simdjson::dom::element;

/// The member `key` of an object, or the item at that index of an array.
simdjson::simdjson_result<element> item(const element& of, std::string_view key) {
  simdjson::dom::array array;
  if (of.get(array) != simdjson::SUCCESS) return of.at_key(key);
  std::size_t i = 0;
  const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), i);
  if (error != std::errc() || end != key.data() + key.size()) return simdjson::NO_SUCH_FIELD;
  return array.at(i);
}

/// Looks up the dotted key in the model's config.json and passes the value to `take`, which returns whether
/// its type is right.
template <class Take>
th_status ask(const th_model* m, const char* dotted, Take take) noexcept try {
  if (!m || !dotted) return TH_E_ARG;
  if (!TH_HAS(m, th_model, config_json) || !m->config_json) return TH_E_ABSENT;
  simdjson::dom::parser parser;
  element at;
  if (auto error = parser.parse(m->config_json, std::strlen(m->config_json)).get(at))
    return error == simdjson::MEMALLOC ? TH_E_HOST_OOM : TH_E_ARG;
  for (std::string_view rest = dotted; !rest.empty();) {
    const std::size_t dot = std::min(rest.find('.'), rest.size());
    if (item(at, rest.substr(0, dot)).get(at) != simdjson::SUCCESS) return TH_E_ABSENT;
    rest.remove_prefix(std::min(dot + 1, rest.size()));
  }
  if (at.is_null()) return TH_E_ABSENT;
  return take(at) ? TH_OK : TH_E_ARG;
} catch (const std::bad_alloc&) {
  return TH_E_HOST_OOM;
} catch (...) {
  return TH_E_INTERNAL;
}

th_status integer(const th_config*, const th_model* m, const char* key, std::int64_t* value) {
  if (!value) return TH_E_ARG;
  return ask(m, key, [&](const element& e) {
    bool truth = false;
    double real = 0;
    if (e.get(truth) == simdjson::SUCCESS) return *value = truth, true;
    if (e.is_int64() && e.get(*value) == simdjson::SUCCESS) return true;
    if (!e.is_double() || e.get(real) != simdjson::SUCCESS) return false;
    if (real != std::floor(real) || std::fabs(real) >= 0x1p63) return false;
    return *value = static_cast<std::int64_t>(real), true;
  });
}

th_status number(const th_config*, const th_model* m, const char* key, double* value) {
  if (!value) return TH_E_ARG;
  return ask(m, key, [&](const element& e) { return e.get(*value) == simdjson::SUCCESS; });
}

th_status text(const th_config*, const th_model* m, const char* key, char* to, std::uint64_t to_bytes,
               std::uint64_t* length) {
  if (!to && to_bytes != 0) return TH_E_ARG;
  return ask(m, key, [&](const element& e) {
    std::string_view s;
    if (e.get(s) != simdjson::SUCCESS) return false;
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
  return ask(m, key, [&](const element& e) {
    simdjson::dom::array array;
    simdjson::dom::object object;
    if (e.get(array) == simdjson::SUCCESS) return *items = array.size(), true;
    if (e.get(object) == simdjson::SUCCESS) return *items = object.size(), true;
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
