// See python_job.hpp. Which entries the calls of a training job make: python_calls.hpp finds the calls,
// python_entries.hpp writes their keywords.
#include "core/framework_files/python_job.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "core/base/text.hpp"
#include "core/framework_files/python_entries.hpp"
#include "core/framework_files/python_pins.hpp"
#include "core/runfile/python_script.hpp"

namespace trainhost::framework_files {
namespace {

using python::argument;
using python::Call;
using python::callee;
using python::CallEntries;
using python::class_of;
using python::Evaluator;
using python::is_of_transformers;
using python::is_unsloth_class;
using python::JobCalls;
using python::method_of;
using python::Node;
using python::Place;
using python::PyValue;
using python::Statement;
using runfile::Entry;
using runfile::Value;

/// The entries of the trainer, its arguments and its model.
class TrainerEntries {
 public:
  TrainerEntries(const JobCalls& calls, File& file)
      : calls_(calls), program_(calls.program), out_(calls, file) {}

  void add_all() {
    const bool unsloth = calls_.is_unsloth();
    for (const Call& c : {calls_.trainer, calls_.arguments, calls_.load, calls_.peft, calls_.adapters})
      if (c) calls_.values.runs(c.place.guards);
    add_model(unsloth);
    add_method();
    if (calls_.arguments) add_arguments();
    if (calls_.trainer) add_trainer(unsloth);
    if (!calls_.trainer && !calls_.arguments) add_loop();
    add_checkpointing(unsloth);
    add_environment();
    add_releases();
  }

 private:
  void add_model(bool unsloth) {
    if (!calls_.load) {
      if (calls_.model_name.node) {
        out_.add("model_name_or_path", "model", *calls_.model_name.node, *calls_.model_name.node,
                 calls_.model_name.place);
      } else if (calls_.trainer || !calls_.all.empty()) {
        const Node* given = calls_.trainer ? argument(*calls_.trainer.node, "model", 0) : nullptr;
        if (given)
          out_.add_entry("model_name_or_path", "model", program_.where(*given),
                         calls_.values.unknown(*given, calls_.why));
      }
      return;
    }
    const Node& load = *calls_.load.node;
    if (callee(load) == "from_config") {
      const Node* config = argument(load, "config", 0);
      const Call made = calls_.behind(config, calls_.load.place);
      const Node* name = made ? calls_.name_node(made) : nullptr;
      if (name)
        out_.add("model_name_or_path", "model", *name, *name, made.place);
      else if (config)
        out_.add_entry("model_name_or_path", "config", program_.where(*config),
                       calls_.values.unknown(*config, ""));
      if (!argument(load, "dtype") && !argument(load, "torch_dtype"))
        out_.add_entry("dtype", "from_config", program_.where(load),
                       out_.with_place(runfile::text_value("float32"), load));
      out_.add_keywords(calls_.load, "from_pretrained.", {"config"}, "",
                        {"config", "dtype", "torch_dtype", "attn_implementation"});
      return;
    }
    const std::string table = unsloth ? "unsloth." : "from_pretrained.";
    for (std::size_t i = 1; i < load.children.size(); ++i) {
      const Node& c = load.children[i];
      const bool keyword = c.kind == Node::Kind::kKeyword;
      const Node& n = keyword ? c.children.front() : c;
      if (c.kind == Node::Kind::kDoubleStar) {
        out_.spread(c, calls_.load.place, table, "", {});
      } else if (!keyword) {
        if (i == 1) out_.add("model_name_or_path", "model", c, n, calls_.load.place);
      } else {
        out_.add(out_.key_in(table, c.text), c.text, c, n, calls_.load.place);
      }
    }
    if (!unsloth) out_.mark("@@model_object", load);
    if (const std::string name = class_of(load);
        !unsloth && name.starts_with("AutoModelFor") && name != "AutoModelForCausalLM")
      out_.add_entry("from_pretrained.class", "model", program_.where(load),
                     out_.with_place(runfile::text_value(name), load));
    if (calls_.adapters) out_.add_keywords(calls_.adapters, "adapters.", {"model"}, "", {"model"});
    if (unsloth && !calls_.adapters) out_.mark("@@no_adapters", load);
    if (unsloth && is_unsloth_class(class_of(load)) && class_of(load).find("Vision") != std::string::npos)
      out_.add_entry("unsloth.class", "model", program_.where(load),
                     out_.with_place(runfile::text_value(class_of(load)), load));
    if (unsloth && (class_of(load).find("Vision") == std::string::npos) &&
        class_of(load).find("Language") == std::string::npos && class_of(load) != "FastModel" &&
        class_of(load).find("Text") == std::string::npos)
      out_.add_entry("unsloth.class", "model", program_.where(load),
                     out_.with_place(runfile::text_value(class_of(load)), load));
    if (calls_.loaded_adapter) {
      const Node* adapter = argument(*calls_.loaded_adapter.node, "model_id", 1);
      if (adapter)
        out_.add_entry("lora_r", "adapter", program_.where(*adapter),
                       calls_.values.unknown(*adapter, "an adapter of another run"));
    }
    if (calls_.compile) mark_compile();
    if (calls_.find("prepare_model_for_kbit_training") || calls_.find("prepare_model_for_int8_training"))
      out_.mark("@@prepared", load);
  }

