// See python_calls.hpp.
#include "core/framework_files/python_calls.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>

#include "core/runfile/python_script.hpp"

namespace trainhost::framework_files::python {
namespace {

constexpr std::size_t kNowhere = ~std::size_t{0};  // no positional argument

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

}  // namespace

std::string class_of(const Node& call) {
  const Node& f = call.children.front();
  if (f.kind != Node::Kind::kAttribute) return "";
  const std::string whole = python::dotted_name(f.children.front());
  return whole.substr(whole.rfind('.') + 1);
}

bool is_unsloth_class(std::string_view name) {
  return name.starts_with("Fast") && name.find("Model") != name.npos;
}

bool is_of_transformers(std::string_view trainer) {
  return trainer == "Trainer" || trainer == "Seq2SeqTrainer";
}

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

JobCalls::JobCalls(const Program& source) : program(source), values(source) {
  collect();
  choose_trainer();
  choose_arguments();
  follow_model();
}

bool JobCalls::trains() const {
  return trainer || arguments ||
         ((load || model_name.node) &&
          (peft || adapters || find("Accelerator") || find("AdamW") || find("backward")));
}

void JobCalls::collect() {
  for (const Statement& s : program.statements) {
    if (values.runs(s.guards) == Evaluator::Runs::kNo) continue;
    const Place place = values.place_of(s);
    python::each_node(s.value, [&](const Node& n) {
      if (n.kind == Node::Kind::kCall) all.push_back({&n, place});
    });
  }
}

Call JobCalls::find(std::string_view name) const {
  for (const Call& c : all)
    if (callee(*c.node) == name) return c;
  return {};
}

void JobCalls::choose_trainer() {
  for (const Call& c : all)
    if (is_trainer(*c.node)) {
      if (trainer) other_trainers.push_back(trainer);
      trainer = c;
    }
}

Call JobCalls::behind(const Node* n, const Place& at) const {
  if (!n) return {};
  const Found f = values.call_behind(*n, at);
  return f.node ? Call{f.node, f.place} : Call{};
}

void JobCalls::choose_arguments() {
  if (!trainer) {
    for (const Call& c : all)
      if (is_arguments(callee(*c.node))) arguments = c;
    return;
  }
  // The second argument of other trainers is the reference model.
  const std::string name = callee(*trainer.node);
  const bool second = is_of_transformers(name) || name == "SFTTrainer";
  const Node* given = argument(*trainer.node, "args", second ? 1 : kNowhere);
  if (!given) return;
  arguments = behind(given, trainer.place);
  if (arguments && is_arguments(callee(*arguments.node))) return;
  arguments = {};
  if (values.value(*given, trainer.place).known) return;  // None: the defaults
  open_arguments = {program.text_of(*given), program.where(*given)};
}

/// From the model of the trainer back to the call that loads it.
void JobCalls::follow_model() {
  const Node* next = trainer ? argument(*trainer.node, "model", 0) : nullptr;
  Place place = trainer.place;
  if (const Node* config = trainer ? argument(*trainer.node, "peft_config") : nullptr)
    set_adapters(*config, trainer.place);
  for (int i = 0; next && i < 30; ++i) {
    const Found f = values.origin(*next, place);
    if (!f.node) {
      why = f.why;
      break;
    }
    if (f.node->kind != Node::Kind::kCall) {
      if (values.value(*next, place).known) model_name = {next, place};
      break;
    }
    place = f.place;
    next = before(*f.node, place);
  }
  if (!load && !model_name.node) fall_back_on_loads();
}

/// What a call that returns a model was given; null at its end.
const Node* JobCalls::before(const Node& call, const Place& place) {
  const std::string method = callee(call), name = class_of(call);
  if (method == "get_peft_model" && is_unsloth_class(name)) {
    adapters = {&call, place};
    return argument(call, "model", 0);
  }
  if (method == "get_peft_model" || method == "inject_adapter_in_model") {
    if (const Node* config = argument(call, "peft_config", 1)) set_adapters(*config, place);
    return argument(call, "model", 0);
  }
  if (method == "from_pretrained" && name == "PeftModel") {
    loaded_adapter = {&call, place};
    return argument(call, "model", 0);
  }
  if (method == "from_pretrained" || method == "from_config") {
    load = {&call, place};
    return nullptr;
  }
  if (method == "compile") compile = {&call, place};
  // "model.to(device)" is that model.
  constexpr std::array kSelf{"to", "cuda", "train", "eval", "bfloat16", "half", "float"};
  if (call.children.front().kind == Node::Kind::kAttribute && std::ranges::find(kSelf, method) != kSelf.end())
    return &call.children.front().children.front();
  for (const char* keyword : {"model", "base_model"})
    if (const Node* given = argument(call, keyword)) return given;
  const Node* first = argument(call, "", 0);
  const bool takes_model = first && first->kind != Node::Kind::kString && first->kind != Node::Kind::kNumber;
  if (!takes_model) why = fmt::format("made by {}()", method);
  return takes_model ? first : nullptr;
}

/// Without a trainer, or where its model cannot be followed: the only model that the script loads.
void JobCalls::fall_back_on_loads() {
  std::vector<Call> loads;
  for (const Call& c : all)
    if (loads_model(*c.node)) loads.push_back(c);
  std::set<std::string> names;
  for (const Call& c : loads) names.insert(runfile::written(name_of(c).value));
  // Scripts load the trained model again for generation; the one that is loaded first is trained.
  if (!loads.empty() && (names.size() == 1 || !trainer)) load = loads.front();
  for (const Call& c : all) {
    const std::string method = callee(*c.node);
    if (method == "get_peft_model" && is_unsloth_class(class_of(*c.node)) && !adapters) adapters = c;
    if (method == "get_peft_model" && !is_unsloth_class(class_of(*c.node)) && !peft)
      if (const Node* config = argument(*c.node, "peft_config", 1)) set_adapters(*config, c.place);
    if (method == "add_adapter" && !peft)
      if (const Node* config = argument(*c.node, "adapter_config", 0)) set_adapters(*config, c.place);
  }
}

/// The call that makes the configuration of adapters. None: no adapters. Where the arguments of the trainer
/// come from another file, what a function makes does too.
void JobCalls::set_adapters(const Node& config, const Place& place) {
  const Call made = behind(&config, place);
  const std::string name = made ? callee(*made.node) : "";
  if (name.ends_with("Config") && name.front() >= 'A' && name.front() <= 'Z')
    peft = made;
  else if (open_arguments.first.empty() && !values.value(config, place).known)
    open_adapters = {&config, place};
}

const Node* JobCalls::name_node(const Call& loading) const {
  for (const char* keyword : {"pretrained_model_name_or_path", "model_name"})
    if (const Node* given = argument(*loading.node, keyword, 0)) return given;
  return nullptr;
}

PyValue JobCalls::name_of(const Call& loading) const {
  const Node* n = name_node(loading);
  return n ? values.value(*n, loading.place) : PyValue{};
}

}  // namespace trainhost::framework_files::python
