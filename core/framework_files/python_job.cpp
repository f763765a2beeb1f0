// See python_job.hpp. The trainer that the script makes leads to its arguments, its adapters and its model; a
// script without one has them where it makes them. Keywords become entries with the keys that JSON and YAML
// have.
#include "core/framework_files/python_job.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>
#include <string_view>

#include "core/base/text.hpp"
#include "core/framework_files/python_values.hpp"
#include "core/runfile/python_script.hpp"

namespace trainhost::framework_files {
namespace {

using python::argument;
using python::callee;
using python::Evaluator;
using python::Found;
using python::Node;
using python::Place;
using python::PyValue;
using python::Statement;
using runfile::Entry;
using runfile::Value;

constexpr std::size_t kNowhere = ~std::size_t{0};  // no positional argument

struct Call {
  const Node* node = nullptr;
  Place place = {};
  explicit operator bool() const { return node != nullptr; }
};

/// The class of X.from_pretrained(): "AutoModelForCausalLM".
std::string class_of(const Node& call) {
  const Node& f = call.children.front();
  if (f.kind != Node::Kind::kAttribute) return "";
  const std::string whole = python::dotted_name(f.children.front());
  return whole.substr(whole.rfind('.') + 1);
}

bool is_unsloth_class(std::string_view name) {
  return name.starts_with("Fast") && name.find("Model") != name.npos;
}

bool loads_model(const Node& call) {
  const std::string method = callee(call), name = class_of(call);
  if (method != "from_pretrained" || name.find("Tokenizer") != name.npos) return false;
  return is_unsloth_class(name) || name.starts_with("AutoModel") || name.find("For") != name.npos ||
         name.ends_with("LMHeadModel");
}

bool is_trainer(const Node& call) {
  const std::string name = callee(call);
  return name.ends_with("Trainer") &&
         (argument(call, "args") || argument(call, "model") || argument(call, "train_dataset"));
}

/// TrainingArguments, and the configurations of TRL that extend them.
bool is_arguments(std::string_view name) {
  constexpr std::array kTrl{"SFTConfig", "DPOConfig",    "ORPOConfig",      "KTOConfig", "GRPOConfig",
                            "CPOConfig", "RewardConfig", "RLOOConfig",      "PPOConfig", "GKDConfig",
                            "BCOConfig", "PRMConfig",    "OnlineDPOConfig", "XPOConfig", "NashMDConfig"};
  return name.ends_with("TrainingArguments") || std::ranges::find(kTrl, name) != kTrl.end();
}

/// "dpo" of DPOTrainer and DPOConfig; "" for SFT and the Trainer of transformers.
std::string method_of(std::string_view name) {
  constexpr std::pair<std::string_view, std::string_view> kMethods[] = {
      {"DPO", "dpo"}, {"ORPO", "orpo"},     {"KTO", "kto"},   {"GRPO", "grpo"},
      {"CPO", "cpo"}, {"Reward", "rm"},     {"RLOO", "rloo"}, {"PPO", "ppo"},
      {"GKD", "gkd"}, {"BCO", "bco"},       {"PRM", "prm"},   {"OnlineDPO", "online_dpo"},
      {"XPO", "xpo"}, {"NashMD", "nash_md"}};
  for (const auto& [begin, method] : kMethods)
    if (name == std::string(begin) + "Trainer" || name == std::string(begin) + "Config")
      return std::string(method);
  return "";
}

/// Trainers that transformers has itself; TRL's have defaults of their own.
bool is_of_transformers(std::string_view name) { return name == "Trainer" || name == "Seq2SeqTrainer"; }

class ScriptJob {
 public:
  ScriptJob(const std::string& path, const python::Program& program)
      : path_(path), program_(program), values_(program) {
    collect();
    choose_trainer();
    choose_arguments();
    follow_model();
  }

  bool trains() const {
    return trainer_ || arguments_ ||
           ((load_ || name_.node) &&
            (peft_ || adapters_ || find("Accelerator") || find("AdamW") || find("backward")));
  }
  bool is_unsloth() const { return load_ && is_unsloth_class(class_of(*load_.node)); }