  void mark_compile() {
    out_.add_entry("torch_compile", "compile", program_.where(*calls_.compile.node),
                   out_.with_place(out_.flag(true), *calls_.compile.node));
  }

  void add_method() {
    const Node& any = *(calls_.trainer     ? calls_.trainer
                        : calls_.arguments ? calls_.arguments
                                           : calls_.all.front())
                           .node;
    out_.mark("@@script", any);
    if (calls_.arguments) out_.mark("@@arguments", *calls_.arguments.node);
    const std::string of_trainer = calls_.trainer ? method_of(callee(*calls_.trainer.node)) : "";
    const std::string of_arguments = calls_.arguments ? method_of(callee(*calls_.arguments.node)) : "";
    if (const std::string& method = of_trainer.empty() ? of_arguments : of_trainer; !method.empty())
      out_.mark("@@method", of_trainer.empty() ? *calls_.arguments.node : *calls_.trainer.node, method);
    const bool trl_arguments =
        calls_.arguments && !std::string_view(callee(*calls_.arguments.node)).ends_with("TrainingArguments");
    if (trl_arguments || (calls_.trainer && !calls_.arguments && calls_.open_arguments.first.empty() &&
                          !is_of_transformers(callee(*calls_.trainer.node))))
      out_.mark("@@trl_arguments", calls_.arguments ? *calls_.arguments.node : *calls_.trainer.node);
    if (calls_.trainer && !is_of_transformers(callee(*calls_.trainer.node)))
      out_.mark("@@trl_trainer", *calls_.trainer.node);
    for (const Call& c : calls_.other_trainers)
      out_.add_entry("@@other_trainer", callee(*c.node), program_.where(*c.node),
                     out_.with_place(runfile::text_value(place_in_words(*calls_.trainer.node)), *c.node));
  }

  /// "line 12", "cell 3 line 4".
  std::string place_in_words(const Node& n) const {
    const Where w = program_.where(n);
    const std::string cell = program_.source.notebook ? w.file.substr(w.file.rfind(':') + 1) + " " : "";
    return fmt::format("{}line {}", cell, w.line);
  }

