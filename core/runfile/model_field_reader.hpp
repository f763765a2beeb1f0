// Typed access to the fields of a trainable model, in config.json or in [model] of a run file; for the
// planned families: core/model/config_fields.hpp. A field is absent, null or given; a value of the wrong type
// throws usage_error at its position. `prefix` ("model." for a run file) precedes the field names in
// messages.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "core/runfile/model_fields.hpp"
#include "core/runfile/settings.hpp"

namespace trainhost::runfile {

class ModelFieldReader {
 public:
  /// `settings`: of the run file that the fields are in; null for a config.json.
  ModelFieldReader(const ModelFields& fields, std::string prefix, std::string file,
                   const Settings* settings = nullptr)
      : fields_(fields), prefix_(std::move(prefix)), file_(std::move(file)), settings_(settings) {}

  /// Settings::rule() of the run file; of a config.json the first error is thrown. `f` may read every field.
  template <class F>
  bool rule(F&& f) const {
    if (!settings_) return f(), true;
    return settings_->rule([&] {
      settings_->depends_on("model");
      f();
    });
  }

  bool present(const std::string& name) const { return fields_.count(name) != 0; }  // given or null
  bool given(const std::string& name) const;                                        // present and not null
  bool is_false(const std::string& name) const;

  std::uint32_t u32(const std::string& name, std::uint32_t fallback, std::int64_t least = 0) const;
  std::uint32_t size(const std::string& name, std::uint32_t fallback) const { return u32(name, fallback, 1); }
  double number(const std::string& name, double fallback) const;
  bool boolean(const std::string& name, bool fallback) const;
  std::string text(const std::string& name, const std::string& fallback) const;
  std::vector<Value> list(const std::string& name) const;
  void require_table(const std::string& name) const;

  /// Throws usage_error "NAME MESSAGE" at the position of the field, or of the object that lacks it.
  [[noreturn]] void fail(const std::string& name, const std::string& message,
                         const std::string& hint = {}) const;
  /// Runs `f`. If it throws an Error whose message begins with the name of a field, adds that field's
  /// position.
  void check(const std::function<void()>& f) const;

 private:
  const Value* find(const std::string& name) const;
  [[noreturn]] void wrong_type(const std::string& name, const Value& v, const char* expected) const;
  Where where(const std::string& name) const;
  Error too_large(const Error& e) const;

  const ModelFields& fields_;
  std::string prefix_, file_;
  const Settings* settings_;
};

}  // namespace trainhost::runfile