  std::vector<File> files(const Kind* named) {
    std::vector<File> out;
    const bool unsloth = is_unsloth();
    const auto read = unsloth ? read_unsloth : read_training_arguments;
    File job{path_, named ? named : &kind_of(read), {}};
    entries_ = &job.entries, file_ = &job;
    values_.record_branches();
    for (const Call& c : {trainer_, arguments_, load_, peft_, adapters_})
      if (c) values_.runs(c.place.guards);
    add_model(unsloth);
    add_method();
    if (arguments_) add_arguments();
    if (trainer_) add_trainer(unsloth);
    if (!trainer_ && !arguments_) add_loop();
    add_checkpointing(unsloth);
    add_environment();
    if (peft_) {
      File adapters{path_, &kind_of(read_peft), {}};
      entries_ = &adapters.entries, file_ = &adapters;
      add_peft();
      out.push_back(std::move(adapters));
      file_ = &job;
    }
    for (const auto& [name, a] : values_.branch_assumptions()) add_assumption({}, a);
    out.push_back(std::move(job));
    return out;
  }

 private:
  void collect() {
    for (const Statement& s : program_.statements) {
      if (values_.runs(s.guards) == Evaluator::Runs::kNo) continue;
      const Place place = values_.place_of(s);
      python::each_node(s.value, [&](const Node& n) {
        if (n.kind == Node::Kind::kCall) calls_.push_back({&n, place});
      });
    }
  }

  Call find(std::string_view name) const {
    for (const Call& c : calls_)
      if (callee(*c.node) == name) return c;
    return {};
  }

  void choose_trainer() {
    for (const Call& c : calls_)
      if (is_trainer(*c.node)) {
        if (trainer_) others_.push_back(trainer_);
        trainer_ = c;
      }
  }

  Call behind(const Node* n, const Place& at) const {
    if (!n) return {};
    const Found f = values_.call_behind(*n, at);
    return f.node ? Call{f.node, f.place} : Call{};
  }

  void choose_arguments() {
    if (!trainer_) {
      for (const Call& c : calls_)
        if (is_arguments(callee(*c.node))) arguments_ = c;
      return;
    }
    // The second argument of other trainers is the reference model.
    const std::string name = callee(*trainer_.node);
    const bool second = is_of_transformers(name) || name == "SFTTrainer";
    const Node* given = argument(*trainer_.node, "args", second ? 1 : kNowhere);
    if (!given) return;
    arguments_ = behind(given, trainer_.place);
    if (arguments_ && is_arguments(callee(*arguments_.node))) return;
    arguments_ = {};
    if (values_.value(*given, trainer_.place).known) return;  // None: the defaults
    open_ = {program_.text_of(*given), program_.where(*given)};
  }

  /// From the model of the trainer back to the call that loads it.
  void follow_model() {
    const Node* next = trainer_ ? argument(*trainer_.node, "model", 0) : nullptr;
    Place place = trainer_.place;
    if (const Node* config = trainer_ ? argument(*trainer_.node, "peft_config") : nullptr)
      set_adapters(*config, trainer_.place);
    for (int i = 0; next && i < 30; ++i) {
      const Found f = values_.origin(*next, place);
      if (!f.node) {
        why_ = f.why;
        break;
      }
      if (f.node->kind != Node::Kind::kCall) {
        if (values_.value(*next, place).known) name_ = {next, place};
        break;
      }
      place = f.place;
      next = before(*f.node, place);
    }
    if (!load_ && !name_.node) fall_back_on_loads();
  }

  /// What a call that returns a model was given; null at its end.
  const Node* before(const Node& call, const Place& place) {
    const std::string method = callee(call), name = class_of(call);
    if (method == "get_peft_model" && is_unsloth_class(name)) {
      adapters_ = {&call, place};
      return argument(call, "model", 0);
    }
    if (method == "get_peft_model" || method == "inject_adapter_in_model") {
      if (const Node* config = argument(call, "peft_config", 1)) set_adapters(*config, place);
      return argument(call, "model", 0);
    }
    if (method == "from_pretrained" && name == "PeftModel") {
      loaded_adapter_ = {&call, place};
      return argument(call, "model", 0);
    }
    if (method == "from_pretrained" || method == "from_config") {
      load_ = {&call, place};
      return nullptr;
    }
    if (method == "compile") compile_ = {&call, place};
    // "model.to(device)" is that model.
    constexpr std::array kSelf{"to", "cuda", "train", "eval", "bfloat16", "half", "float"};
    if (call.children.front().kind == Node::Kind::kAttribute &&
        std::ranges::find(kSelf, method) != kSelf.end())
      return &call.children.front().children.front();
    for (const char* keyword : {"model", "base_model"})
      if (const Node* given = argument(call, keyword)) return given;
    const Node* first = argument(call, "", 0);
    const bool takes_model =
        first && first->kind != Node::Kind::kString && first->kind != Node::Kind::kNumber;
    if (!takes_model) why_ = fmt::format("made by {}()", method);
    return takes_model ? first : nullptr;
  }

