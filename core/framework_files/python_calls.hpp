// The calls of a script that describe its training job: the trainer, its arguments, the call that loads the
// model, and those that add adapters. The trainer leads to the others; a script without one has them where it
// makes them.
#pragma once
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/framework_files/python_values.hpp"

namespace trainhost::framework_files::python {

struct Call {
  const Node* node = nullptr;
  Place place = {};
  explicit operator bool() const { return node != nullptr; }
};

/// The class of X.from_pretrained(): "AutoModelForCausalLM".
std::string class_of(const Node& call);
/// FastLanguageModel, FastModel, FastVisionModel.
bool is_unsloth_class(std::string_view name);
/// Trainers that transformers has itself; TRL's have defaults of their own.
bool is_of_transformers(std::string_view trainer);
/// "dpo" of DPOTrainer and DPOConfig; "" for SFT and the Trainer of transformers.
std::string method_of(std::string_view name);

struct JobCalls {
  explicit JobCalls(const Program& program);

  bool trains() const;
  bool is_unsloth() const { return load && is_unsloth_class(class_of(*load.node)); }
  /// The first call of a function of this name.
  Call find(std::string_view name) const;
  /// The call that makes an object; none for null.
  Call behind(const Node* n, const Place& at) const;
  /// The argument of from_pretrained() that names the model; null if there is none.
  const Node* name_node(const Call& loading) const;

  const Program& program;
  Evaluator values;
  std::vector<Call> all;             // that run, in the order of the text
  std::vector<Call> other_trainers;  // that are not planned
  Call trainer, arguments;
  Call load, model_name;  // the call that loads the model, or the expression that names it
  Call peft, adapters;    // LoraConfig() of PEFT; get_peft_model() of Unsloth
  Call loaded_adapter, compile;
  Call open_adapters;                            // adapters, or none
  std::pair<std::string, Where> open_arguments;  // of the trainer, where no call makes them
  std::string why;                               // the model is not known

 private:
  void collect();
  void choose_trainer();
  void choose_arguments();
  void follow_model();
  const Node* before(const Node& call, const Place& place);
  void fall_back_on_loads();
  void set_adapters(const Node& config, const Place& place);
  PyValue name_of(const Call& loading) const;
};

}  // namespace trainhost::framework_files::python
