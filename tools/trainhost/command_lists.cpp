// trainhost models | devices | init: the built-in facts, and a run file to begin with.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/base/text.hpp"
#include "core/checkpoint/store.hpp"
#include "core/model/architecture.hpp"
#include "core/model/presets.hpp"
#include "core/report/text_table.hpp"
#include "tools/trainhost/options.hpp"

namespace trainhost::cli {
namespace {

using Json = nlohmann::ordered_json;

/// Models that can be trained and those that can be planned alone, by name.
std::vector<const ModelSpec*> everything() {
  std::vector<const ModelSpec*> all;
  for (const ModelSpec& m : model_presets()) all.push_back(&m);
  for (const ModelSpec& m : model::planned_presets()) all.push_back(&m);
  std::ranges::sort(all, {}, [](const ModelSpec* m) -> const std::string& { return m->name; });
  return all;
}

class Models : public Command {
 public:
  void add(CLI::App& root) override {
    app_ = root.add_subcommand("models", "the built-in model presets");
    add_options(*app_, o_, 0);
    app_->footer("Example:\n  trainhost models --json");
  }
  CLI::App* app() const override { return app_; }
  Exit run() override {
    Json all = Json::array();
    report::Table t("llrrlrrrrrrr");
    t.row({"name", "family", "parameters", "active", "", "L", "H", "A", "K", "D", "I", "V"});
    t.rule();
    for (const ModelSpec* m : everything()) {
      const model::Counts n = model::count(model::from_model(*m));
      const bool trained = trainable_family(m->family);
      all.push_back({{"name", m->name},
                     {"family", m->family},
                     {"parameters", n.total},
                     {"active_parameters", n.active},
                     {"trainable", trained},
                     {"num_hidden_layers", m->layers},
                     {"hidden_size", m->hidden},
                     {"num_attention_heads", m->heads},
                     {"num_key_value_heads", m->kv_heads},
                     {"head_dim", m->head_dim},
                     {"intermediate_size", m->intermediate},
                     {"vocab_size", m->vocab}});
      t.row({m->name, m->family, format_count(n.total), n.active == n.total ? "" : format_count(n.active),
             trained ? "trains" : "plans", std::to_string(m->layers), std::to_string(m->hidden),
             std::to_string(m->heads), std::to_string(m->kv_heads), std::to_string(m->head_dim),
             std::to_string(m->intermediate), std::to_string(m->vocab)});
    }
    fmt::print("{}", o_.json ? Json{{"models", all}}.dump(2) + "\n" : t.str());
    return Exit::kDone;
  }

 private:
  CLI::App* app_ = nullptr;
  Options o_;
};

class Devices : public Command {
 public:
  void add(CLI::App& root) override {
    app_ = root.add_subcommand("devices", "the built-in device presets");
    add_options(*app_, o_, 0);
    app_->footer("Example:\n  trainhost plan --model=llama-3-8b --device=h100-80gb");
  }
  CLI::App* app() const override { return app_; }
  Exit run() override {
    Json all = Json::array();
    report::Table t("llrrrrrrrrrr");
    t.row({"name", "device", "memory", "GB/s", "bf16 TFLOP/s", "fp8", "tf32", "fp32", "link GB/s", "node",
           "network GB/s", "host GB/s"});
    t.rule();
    auto number = [](double x) { return x == 0 ? std::string("-") : fmt::format("{:g}", x); };
    for (const DevicePreset& d : device_presets()) {
      all.push_back({{"name", d.name},
                     {"vendor", d.vendor},
                     {"full_name", d.full_name},
                     {"memory_bytes", d.memory_bytes},
                     {"memory_gbs", d.memory_gbs},
                     {"bf16_tflops", d.bf16_tflops},
                     {"tf32_tflops", d.tf32_tflops},
                     {"fp32_tflops", d.fp32_tflops},
                     {"fp16_tflops", d.fp16_tflops},
                     {"fp8_tflops", d.fp8_tflops},
                     {"link_gbs", d.link_gbs},
                     {"node", d.node},
                     {"network_gbs", d.network_gbs},
                     {"host_gbs", d.host_gbs}});
      t.row({d.name, d.full_name, format_bytes(d.memory_bytes), number(d.memory_gbs), number(d.bf16_tflops),
             number(d.fp8_tflops), number(d.tf32_tflops), number(d.fp32_tflops), number(d.link_gbs),
             std::to_string(d.node), number(d.network_gbs), number(d.host_gbs)});
    }
    fmt::print("{}", o_.json ? Json{{"devices", all}}.dump(2) + "\n" : t.str());
    return Exit::kDone;
  }

 private:
  CLI::App* app_ = nullptr;
  Options o_;
};

class Init : public Command {
 public:
  void add(CLI::App& root) override {
    app_ = root.add_subcommand("init", "write a commented run file");
    app_->add_option("FILE", file_, "where to; standard output when left out")->option_text("FILE");
    app_->add_flag("--force", force_, "overwrite FILE");
    app_->footer("Example:\n  trainhost init run.toml");
  }
  CLI::App* app() const override { return app_; }
  Exit run() override {
    std::string text = runfile::init_text();
    if (file_.empty() || file_ == "-") {
      fmt::print("{}", text);
      return Exit::kDone;
    }
    if (std::filesystem::exists(file_) && !force_)
      throw usage_error(fmt::format("{} exists already", escaped(file_)), "--force overwrites it");
    checkpoint::write_file_atomically(std::filesystem::absolute(file_), text);
    fmt::print(stderr, "wrote {}; train it with: trainhost {}\n", escaped(file_), escaped(file_));
    return Exit::kDone;
  }

 private:
  CLI::App* app_ = nullptr;
  std::string file_;
  bool force_ = false;
};

}  // namespace

std::unique_ptr<Command> models_command() { return std::make_unique<Models>(); }
std::unique_ptr<Command> devices_command() { return std::make_unique<Devices>(); }
std::unique_ptr<Command> init_command() { return std::make_unique<Init>(); }

}  // namespace trainhost::cli