  void add_arguments() {
    const std::size_t begin = out_.file().entries.size();
    out_.add_keywords(calls_.arguments, "", {"output_dir"});
    // "args.bf16 = True" afterwards.
    for (const Statement& s : program_.statements)
      for (const Node& target : s.targets) {
        if (target.kind != Node::Kind::kAttribute || !s.operation.empty()) continue;
        const Place place = calls_.values.place_of(s);
        if (calls_.behind(&target.children.front(), place).node != calls_.arguments.node) continue;
        if (calls_.values.runs(s.guards) == Evaluator::Runs::kNo) continue;
        out_.file().entries.erase(
            std::remove_if(
                out_.file().entries.begin() + static_cast<std::ptrdiff_t>(begin), out_.file().entries.end(),
                [&](const Entry& e) { return e.key == target.text || e.key.starts_with(target.text + "."); }),
            out_.file().entries.end());
        if (calls_.values.runs(s.guards) == Evaluator::Runs::kUnknown)
          out_.add_entry(target.text, target.text, program_.where(target),
                         calls_.values.unknown(s.value, "assigned under a condition"));
        else
          out_.add(target.text, target.text, target, s.value, place);
      }
  }

  void add_trainer(bool unsloth) {
    for (std::size_t i = 1; i < calls_.trainer.node->children.size(); ++i) {
      const Node& c = calls_.trainer.node->children[i];
      if (c.kind == Node::Kind::kDoubleStar) {
        out_.spread(c, calls_.trainer.place, "trainer.", "", {"model", "args", "peft_config"});
        continue;
      }
      if (c.kind != Node::Kind::kKeyword || c.text == "model" || c.text == "args" || c.text == "peft_config")
        continue;
      out_.add(out_.key_in("trainer.", c.text), c.text, c, c.children.front(), calls_.trainer.place);
    }
    if (!unsloth && !out_.has("max_seq_length") && !out_.has("max_length")) add_tokenizer_length();
    if (calls_.open_adapters)
      out_.add_entry("lora_r", "peft_config", program_.where(*calls_.open_adapters.node),
                     calls_.values.unknown(*calls_.open_adapters.node, "adapters, or none"));
  }

  /// The Trainer of transformers trains on what a tokenizer makes: tokenizer(text, truncation=True,
  /// max_length=512).
  void add_tokenizer_length() {
    const bool trl = calls_.trainer && !is_of_transformers(callee(*calls_.trainer.node));
    if (trl) return;
    const Call* found = nullptr;
    PyValue length;
    for (const Call& c : calls_.all) {
      const Node *most = argument(*c.node, "max_length"), *truncates = argument(*c.node, "truncation");
      if (!most || !truncates) continue;
      PyValue v = calls_.values.value(*most, c.place);
      if (!v.known || v.value.kind != Value::Kind::kInteger) continue;
      if (found && v.value.integer != length.value.integer) return;  // asked for
      found = &c, length = std::move(v);
    }
    if (!found) return;
    const Node& n = *argument(*found->node, "max_length");
    const Where where = program_.where(n);
    for (const python::Assumption& a : length.assumed) out_.add_assumption(where, a);
    out_.add_assumption(where, {"max_length", std::to_string(length.value.integer), where,
                                "sequences of the length at which the tokenizer cuts"});
    out_.add_entry("model_max_length", "max_length", where, out_.with_place(std::move(length.value), n));
  }

  /// A loop of its own: accelerate, and a DataLoader.
  void add_loop() {
    out_.mark("@@loop", calls_.load ? *calls_.load.node : *calls_.all.front().node);
    if (const Call c = calls_.find("Accelerator"))
      for (std::size_t i = 1; i < c.node->children.size(); ++i) {
        const Node& k = c.node->children[i];
        if (k.kind == Node::Kind::kKeyword)
          out_.add(k.text == "gradient_accumulation_steps" ? k.text : "accelerator." + k.text, k.text, k,
                   k.children.front(), c.place);
      }
    if (const Call c = calls_.find("DataLoader"))  // that of the training set comes first
      if (const Node* size = argument(*c.node, "batch_size", 1))
        out_.add("per_device_train_batch_size", "batch_size", *size, *size, c.place);
    add_tokenizer_length();
  }