  /// Without a trainer, or where its model cannot be followed: the only model that the script loads.
  void fall_back_on_loads() {
    std::vector<Call> loads;
    for (const Call& c : calls_)
      if (loads_model(*c.node)) loads.push_back(c);
    std::set<std::string> names;
    for (const Call& c : loads) names.insert(runfile::written(name_of(c).value));
    // Scripts load the trained model again for generation; the one that is loaded first is trained.
    if (!loads.empty() && (names.size() == 1 || !trainer_)) load_ = loads.front();
    for (const Call& c : calls_) {
      const std::string method = callee(*c.node);
      if (method == "get_peft_model" && is_unsloth_class(class_of(*c.node)) && !adapters_) adapters_ = c;
      if (method == "get_peft_model" && !is_unsloth_class(class_of(*c.node)) && !peft_)
        if (const Node* config = argument(*c.node, "peft_config", 1)) set_adapters(*config, c.place);
      if (method == "add_adapter" && !peft_)
        if (const Node* config = argument(*c.node, "adapter_config", 0)) set_adapters(*config, c.place);
    }
  }

  /// The call that makes the configuration of adapters. None: no adapters. Where the arguments of the trainer
  /// come from another file, what a function makes does too.
  void set_adapters(const Node& config, const Place& place) {
    const Call made = behind(&config, place);
    const std::string name = made ? callee(*made.node) : "";
    if (name.ends_with("Config") && name.front() >= 'A' && name.front() <= 'Z')
      peft_ = made;
    else if (open_.first.empty() && !values_.value(config, place).known)
      open_adapters_ = {&config, place};
  }

  const Node* name_node(const Call& load) const {
    for (const char* keyword : {"pretrained_model_name_or_path", "model_name"})
      if (const Node* given = argument(*load.node, keyword, 0)) return given;
    return nullptr;
  }
  PyValue name_of(const Call& load) const {
    const Node* n = name_node(load);
    return n ? values_.value(*n, load.place) : PyValue{};
  }

  // ---- entries

  void add_assumption(const Where& where, const python::Assumption& a) {
    file_->assumed.push_back({where, {a.name, a.value, a.where, runfile::KeyUse::kUsed, a.note}});
  }

  void add_entry(const std::string& key, const std::string& spelling, const Where& where, Value value) {
    Entry e{key, where, std::move(value), key == spelling ? "" : spelling};
    entries_->push_back(std::move(e));
  }

  /// A key and what an expression is: dicts and BitsAndBytesConfig become dotted keys.
  void add(const std::string& key, const std::string& spelling, const Node& keyword, const Node& n,
           const Place& place) {
    PyValue v = values_.value(n, place);
    add_value(key, spelling, keyword, n, std::move(v), place);
  }

  void add_value(const std::string& key, const std::string& spelling, const Node& keyword, const Node& n,
                 PyValue v, const Place& place) {
    const Where where = program_.where(keyword);
    if (!v.known) {
      const Call call = v.call ? Call{v.call, v.place} : behind(&n, place);
      const std::string maker = call ? callee(*call.node) : "";
      if (maker == "BitsAndBytesConfig" || maker == "FSDPConfig")
        return add_keywords(call, key + ".", {}, spelling + ".");
    }
    for (const python::Assumption& a : v.assumed) add_assumption(where, a);
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
    if (v.by_device && is_unsloth() && (key == "bf16" || key == "fp16")) {
      add_entry(key, spelling, where, with_place(runfile::text_value("by device"), n));
      return;
    }
    if (v.by_device)
      add_assumption(where, {program_.text_of(n), "True", program_.where(n),
                             "GPUs of compute capability 8.0 and newer have bf16"});
    add_entry(key, spelling, where, with_place(v.known ? std::move(v.value) : values_.unknown(n, v.why), n));
  }

