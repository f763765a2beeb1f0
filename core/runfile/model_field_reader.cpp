// Typed access to the fields of a model; see model_field_reader.hpp.
#include "core/runfile/model_field_reader.hpp"

#include <fmt/format.h>

#include "core/base/checked.hpp"
#include "core/base/text.hpp"

namespace trainhost::runfile {

// The same accessors serve config.json and inline fields of a run file; prefix_ is "" or "model.".
using Kind = Value::Kind;

namespace {

/// True if the field is a dimension of a tensor, and not a token id, a position or a window.
bool is_dimension(const std::string& name) {
  for (const char* other :
       {"token_id", "max_position", "max_seq", "n_positions", "n_ctx", "window", "period"})
    if (name.find(other) != name.npos) return false;
  return true;
}

}  // namespace

/// null counts as absent, as in transformers; present() tells the two apart where the difference matters.
const Value* ModelFieldReader::find(const std::string& name) const {
  const auto found = fields_.find(name);
  return found == fields_.end() || found->second.kind == Kind::kNull ? nullptr : &found->second;
}

bool ModelFieldReader::given(const std::string& name) const { return find(name) != nullptr; }

bool ModelFieldReader::is_false(const std::string& name) const {
  const Value* v = find(name);
  return v && v->kind == Kind::kBool && !v->boolean;
}

/// An absent member is reported at its group, an absent group at the file.
Where ModelFieldReader::where(const std::string& name) const {
  if (const auto found = fields_.find(name); found != fields_.end()) return found->second.where;
  if (const auto dot = name.rfind('.'); dot != name.npos) return where(name.substr(0, dot));
  return {file_};
}

void ModelFieldReader::fail(const std::string& name, const std::string& message,
                            const std::string& hint) const {
  throw usage_error(prefix_ + name + " " + message, hint, where(name));
}

void ModelFieldReader::wrong_type(const std::string& name, const Value& v, const char* expected) const {
  fail(name, fmt::format("= {}: expected {}, got {}", written(v), expected, kind_name(v)));
}

/// At most INT32_MAX: dimensions are multiplied in 64 bits, and two of them never overflow.
std::uint32_t ModelFieldReader::u32(const std::string& name, std::uint32_t fallback,
                                    std::int64_t least) const {
  const Value* v = find(name);
  if (!v) return fallback;
  if (v->kind != Kind::kInteger) wrong_type(name, *v, "a whole number");
  if (v->integer < least || v->integer > INT32_MAX)
    fail(name, fmt::format("= {}: expected a whole number from {} to {}", v->integer, least, INT32_MAX));
  return static_cast<std::uint32_t>(v->integer);
}

double ModelFieldReader::number(const std::string& name, double fallback) const {
  const Value* v = find(name);
  if (!v) return fallback;
  if (v->kind != Kind::kInteger && v->kind != Kind::kNumber) wrong_type(name, *v, "a number");
  return v->number;
}

bool ModelFieldReader::boolean(const std::string& name, bool fallback) const {
  const Value* v = find(name);
  if (!v) return fallback;
  if (v->kind != Kind::kBool) wrong_type(name, *v, "true or false");
  return v->boolean;
}

std::string ModelFieldReader::text(const std::string& name, const std::string& fallback) const {
  const Value* v = find(name);
  if (!v) return fallback;
  if (v->kind != Kind::kText) wrong_type(name, *v, "a string");
  return v->text;
}

std::vector<Value> ModelFieldReader::list(const std::string& name) const {
  const Value* v = find(name);
  if (!v) return {};
  if (v->kind != Kind::kList) wrong_type(name, *v, "a list");
  return v->items;
}

/// Null is accepted: transformers writes "rope_scaling": null.
void ModelFieldReader::require_table(const std::string& name) const {
  const Value* v = find(name);
  if (v && v->kind != Kind::kTable) wrong_type(name, *v, "an object");
}

/// The overflow error with the largest given dimensions; defaults of the built-in model are too small to
/// matter.
Error ModelFieldReader::too_large(const Error& e) const {
  std::vector<std::pair<std::string, std::uint64_t>> numbers;
  const Value* largest = nullptr;
  for (const auto& [name, v] : fields_) {
    if (v.kind != Kind::kInteger || v.integer < 1 || !is_dimension(name)) continue;
    numbers.emplace_back(prefix_ + name, static_cast<std::uint64_t>(v.integer));
    if (!largest || v.integer > largest->integer) largest = &v;
  }
  return with_largest(e, std::move(numbers), largest ? largest->where : Where{file_});
}

/// Runs checks of core/model, which know names of fields but no positions, and adds the position of the field
/// that begins the message.
void ModelFieldReader::check(const std::function<void()>& f) const {
  try {
    f();
  } catch (const Error& e) {
    if (is_too_large(e)) throw too_large(e);
    const std::string message = e.what(), name = message.substr(0, message.find(' '));
    const bool named = !name.empty() && (present(name) || name.find('_') != name.npos);
    throw Error(e.code(), named ? prefix_ + message : message, e.hint(), named ? where(name) : Where{file_});
  }
}

}  // namespace trainhost::runfile
