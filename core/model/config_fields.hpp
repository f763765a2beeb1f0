// The fields of a config.json, typed: a wrong or missing one throws usage_error that begins with its name.
// What is read is remembered, so that what nobody read, and what is not known to be harmless
// (ignored_fields.cpp), can be named in the notes. Never a file, never a default that is not written where
// the field is asked for. nlohmann stays inside config_fields.cpp.
#pragma once
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace trainhost::model {

/// One name, or the names that a field has had: the first that is given counts; where none is, the first of
/// all is the one in messages.
using Names = std::initializer_list<std::string_view>;

class Fields {
 public:
  /// Throws usage_error when `json` is not a JSON object.
  explicit Fields(std::string_view json);
  ~Fields();
  Fields(const Fields&) = delete;
  Fields& operator=(const Fields&) = delete;

  bool given(std::string_view name) const;    // present and not null
  bool present(std::string_view name) const;  // perhaps as null
  std::string_view spelt(Names names) const;  // the one that this config has; the first where it has none
  std::uint32_t size(Names names);            // must be given, positive
  std::uint32_t size(Names names, std::uint32_t fallback);  // positive where it is given
  std::uint32_t number(Names names, std::uint32_t fallback, std::uint32_t least = 0);  // 0 is a value
  bool flag(Names names, bool fallback);
  std::string text(Names names, std::string_view fallback);
  std::vector<std::string> texts(std::string_view name);  // [] when it is absent
  std::vector<std::uint32_t> numbers(std::string_view name);

  /// The object of that name with the same rules; its fields are "NAME.field" in messages. An absent one is
  /// empty.
  Fields& object(std::string_view name);

  /// Leaves a field out of unread(): its meaning is known, its value not needed.
  void understood(std::string_view name);
  /// "name = value" of every field that is on, that nobody read and that is not known to be harmless.
  std::vector<std::string> unread() const;

  [[noreturn]] void fail(std::string_view name, const std::string& message,
                         const std::string& hint = {}) const;

 private:
  struct Data;
  Fields(std::unique_ptr<Data> data);
  std::unique_ptr<Data> data_;
};

/// Fields that touch no tensor: token ids, dropout, epsilons, activation functions, rotary angles, words for
/// other software.
bool harmless(std::string_view name);

}  // namespace trainhost::model
