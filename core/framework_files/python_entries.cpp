// See python_entries.hpp.
#include "core/framework_files/python_entries.hpp"

#include <algorithm>
#include <array>

namespace trainhost::framework_files::python {

using runfile::Entry;
using runfile::Value;

void CallEntries::add_assumption(const Where& where, const Assumption& a) {
  file_.assumed.push_back({where, {a.name, a.value, a.where, runfile::KeyUse::kUsed, a.note}});
}

void CallEntries::add_entry(const std::string& key, const std::string& spelling, const Where& where,
                            Value value) {
  Entry e{key, where, std::move(value), key == spelling ? "" : spelling};
  file_.entries.push_back(std::move(e));
}

void CallEntries::add(const std::string& key, const std::string& spelling, const Node& keyword, const Node& n,
                      const Place& place) {
  PyValue v = calls_.values.value(n, place);
  add_value(key, spelling, keyword, n, std::move(v), place);
}

void CallEntries::add_value(const std::string& key, const std::string& spelling, const Node& keyword,
                            const Node& n, PyValue v, const Place& place) {
  const Where where = calls_.program.where(keyword);
  if (!v.known) {
    const Call call = v.call ? Call{v.call, v.place} : calls_.behind(&n, place);
    const std::string maker = call ? callee(*call.node) : "";
    if (maker == "BitsAndBytesConfig" || maker == "FSDPConfig")
      return add_keywords(call, key + ".", {}, spelling + ".");
  }
  for (const Assumption& a : v.assumed) add_assumption(where, a);
  if (v.known && v.value.kind == Value::Kind::kTable) {
    if (v.members.empty()) return add_entry(key, spelling, where, {});
    for (auto& [member_name, member] : v.members) {
      const std::string name = member_name.empty() ? "*" : member_name;  // device_map={"": 0}
      const bool open = !member.known && !member.call;
      if (open) {
        add_entry(key + "." + name, spelling + "." + name, where, with_place(member.value, n));
      } else {
        const Node& source = member.call ? *member.call : n;
        const Place at = member.call ? member.place : place;
        add_value(key + "." + name, spelling + "." + name, keyword, source, std::move(member), at);
      }
    }
    return;
  }
  if (v.by_device && calls_.is_unsloth() && (key == "bf16" || key == "fp16")) {
    add_entry(key, spelling, where, with_place(runfile::text_value("by device"), n));
    return;
  }
  if (v.by_device)
    add_assumption(where, {calls_.program.text_of(n), "True", calls_.program.where(n),
                           "GPUs of compute capability 8.0 and newer have bf16"});
  add_entry(key, spelling, where,
            with_place(v.known ? std::move(v.value) : calls_.values.unknown(n, v.why), n));
}

Value CallEntries::with_place(Value v, const Node& n) const {
  v.where = calls_.program.where(n);
  for (Value& item : v.items) item.where = v.where;
  return v;
}

std::string CallEntries::key_in(const std::string& table, const std::string& name) {
  constexpr std::array kOfLoad{"dtype",        "torch_dtype",         "attn_implementation",  "load_in_4bit",
                               "load_in_8bit", "quantization_config", "use_flash_attention_2"};
  // Of SFTConfig and the like, which older versions of TRL have in the trainer.
  constexpr std::array kOfTrainer{"max_seq_length",
                                  "max_length",
                                  "packing",
                                  "dataset_text_field",
                                  "dataset_kwargs",
                                  "neftune_noise_alpha",
                                  "beta",
                                  "loss_type",
                                  "max_prompt_length",
                                  "model_init_kwargs",
                                  "dataset_num_proc",
                                  "dataset_batch_size",
                                  "eval_packing",
                                  "num_of_sequences",
                                  "chars_per_token",
                                  "quantization_config"};
  const auto is_in = [&](const auto& names) { return std::ranges::find(names, name) != names.end(); };
  const bool load = table == "from_pretrained." || table == "unsloth.";
  if (load && (name == "pretrained_model_name_or_path" || name == "model_name")) return "model_name_or_path";
  if (table == "accelerator." && name == "gradient_accumulation_steps") return name;
  return (table == "from_pretrained." && is_in(kOfLoad)) || (table == "trainer." && is_in(kOfTrainer))
             ? name
             : table + name;
}

void CallEntries::add_keywords(const Call& call, const std::string& table,
                               std::initializer_list<const char*> positional, const std::string& shown,
                               std::initializer_list<std::string_view> left_out) {
  auto name = positional.begin();
  for (std::size_t i = 1; i < call.node->children.size(); ++i) {
    const Node& c = call.node->children[i];
    if (c.kind == Node::Kind::kKeyword) {
      if (std::ranges::find(left_out, c.text) != left_out.end()) continue;
      add(key_in(table, c.text), shown + c.text, c, c.children.front(), call.place);
    } else if (c.kind == Node::Kind::kDoubleStar) {
      spread(c, call.place, table, shown, left_out);
    } else if (name != positional.end()) {
      if (std::ranges::find(left_out, std::string_view(*name)) == left_out.end())
        add(table + *name, shown + *name, c, c, call.place);
      ++name;
    }
  }
}

void CallEntries::spread(const Node& c, const Place& place, const std::string& table,
                         const std::string& shown, std::initializer_list<std::string_view> left_out) {
  PyValue v = calls_.values.value(c.children.front(), place);
  if (!v.known || v.value.kind != Value::Kind::kTable) {
    add_entry("**" + calls_.program.text_of(c.children.front()),
              "**" + calls_.program.text_of(c.children.front()), calls_.program.where(c),
              calls_.values.unknown(c.children.front(), v.why));
    return;
  }
  for (auto& [name, member] : v.members) {
    if (std::ranges::find(left_out, name) != left_out.end()) continue;
    const bool open = !member.known && !member.call;
    if (open) {
      add_entry(key_in(table, name), shown + name, calls_.program.where(c), with_place(member.value, c));
      continue;
    }
    const Node& source = member.call ? *member.call : c.children.front();
    const Place at = member.call ? member.place : place;
    add_value(key_in(table, name), shown + name, c, source, std::move(member), at);
  }
}

void CallEntries::mark(const char* key, const Node& n, std::string text) {
  add_entry(key, callee(n), calls_.program.where(n), with_place(runfile::text_value(std::move(text)), n));
}

Value CallEntries::flag(bool on) {
  Value v;
  v.kind = Value::Kind::kBool, v.boolean = on;
  return v;
}

bool CallEntries::has(std::string_view key) const {
  return std::ranges::any_of(file_.entries, [&](const Entry& e) {
    return e.key == key || (e.key.starts_with(key) && e.key.size() > key.size() && e.key[key.size()] == '.');
  });
}

}  // namespace trainhost::framework_files::python