  void add_checkpointing(bool unsloth) {
    if (unsloth || out_.has("gradient_checkpointing")) return;
    if (const Call c = calls_.find("gradient_checkpointing_enable")) {
      out_.add_entry("gradient_checkpointing", "gradient_checkpointing_enable", program_.where(*c.node),
                     out_.with_place(out_.flag(true), *c.node));
      if (const Node* options = argument(*c.node, "gradient_checkpointing_kwargs", 0))
        out_.add("gradient_checkpointing_kwargs", "gradient_checkpointing_kwargs", *options, *options,
                 c.place);
      return;
    }
    for (const char* name : {"prepare_model_for_kbit_training", "prepare_model_for_int8_training"})
      if (const Call c = calls_.find(name)) {
        const Node* given = argument(*c.node, "use_gradient_checkpointing", 1);
        if (given)
          out_.add("gradient_checkpointing", "use_gradient_checkpointing", *given, *given, c.place);
        else
          out_.add_entry("gradient_checkpointing", name, program_.where(*c.node),
                         out_.with_place(out_.flag(true), *c.node));
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
        if (!allocator || calls_.values.runs(s.guards) == Evaluator::Runs::kNo) continue;
        PyValue v = calls_.values.value(s.value, calls_.values.place_of(s));
        out_.file().environment.push_back(
            {name.text, program_.where(target),
             out_.with_place(
                 v.known ? std::move(v.value) : runfile::text_value("`" + program_.text_of(s.value) + "`"),
                 s.value)});
      }
  }

  /// The releases that the script pins, as marks that rules read (apply_pinned_releases()).
  void add_releases() {
    const std::vector<python::Pin> pins = python::pinned_packages(program_.source);
    for (const char* package : {"transformers", "trl"}) {
      const python::Pin* last = nullptr;
      for (const python::Pin& pin : pins)
        if (pin.package == package) last = &pin;
      if (!last) continue;
      Value version = runfile::text_value(last->version);
      version.where = last->where;
      out_.add_entry(std::string("@@release.") + package, package, last->where, std::move(version));
    }
  }

  const JobCalls& calls_;
  const python::Program& program_;
  CallEntries out_;
};

/// The configuration of adapters, as adapter_config.json has it.
void add_peft(const JobCalls& calls, File& file) {
  CallEntries out(calls, file);
  const std::string maker = callee(*calls.peft.node);
  if (maker != "LoraConfig")
    out.add_entry("peft_type", maker, calls.program.where(*calls.peft.node),
                  out.with_place(runfile::text_value(maker), *calls.peft.node));
  else
    out.add_keywords(calls.peft, "", {"peft_type"});
  if (file.entries.empty()) out.mark("peft_type", *calls.peft.node, "LORA");
}

std::vector<File> files_of(const std::string& path, JobCalls& calls, const Kind* named) {
  std::vector<File> out;
  File job{path, named ? named : &kind_of(calls.is_unsloth() ? read_unsloth : read_training_arguments), {}};
  calls.values.record_branches();
  TrainerEntries(calls, job).add_all();
  if (calls.peft) {
    out.push_back({path, &kind_of(read_peft), {}});
    add_peft(calls, out.back());
  }
  for (const auto& [name, a] : calls.values.branch_assumptions())
    CallEntries(calls, job).add_assumption({}, a);
  job.open_arguments = calls.open_arguments.first;
  job.open_at = calls.open_arguments.second;
  out.push_back(std::move(job));
  return out;
}

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
  JobCalls calls(program);
  if (!calls.trains()) refuse(path, program.source.text);
  if (named && named->read == read_unsloth && !calls.is_unsloth())
    throw usage_error("this script has no call of Unsloth",
                      "give it as --from=transformers:" + path + ", or without a kind", {path, 1, 1});
  if (named && named->read != read_unsloth && named->read != read_training_arguments)
    throw usage_error(
        fmt::format("a Python script is read as transformers or unsloth, not as {}", named->name),
        "give it without a kind", {path, 1, 1});
  // The calls of Unsloth decide, whatever kind is named.
  return files_of(path, calls,
                  named && named->read == read_unsloth ? named
                  : calls.is_unsloth()                 ? nullptr
                                                       : named);
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
