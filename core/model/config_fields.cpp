// See config_fields.hpp.
#include "core/model/config_fields.hpp"

#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "core/base/error.hpp"
#include "core/base/text.hpp"

namespace trainhost::model {

using Json = nlohmann::json;

namespace {

std::string shown(const Json& v) {
  return escaped(v.dump(-1, ' ', true, Json::error_handler_t::replace), 60);
}

/// Off is what every model without the field has.
bool off(const Json& v) {
  return v.is_null() || v == false || v == "" || ((v.is_array() || v.is_object()) && v.empty());
}

}  // namespace

struct Fields::Data {
  Json json;
  std::string prefix;
  std::set<std::string, std::less<>> read;
  std::map<std::string, std::unique_ptr<Fields>, std::less<>> objects;

  const Json* find(std::string_view name) {
    read.emplace(name);
    const auto at = json.find(name);
    return at == json.end() || at->is_null() ? nullptr : &*at;
  }
  /// Every name is read, so that a second spelling of the same number is not called unknown.
  std::pair<std::string, const Json*> first(Names names) {
    std::pair<std::string, const Json*> found{std::string(*names.begin()), nullptr};
    for (std::string_view name : names)
      if (const Json* v = find(name); v && !found.second) found = {std::string(name), v};
    return found;
  }
};

Fields::Fields(std::string_view json) : data_(std::make_unique<Data>()) {
  data_->json = Json::parse(json, nullptr, false);
  if (!data_->json.is_object())
    throw usage_error("config.json: expected a JSON object with the model's fields");
}

Fields::Fields(std::unique_ptr<Data> data) : data_(std::move(data)) {}
Fields::~Fields() = default;

void Fields::fail(std::string_view name, const std::string& message, const std::string& hint) const {
  throw usage_error(data_->prefix + std::string(name) + " " + message, hint);
}

bool Fields::present(std::string_view name) const { return data_->json.contains(name); }

std::string_view Fields::spelt(Names names) const {
  for (const std::string_view name : names)
    if (given(name)) return name;
  return *names.begin();
}

bool Fields::given(std::string_view name) const {
  const auto at = data_->json.find(name);
  return at != data_->json.end() && !at->is_null();
}

std::uint32_t Fields::number(Names names, std::uint32_t fallback, std::uint32_t least) {
  const auto [name, v] = data_->first(names);
  if (!v) return fallback;
  if (!v->is_number_unsigned() || v->get<std::uint64_t>() > INT32_MAX || v->get<std::uint64_t>() < least)
    fail(name, "= " + shown(*v) + ": expected a whole number from " + std::to_string(least) + " to " +
                   std::to_string(INT32_MAX));
  return v->get<std::uint32_t>();
}

std::uint32_t Fields::size(Names names, std::uint32_t fallback) { return number(names, fallback, 1); }

std::uint32_t Fields::size(Names names) {
  const auto [name, v] = data_->first(names);
  if (!v) fail(name, "is missing", "every model of its family states it");
  return size(names, 0);
}

bool Fields::flag(Names names, bool fallback) {
  const auto [name, v] = data_->first(names);
  if (!v) return fallback;
  if (!v->is_boolean()) fail(name, "= " + shown(*v) + ": expected true or false");
  return v->get<bool>();
}

std::string Fields::text(Names names, std::string_view fallback) {
  const auto [name, v] = data_->first(names);
  if (!v) return std::string(fallback);
  if (!v->is_string()) fail(name, "= " + shown(*v) + ": expected a string");
  return v->get<std::string>();
}

std::vector<std::string> Fields::texts(std::string_view name) {
  std::vector<std::string> out;
  const Json* v = data_->find(name);
  if (!v) return out;
  if (!v->is_array()) fail(name, "= " + shown(*v) + ": expected a list");
  for (const Json& item : *v) {
    if (!item.is_string()) fail(name, "has " + shown(item) + ": expected strings");
    out.push_back(item.get<std::string>());
  }
  return out;
}

std::vector<std::uint32_t> Fields::numbers(std::string_view name) {
  std::vector<std::uint32_t> out;
  const Json* v = data_->find(name);
  if (!v) return out;
  if (!v->is_array()) fail(name, "= " + shown(*v) + ": expected a list");
  for (const Json& item : *v) {
    if (!item.is_number_unsigned() || item.get<std::uint64_t>() > INT32_MAX)
      fail(name, "has " + shown(item) + ": expected whole numbers");
    out.push_back(item.get<std::uint32_t>());
  }
  return out;
}

Fields& Fields::object(std::string_view name) {
  std::unique_ptr<Fields>& made = data_->objects[std::string(name)];
  if (made) return *made;
  const Json* v = data_->find(name);
  if (v && !v->is_object()) fail(name, "= " + shown(*v) + ": expected an object");
  auto data = std::make_unique<Data>();
  data->json = v ? *v : Json::object();
  data->prefix = data_->prefix + std::string(name) + ".";
  made.reset(new Fields(std::move(data)));
  return *made;
}

void Fields::understood(std::string_view name) { data_->read.emplace(name); }

std::vector<std::string> Fields::unread() const {
  std::vector<std::string> out;
  for (const auto& [name, v] : data_->json.items())
    if (!off(v) && !data_->read.contains(name) && !harmless(name))
      out.push_back(data_->prefix + escaped(name, 60) + " = " + shown(v));
  for (const auto& [name, inner] : data_->objects)
    for (std::string& s : inner->unread()) out.push_back(std::move(s));
  return out;
}

}  // namespace trainhost::model