  Value with_place(Value v, const Node& n) const {
    v.where = program_.where(n);
    for (Value& item : v.items) item.where = v.where;
    return v;
  }

  /// The key of a keyword below a table: names that files have too have no table.
  static std::string key_in(const std::string& table, const std::string& name) {
    constexpr std::array kOfLoad{
        "dtype",        "torch_dtype",         "attn_implementation",  "load_in_4bit",
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
    if (load && (name == "pretrained_model_name_or_path" || name == "model_name"))
      return "model_name_or_path";
    if (table == "accelerator." && name == "gradient_accumulation_steps") return name;
    return (table == "from_pretrained." && is_in(kOfLoad)) || (table == "trainer." && is_in(kOfTrainer))
               ? name
               : table + name;
  }

  /// Every keyword of a call below `table`, and positional arguments with these names.
  void add_keywords(const Call& call, const std::string& table, std::initializer_list<const char*> positional,
                    const std::string& shown = "", std::initializer_list<std::string_view> left_out = {}) {
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

  /// **dict: its members. Of any other expression no keyword is known.
  void spread(const Node& c, const Place& place, const std::string& table, const std::string& shown,
              std::initializer_list<std::string_view> left_out) {
    PyValue v = values_.value(c.children.front(), place);
    if (!v.known || v.value.kind != Value::Kind::kTable) {
      add_entry("**" + program_.text_of(c.children.front()), "**" + program_.text_of(c.children.front()),
                program_.where(c), values_.unknown(c.children.front(), v.why));
      return;
    }
    for (auto& [name, member] : v.members) {
      if (std::ranges::find(left_out, name) != left_out.end()) continue;
      const bool open = !member.known && !member.call;
      if (open) {
        add_entry(key_in(table, name), shown + name, program_.where(c), with_place(member.value, c));
        continue;
      }
      const Node& source = member.call ? *member.call : c.children.front();
      const Place at = member.call ? member.place : place;
      add_value(key_in(table, name), shown + name, c, source, std::move(member), at);
    }
  }

  void mark(const char* key, const Node& n, std::string text = "true") {
    add_entry(key, callee(n), program_.where(n), with_place(runfile::text_value(std::move(text)), n));
  }

  void add_model(bool unsloth) {
    if (!load_) {
      if (name_.node) {
        add("model_name_or_path", "model", *name_.node, *name_.node, name_.place);
      } else if (trainer_ || !calls_.empty()) {
        const Node* given = trainer_ ? argument(*trainer_.node, "model", 0) : nullptr;
        if (given)
          add_entry("model_name_or_path", "model", program_.where(*given), values_.unknown(*given, why_));
      }
      return;
    }
    const Node& load = *load_.node;
    if (callee(load) == "from_config") {
      const Node* config = argument(load, "config", 0);
      const Call made = behind(config, load_.place);
      const Node* name = made ? name_node(made) : nullptr;
      if (name)
        add("model_name_or_path", "model", *name, *name, made.place);
      else if (config)
        add_entry("model_name_or_path", "config", program_.where(*config), values_.unknown(*config, ""));
      if (!argument(load, "dtype") && !argument(load, "torch_dtype"))
        add_entry("dtype", "from_config", program_.where(load),
                  with_place(runfile::text_value("float32"), load));
      add_keywords(load_, "from_pretrained.", {"config"}, "",
                   {"config", "dtype", "torch_dtype", "attn_implementation"});
      return;
    }
    const std::string table = unsloth ? "unsloth." : "from_pretrained.";
    for (std::size_t i = 1; i < load.children.size(); ++i) {
      const Node& c = load.children[i];
      const bool keyword = c.kind == Node::Kind::kKeyword;
      const Node& n = keyword ? c.children.front() : c;
      if (c.kind == Node::Kind::kDoubleStar) {
        spread(c, load_.place, table, "", {});
      } else if (!keyword) {
        if (i == 1) add("model_name_or_path", "model", c, n, load_.place);
      } else {
        add(key_in(table, c.text), c.text, c, n, load_.place);
      }
    }
    if (!unsloth) mark("@@model_object", load);
    if (const std::string name = class_of(load);
        !unsloth && name.starts_with("AutoModelFor") && name != "AutoModelForCausalLM")
      add_entry("from_pretrained.class", "model", program_.where(load),
                with_place(runfile::text_value(name), load));
    if (adapters_) add_keywords(adapters_, "adapters.", {"model"}, "", {"model"});
    if (unsloth && !adapters_) mark("@@no_adapters", load);
    if (unsloth && is_unsloth_class(class_of(load)) && class_of(load).find("Vision") != std::string::npos)
      add_entry("unsloth.class", "model", program_.where(load),
                with_place(runfile::text_value(class_of(load)), load));
    if (unsloth && (class_of(load).find("Vision") == std::string::npos) &&
        class_of(load).find("Language") == std::string::npos && class_of(load) != "FastModel" &&
        class_of(load).find("Text") == std::string::npos)
      add_entry("unsloth.class", "model", program_.where(load),
                with_place(runfile::text_value(class_of(load)), load));
    if (loaded_adapter_) {
      const Node* adapter = argument(*loaded_adapter_.node, "model_id", 1);
      if (adapter)
        add_entry("lora_r", "adapter", program_.where(*adapter),
                  values_.unknown(*adapter, "an adapter of another run"));
    }
    if (compile_) mark_compile();
    if (find("prepare_model_for_kbit_training") || find("prepare_model_for_int8_training"))
      mark("@@prepared", load);
  }

  void mark_compile() {
    add_entry("torch_compile", "compile", program_.where(*compile_.node),
              with_place(flag(true), *compile_.node));
  }

  static Value flag(bool on) {
    Value v;
    v.kind = Value::Kind::kBool, v.boolean = on;
    return v;
  }

  void add_method() {
    const Node& any = *(trainer_ ? trainer_ : arguments_ ? arguments_ : calls_.front()).node;
    mark("@@script", any);
    if (arguments_) mark("@@arguments", *arguments_.node);
    const std::string of_trainer = trainer_ ? method_of(callee(*trainer_.node)) : "";
    const std::string of_arguments = arguments_ ? method_of(callee(*arguments_.node)) : "";
    if (const std::string& method = of_trainer.empty() ? of_arguments : of_trainer; !method.empty())
      mark("@@method", of_trainer.empty() ? *arguments_.node : *trainer_.node, method);
    const bool trl_arguments =
        arguments_ && !std::string_view(callee(*arguments_.node)).ends_with("TrainingArguments");
    if (trl_arguments ||
        (trainer_ && !arguments_ && open_.first.empty() && !is_of_transformers(callee(*trainer_.node))))
      mark("@@trl_arguments", arguments_ ? *arguments_.node : *trainer_.node);
    if (trainer_ && !is_of_transformers(callee(*trainer_.node))) mark("@@trl_trainer", *trainer_.node);
    for (const Call& c : others_)
      add_entry("@@other_trainer", callee(*c.node), program_.where(*c.node),
                with_place(runfile::text_value(place_in_words(*trainer_.node)), *c.node));
  }

  /// "line 12", "cell 3 line 4".
  std::string place_in_words(const Node& n) const {
    const Where w = program_.where(n);
    const std::string cell = program_.source.notebook ? w.file.substr(w.file.rfind(':') + 1) + " " : "";
    return fmt::format("{}line {}", cell, w.line);
  }

  void add_arguments() {
    const std::size_t begin = entries_->size();
    add_keywords(arguments_, "", {"output_dir"});
    // "args.bf16 = True" afterwards.
    for (const Statement& s : program_.statements)
      for (const Node& target : s.targets) {
        if (target.kind != Node::Kind::kAttribute || !s.operation.empty()) continue;
        const Place place = values_.place_of(s);
        if (behind(&target.children.front(), place).node != arguments_.node) continue;
        if (values_.runs(s.guards) == Evaluator::Runs::kNo) continue;
        entries_->erase(
            std::remove_if(
                entries_->begin() + static_cast<std::ptrdiff_t>(begin), entries_->end(),
                [&](const Entry& e) { return e.key == target.text || e.key.starts_with(target.text + "."); }),
            entries_->end());
        if (values_.runs(s.guards) == Evaluator::Runs::kUnknown)
          add_entry(target.text, target.text, program_.where(target),
                    values_.unknown(s.value, "assigned under a condition"));
        else
          add(target.text, target.text, target, s.value, place);
      }
  }

  bool has(std::string_view key) const {
    return std::ranges::any_of(*entries_, [&](const Entry& e) {
      return e.key == key ||
             (e.key.starts_with(key) && e.key.size() > key.size() && e.key[key.size()] == '.');
    });
  }

  void add_trainer(bool unsloth) {
    for (std::size_t i = 1; i < trainer_.node->children.size(); ++i) {
      const Node& c = trainer_.node->children[i];
      if (c.kind == Node::Kind::kDoubleStar) {
        spread(c, trainer_.place, "trainer.", "", {"model", "args", "peft_config"});
        continue;
      }
      if (c.kind != Node::Kind::kKeyword || c.text == "model" || c.text == "args" || c.text == "peft_config")
        continue;
      add(key_in("trainer.", c.text), c.text, c, c.children.front(), trainer_.place);
    }
    if (!unsloth && !has("max_seq_length") && !has("max_length")) add_tokenizer_length();
    if (open_adapters_)
      add_entry("lora_r", "peft_config", program_.where(*open_adapters_.node),
                values_.unknown(*open_adapters_.node, "adapters, or none"));
  }

  /// The Trainer of transformers trains on what a tokenizer makes: tokenizer(text, truncation=True,
  /// max_length=512).
  void add_tokenizer_length() {
    const bool trl = trainer_ && !is_of_transformers(callee(*trainer_.node));
    if (trl) return;
    const Call* found = nullptr;
    PyValue length;
    for (const Call& c : calls_) {
      const Node *most = argument(*c.node, "max_length"), *truncates = argument(*c.node, "truncation");
      if (!most || !truncates) continue;
      PyValue v = values_.value(*most, c.place);
      if (!v.known || v.value.kind != Value::Kind::kInteger) continue;
      if (found && v.value.integer != length.value.integer) return;  // asked for
      found = &c, length = std::move(v);
    }
    if (!found) return;
    const Node& n = *argument(*found->node, "max_length");
    const Where where = program_.where(n);
    for (const python::Assumption& a : length.assumed) add_assumption(where, a);
    add_assumption(where, {"max_length", std::to_string(length.value.integer), where,
                           "sequences of the length at which the tokenizer cuts"});
    add_entry("model_max_length", "max_length", where, with_place(std::move(length.value), n));
  }

  /// A loop of its own: accelerate, and a DataLoader.
  void add_loop() {
    mark("@@loop", load_ ? *load_.node : *calls_.front().node);
    if (const Call c = find("Accelerator"))
      for (std::size_t i = 1; i < c.node->children.size(); ++i) {
        const Node& k = c.node->children[i];
        if (k.kind == Node::Kind::kKeyword)
          add(k.text == "gradient_accumulation_steps" ? k.text : "accelerator." + k.text, k.text, k,
              k.children.front(), c.place);
      }
    if (const Call c = find("DataLoader"))  // that of the training set comes first
      if (const Node* size = argument(*c.node, "batch_size", 1))
        add("per_device_train_batch_size", "batch_size", *size, *size, c.place);
    add_tokenizer_length();
  }

  void add_checkpointing(bool unsloth) {
    if (unsloth || has("gradient_checkpointing")) return;
    if (const Call c = find("gradient_checkpointing_enable")) {
      add_entry("gradient_checkpointing", "gradient_checkpointing_enable", program_.where(*c.node),
                with_place(flag(true), *c.node));
      if (const Node* options = argument(*c.node, "gradient_checkpointing_kwargs", 0))
        add("gradient_checkpointing_kwargs", "gradient_checkpointing_kwargs", *options, *options, c.place);
      return;
    }
    for (const char* name : {"prepare_model_for_kbit_training", "prepare_model_for_int8_training"})
      if (const Call c = find(name)) {
        const Node* given = argument(*c.node, "use_gradient_checkpointing", 1);
        if (given)
          add("gradient_checkpointing", "use_gradient_checkpointing", *given, *given, c.place);
        else
          add_entry("gradient_checkpointing", name, program_.where(*c.node), with_place(flag(true), *c.node));
        return;
      }
  }

  /// os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "...".
  void add_environment() {
    for (const Statement& s : program_.statements)
      for (const Node& target : s.targets) {
        if (target.kind != Node::Kind::kSubscript ||
            python::dotted_name(target.children.front()) != "os.environ")
          continue;
        const Node& name = target.children[1];
        const bool allocator = name.text == "PYTORCH_CUDA_ALLOC_CONF" || name.text == "PYTORCH_ALLOC_CONF" ||
                               name.text == "PYTORCH_HIP_ALLOC_CONF";
        if (!allocator || values_.runs(s.guards) == Evaluator::Runs::kNo) continue;
        PyValue v = values_.value(s.value, values_.place_of(s));
        file_->environment.push_back(
            {name.text, program_.where(target),
             with_place(
                 v.known ? std::move(v.value) : runfile::text_value("`" + program_.text_of(s.value) + "`"),
                 s.value)});
      }
  }

  void add_peft() {
    const std::string maker = callee(*peft_.node);
    if (maker != "LoraConfig")
      add_entry("peft_type", maker, program_.where(*peft_.node),
                with_place(runfile::text_value(maker), *peft_.node));
    else
      add_keywords(peft_, "", {"peft_type"});
    if (entries_->empty()) mark("peft_type", *peft_.node, "LORA");
  }

 public:
  std::pair<std::string, Where> open() const { return open_; }

 private:
  const std::string& path_;
  const python::Program& program_;
  Evaluator values_;
  std::vector<Call> calls_;
  std::vector<Call> others_;  // trainers that are not planned
  Call trainer_, arguments_, load_, name_, peft_, adapters_, loaded_adapter_, compile_, open_adapters_;
  std::pair<std::string, Where> open_;  // the trainer's arguments, where no call makes them
  std::string why_;                     // the model is not known
  Entries* entries_ = nullptr;
  File* file_ = nullptr;
};

[[noreturn]] void refuse(const std::string& path, const std::string& text) {
  throw usage_error("this script makes no trainer, and no adapters, that --from reads",
                    "looked for: TrainingArguments, SFTConfig and other configurations of TRL, Trainer, "
                    "SFTTrainer, LoraConfig, "
                    "FastLanguageModel.from_pretrained and get_peft_model; otherwise " +
                        runfile::plan_of_script(text),
                    {path, 1, 1});
}

}  // namespace

std::vector<File> read_python(const std::string& path, std::string text, const Kind* named) {
  const python::Program program = python::parse(python::read_source(std::move(text), path));
  ScriptJob job(path, program);
  if (!job.trains()) refuse(path, program.source.text);
  if (named && named->read == read_unsloth && !job.is_unsloth())
    throw usage_error("this script has no call of Unsloth",
                      "give it as --from=transformers:" + path + ", or without a kind", {path, 1, 1});
  if (named && named->read != read_unsloth && named->read != read_training_arguments)
    throw usage_error(
        fmt::format("a Python script is read as transformers or unsloth, not as {}", named->name),
        "give it without a kind", {path, 1, 1});
  std::vector<File> out = job.files(named && named->read == read_unsloth ? named
                                    : job.is_unsloth()                   ? nullptr
                                                                         : named);
  out.back().open_arguments = job.open().first;
  out.back().open_at = job.open().second;
  return out;
}

void join_python(std::vector<File>& files) {
  for (File& f : files) {
    if (f.open_arguments.empty()) continue;
    const auto other = std::ranges::find_if(files, [&](const File& o) {
      return &o != &f && o.open_arguments.empty() &&
             (o.kind->read == read_training_arguments || o.kind->read == read_training_script);
    });
    if (other == files.end())
      throw usage_error(
          fmt::format("{}: the script does not say what the arguments of the trainer are", f.open_arguments),
          "give the file or the command with them too: --from " + escaped(f.path, 200) +
              " FILE, with TrainingArguments as YAML or JSON, or a shell script",
          f.open_at);
    // What the file gives too is that of the command line, which a script reads there; so is what it
    // computes.
    for (Entry& e : f.entries)
      if (e.value.kind == Value::Kind::kOther) e.value.text = "(" + e.value.text + ")";
    for (Entry& e : f.entries)
      if (std::ranges::none_of(other->entries, [&](const Entry& o) { return o.key == e.key; }))
        other->entries.push_back(std::move(e));
    std::ranges::move(f.assumed, std::back_inserter(other->assumed));
    std::ranges::move(f.environment, std::back_inserter(other->environment));
    f.entries.clear();
  }
  std::erase_if(files, [](const File& f) { return !f.open_arguments.empty(); });
}

}  // namespace trainhost::framework_files
