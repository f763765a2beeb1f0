// The settings of a training job as files of other frameworks state them, on their way to run-file keys.
// Every key of a file is kept with what became of it; none is dropped. Rules per framework: rules_*.cpp.
#pragma once
#include <algorithm>
#include <initializer_list>
#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/runfile/run_config.hpp"
#include "core/runfile/value.hpp"

namespace trainhost::framework_files {

/// One value that a file gives for a run-file key.
struct Given {
  std::string value;  // as for --set
  std::string key;    // of the file: "zero_optimization.stage"
  Where where;
  bool by_default = false;  // the framework's default: any file replaces it
};

/// The value as a whole number above 0; throws usage_error with its position for any other text.
std::uint64_t count_of(const Given& g);

/// Settings that are no run-file keys: read_files() turns them into some.
inline constexpr const char *kModel = "@model", *kRanks = "@ranks", *kNodes = "@nodes",
                            *kPerNode = "@per_node", *kGlobalBatch = "@global_batch";
/// The key that turns FSDP on.
inline constexpr const char* kSharded = "@sharded";
/// The path of a config.json among the files: the model, whatever name another file gives it.
inline constexpr const char* kConfigFile = "@config_file";
/// ZeRO stage, and recomputation, of a run with several data-parallel ranks.
inline constexpr const char *kZeroOfMany = "@zero_of_many", *kRecomputeOfMany = "@recompute_of_many";
/// "true": a global batch that does not divide is rounded down.
inline constexpr const char* kRoundBatch = "@round_batch";
/// Sequences of a step at least, from which the accumulation follows where no file gives it.
inline constexpr const char* kLeastBatch = "@least_batch";
/// "true": the framework lists the linear layers of the model itself, which stacked experts are not.
inline constexpr const char* kLinearLayers = "@linear_layers";
/// "true": checkpoints are not reentrant where several ranks have all weights (DDP).
inline constexpr const char* kReentrantAlone = "@reentrant_alone";
/// Tensor-parallel ranks of each expert, where they are not those of the run.
inline constexpr const char* kExpertTensor = "@expert_tensor";
/// "true": moments that the driver may move to host memory.
inline constexpr const char* kPaged = "@paged";
/// A key that makes the model another one than the fields of a run file describe.
inline constexpr const char* kOtherModel = "@other_model";
/// The training method: SFT, or another one with a second model. Its rules set no setting.
inline constexpr const char* kMethod = "@method";

class Job {
 public:
  /// Sets a run-file key. Throws usage_error with both positions if another file, or another key, gave
  /// another value.
  void set(const std::string& run_key, std::string value, const runfile::Entry& from);
  /// The framework's own default, used where no file gives the key. `source`: "default of torchtune".
  void set_default(const std::string& run_key, std::string value, const std::string& source);
  /// The same for a value that follows from another setting.
  void set_default(const std::string& run_key, std::string value, const Given& from);
  void set_default(const std::string& run_key, std::string value, const runfile::Entry& from);
  const Given* find(const std::string& run_key) const;
  /// Sets the value of an option of the command line, which wins over files.
  void replace(const runfile::Override& option);
  /// Run-file keys that the command line gives.
  void set_options(std::set<std::string> run_keys) { options_ = std::move(run_keys); }
  bool is_option(const std::string& run_key) const {
    asked_.insert(run_key);
    return options_.contains(run_key);
  }
  /// Whether is_option() has had the same answers as with these keys, so that rules have done the same.
  bool is_alike_with(const std::set<std::string>& run_keys) const {
    return std::ranges::all_of(
        asked_, [&](const std::string& key) { return options_.contains(key) == run_keys.contains(key); });
  }
  void erase(const std::string& run_key) { settings_.erase(run_key); }
  template <class Predicate>
  void erase_if(Predicate of_key) {
    std::erase_if(settings_, [&](const auto& setting) { return of_key(setting.first); });
  }
  const std::map<std::string, Given>& settings() const { return settings_; }

  std::string framework;               // of the last file that states one
  std::string not_modelled;            // set by apply() of a rule: what plans do not know about its key
  bool needs_more = false;             // set with it: the run may need more memory than its plan
  std::vector<runfile::FileKey> keys;  // what became of each key of the files, in their order
  /// Keys whose value the file does not say ("$TP"), and the option that gives it; "": none.
  struct Unknown {
    std::string key, value;
    Where where;
    std::string option;
  };
  std::vector<Unknown> unknown;
  /// Run-file keys that a file leaves to another one ("auto").
  std::map<std::string, Given> left_open;

 private:
  std::map<std::string, Given> settings_;
  std::set<std::string> options_;
  mutable std::set<std::string> asked_;
};

/// Typed values of an entry; each throws usage_error with position, key and value for another type.
std::string text_of(const runfile::Entry& e);
std::uint64_t whole_of(const runfile::Entry& e);
bool flag_of(const runfile::Entry& e);
/// "none" is the empty list for a value that is null.
std::vector<std::string> texts_of(const runfile::Entry& e);
[[noreturn]] void reject_value(const runfile::Entry& e, const std::string& expected);
/// For a name that is none of `known`: names the nearest one, and lists all in the hint. what: "optimizer
/// that can be planned".
[[noreturn]] void reject_name(const runfile::Entry& e, const std::string& what,
                              const std::vector<std::string>& known);

/// For an optimizer that plans do not have. Where the command line names one, the key is noted as replaced;
/// otherwise throws as reject_name() does.
void reject_optimizer(Job& job, const runfile::Entry& e, const std::vector<std::string>& known);

/// What a key of a framework's file means.
enum class Use {
  kCopy,         // the value is that of the run-file key
  kWhenTrue,     // `argument` is its value if the file says true
  kWhenFalse,    // the same for false
  kChoice,       // `argument`: "theirs=ours|theirs=|..."; nothing after "=": without effect
  kCustom,       // apply()
  kNoEffect,     // on memory
  kNotModelled,  // has an effect that plans do not know; `argument` says which. Values in `run_key`
                 // ("float32|auto") and those that switch it off have none
  kNeedsMore,    // the same, and the run may need more memory than its plan
};

struct Rule {
  std::string_view key;  // dotted; a final "*" stands for any rest
  Use use;
  const char* run_key = "";
  const char* argument = "";
  void (*apply)(Job&, const runfile::Entry&) = nullptr;
};

/// Rules of a framework, and its keys without effect on memory, separated by spaces. A key that ends in "*"
/// stands for any rest there too.
struct RuleSet {
  std::span<const Rule> rules;
  std::string_view without_effect = "";
  std::string_view table = "";  // before each key: "fsdp_config."
};

/// Applies the first rule of each entry; rules of a set go before its keys without effect, and sets before
/// later ones. The value "auto" leaves a key to other files.
void apply_rules(std::initializer_list<RuleSet> sets, const std::vector<runfile::Entry>& entries, Job& job);

/// Sets what train.precision and the types of [plan] are under PyTorch's autocast, or with every tensor in
/// the narrow type. `type`: "bf16" or "fp16".
void set_autocast(Job& job, const std::string& type, const runfile::Entry& from);
void set_pure(Job& job, const std::string& type, const runfile::Entry& from);

/// Keeps weights, gradients and optimizer state in host memory, as FSDP's CPU offload does.
void set_fsdp_offload(Job& job, const runfile::Entry& from);

}  // namespace trainhost::framework_files
