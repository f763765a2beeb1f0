// Typed access to the fields of a config.json for the planned families. A wrong or missing field throws
// usage_error that begins with its name. Remembers which fields were read, so that unread_fields(), without
// those of ignored_fields.cpp, can be listed in the notes of a plan. The text is parsed by
// core/base/json_value.hpp.
#pragma once
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace trainhost::model {

/// The names of one field in different versions of a config. The first one that is given counts; if none is,
/// the first name appears in messages.
using FieldNames = std::initializer_list<std::string_view>;

class ConfigFields {
 public:
  /// Throws usage_error when `json` is not a JSON object.
  explicit ConfigFields(std::string_view json);
  ~ConfigFields();
  ConfigFields(const ConfigFields&) = delete;
  ConfigFields& operator=(const ConfigFields&) = delete;

  bool given(std::string_view name) const;    // present and not null
  bool present(std::string_view name) const;  // given or null
  /// The name that this config uses; the first name if none is given.
  std::string_view name_in_use(FieldNames names) const;
  std::uint32_t size(FieldNames names);                          // required, positive
  std::uint32_t size(FieldNames names, std::uint32_t fallback);  // positive
  std::uint32_t number(FieldNames names, std::uint32_t fallback,
                       std::uint32_t least = 0);     // `least` is the smallest valid value
  double factor(FieldNames names, double fallback);  // positive, at most 2^31
  bool flag(FieldNames names, bool fallback);
  std::string text(FieldNames names, std::string_view fallback);
  std::vector<std::string> texts(std::string_view name);  // empty if the field is absent
  std::vector<std::uint32_t> numbers(std::string_view name);
  bool is_list(std::string_view name) const;
  /// Absent and -1: nothing.
  std::optional<std::uint32_t> count_or_minus_one(std::string_view name);

  /// The nested object `name`, empty if absent. Its fields are "NAME.field" in messages.
  ConfigFields& object(std::string_view name);

  /// Excludes a field from unread_fields(): its meaning is known and its value is not needed.
  void mark_as_read(std::string_view name);
  /// "name = value" of every field that has a value, was not read and is no ignored field; sorted by
  /// name.
  std::vector<std::string> unread_fields() const;

  [[noreturn]] void fail(std::string_view name, const std::string& message,
                         const std::string& hint = {}) const;

 private:
  struct Data;
  ConfigFields(std::unique_ptr<Data> data);
  std::unique_ptr<Data> data_;
};

/// True for fields that affect no tensor: token ids, dropout, epsilons, activation functions, rotary angles,
/// and settings of other software.
bool is_ignored_field(std::string_view name);

}  // namespace trainhost::model
