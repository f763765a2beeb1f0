// docs/run-file.md, generated from the schema. `ninja run_file_reference` writes the page; a test fails if
// the committed page differs. Text that is not about single keys is in kIntroduction and kTypes; everything
// else comes from the schema, so that a new key needs no change here.
#include <fmt/format.h>

#include <cassert>

#include "core/runfile/run_config.hpp"
#include "core/runfile/schema.hpp"

namespace trainhost::runfile {
namespace {

constexpr std::string_view kIntroduction =
    R"(# Run file

<!-- Generated from core/runfile/schema.cpp by `ninja -C build run_file_reference`. Do not edit. -->

A run file is a TOML file that describes one run. Write one with every key, then plan and train it:

```
trainhost init run.toml
trainhost plan run.toml
trainhost run.toml
```

- Every key is optional. Without a run file, or with an empty one, `trainhost` trains the built-in run.
- `--set KEY=VALUE` overrides one key for one run: `--set train.micro_batch=8`. The value is TOML; quotes around
  a string may be omitted. If a key is set several times, the last value counts.
- Relative paths are relative to the run file; paths in `--set` too.
- An unknown key, a wrong type or a value outside its limits is an error with file, line and column.
  `trainhost check run.toml` reports all errors at once, and editors mark them ([init](cli.md#init-schema)).
- A key with an empty default is unset unless you give it. The types are explained below the tables.
)";

constexpr std::string_view kTypes = R"(
## Types

| type | TOML value |
|---|---|
| integer | a whole number; `1e3` is not an integer in TOML |
| number | a whole number or a number with fraction or exponent |
| pair | a list of two numbers |
| numbers | a list of numbers |
| size | a string with unit (`"512MiB"`, `"80GB"`, `"4096B"`); decimal units are powers of 1000, binary units powers of 1024 |
| bool | `true` or `false` |
| string | a string |
| choice | one of the strings in the column "values" |
| path | a string: a file or a folder |
| strings, paths | a string or a list of strings; `data.train` and `data.valid` also accept globs (`"texts/*.txt"`) |

## Estimators per architecture

The table `[memory.estimators]` names estimators by model family; `"*"` is for every family without a line of its own.
A value is a name, a list of names, `"auto"` or `"all"`, as of `memory.estimator`, which cannot be given beside it; `--set
memory.estimator=NAME` and `--estimator` win over both.

```toml
[memory.estimators]
llama = "llama"
qwen2 = ["acme-qwen", "transformer"]
"*" = "transformer"
```

## Options of plugins

A table `[plugin.NAME]` contains options of the plugin NAME: strings, numbers, or `true` and `false`.
`trainhost plugins info NAME` lists them.

```toml
[plugin.cuda]
mode = "auto"
```

## Names in other trainers

No key has an alias. An unknown key with one of these names gets a suggestion in its error message.

| name | key here |
|---|---|
)";

/// Names of the column "type"; explained by kTypes. No default case: the compiler then warns about a type
/// without a name.
const char* type_name(Type type) {
  switch (type) {
    case Type::kInteger:
      return "integer";
    case Type::kNumber:
      return "number";
    case Type::kPair:
      return "pair";
    case Type::kNumbers:
      return "numbers";
    case Type::kSize:
      return "size";
    case Type::kBool:
      return "bool";
    case Type::kText:
      return "string";
    case Type::kChoice:
      return "choice";
    case Type::kPath:
      return "path";
    case Type::kTexts:
      return "strings";
    case Type::kPaths:
      return "paths";
  }
  return "";
}

/// Each choice in its own code span, so that none is read as part of another.
std::string choices_text(std::string_view choices) {
  std::string out = "`";
  for (const char c : choices) out += c == '|' ? std::string("`, `") : std::string(1, c);
  return out + "`";
}

/// Limits of a number or the choices; empty for other types.
std::string values_text(const Key& k) {
  if (k.type == Type::kChoice) return choices_text(k.choices);
  if (k.type != Type::kInteger && k.type != Type::kNumber && k.type != Type::kPair &&
      k.type != Type::kNumbers)
    return "";
  const std::string limits = limits_text(k);
  assert(limits.starts_with(' '));
  return limits.substr(1);
}

/// A vertical bar would end the cell of a Markdown table.
std::string table_cell(std::string_view text) {
  std::string out;
  for (const char c : text) out += c == '|' ? std::string("\\|") : std::string(1, c);
  return out;
}

/// One row per key of the table, in the order of the schema; sub-tables appear with dotted names.
std::string key_rows(std::string_view table) {
  std::string out = "| key | type | default | values | meaning |\n|---|---|---|---|---|\n";
  const std::string prefix = std::string(table) + ".";
  for (const Key& k : schema()) {
    const std::string_view name = k.name;
    if (!name.starts_with(prefix)) continue;
    out += fmt::format("| `{}` | {} | {} | {} | {} |\n", name.substr(prefix.size()), type_name(k.type),
                       *k.default_toml ? fmt::format("`{}`", k.default_toml) : "", values_text(k),
                       table_cell(k.doc));
  }
  return out;
}

}  // namespace

/// Introduction, one section per top-level table, types, options of plugins, names of other trainers.
std::string run_file_reference() {
  std::string out(kIntroduction);
  for (const Table& t : tables()) {
    const std::string_view name = t.name;
    // Sub-tables are part of their table; [plugin] has its own section in kTypes.
    if (name.find('.') != name.npos || name == "plugin") continue;
    out += fmt::format("\n## [{}]\n\n{}\n\n{}", name, t.doc, key_rows(name));
  }
  out += kTypes;
  for (const ForeignName& f : foreign_names()) out += fmt::format("| `{}` | `{}` |\n", f.name, f.key);
  return out;
}

}  // namespace trainhost::runfile
