// See tensorboard.hpp. Messages and field numbers: event.proto, summary.proto and tensor.proto of
// TensorBoard, and api.proto and plugin_data.proto of its plugin hparams.
#include "core/training/tensorboard.hpp"

#include <fmt/format.h>

#include "core/base/error.hpp"
#include "core/base/text.hpp"
#include "core/model/tensors.hpp"

namespace trainhost::training {
namespace {

// Fields of Event, Summary and Summary.Value.
constexpr std::uint32_t kSummary = 5, kSessionLog = 7, kValue = 1, kTag = 1, kSimpleValue = 2, kTensor = 8,
                        kMetadata = 9;
constexpr std::uint64_t kMostUnwritten = 1 << 16;
constexpr std::chrono::seconds kMostDelay{5};

/// A value of a plugin of TensorBoard; SummaryMetadata{plugin_data = 1 {plugin_name = 1, content = 2}}.
ProtobufMessage plugin_value(std::string_view tag, std::string_view plugin, const ProtobufMessage& content) {
  ProtobufMessage data, metadata, value;
  data.text(1, plugin).message(2, content);
  metadata.message(1, data);
  value.text(kTag, tag).message(kMetadata, metadata);
  return value;
}

ProtobufMessage summary_of(const ProtobufMessage& value) {
  ProtobufMessage summary;
  summary.message(kValue, value);
  return summary;
}

/// google.protobuf.Value.
ProtobufMessage number_value(double number) { return std::move(ProtobufMessage().f64(2, number)); }
ProtobufMessage text_value(std::string_view text) { return std::move(ProtobufMessage().text(3, text)); }

/// What differs between runs that are compared: names are keys of the run file where there is one.
struct HyperParameter {
  std::string name;
  bool is_number;
  ProtobufMessage value;
};
std::vector<HyperParameter> hyper_parameters(const runfile::RunConfig& c) {
  std::vector<HyperParameter> all;
  const auto number = [&](const char* name, double v) { all.push_back({name, true, number_value(v)}); };
  const auto text = [&](const char* name, std::string_view v) {
    all.push_back({name, false, text_value(v)});
  };
  const RunSpec& r = c.run;
  number("model.parameters", static_cast<double>(count_parameters(c.model).total));
  number("data.seq_len", r.seq_len);
  number("train.steps", static_cast<double>(c.steps));
  number("train.micro_batch", r.micro_batch);
  number("train.grad_accum", r.accumulate);
  number("train.seed", static_cast<double>(r.seed));
  text("train.precision", c.precision);
  text("optimizer.name", name(r.optimizer));
  number("optimizer.lr", c.optimizer.lr);
  number("optimizer.min_lr", c.optimizer.min_lr);
  number("optimizer.warmup_steps", static_cast<double>(c.optimizer.warmup_steps));
  number("optimizer.weight_decay", r.weight_decay);
  number("optimizer.grad_clip", r.clip_norm);
  number("parallel.data", r.parallel.data);
  if (r.lora_rank) number("lora.rank", r.lora_rank), number("lora.alpha", c.lora.alpha);
  return all;
}

}  // namespace

TensorBoard::TensorBoard(const std::filesystem::path& folder, std::uint64_t first_step,
                         std::function<void(const std::string&)> warn)
    : warn_(std::move(warn)), written_(std::chrono::steady_clock::now()) {
  try {
    file_.emplace(folder);
  } catch (const Error& e) {
    warn_(fmt::format("{}; the run goes on without files for TensorBoard", e.what()));
  }
  restart(first_step + 1);
}

/// The record that a full disk has cut off is the last one; readers ignore it.
void TensorBoard::attempt(const std::function<void(EventFile&)>& write) {
  if (!file_) return;
  try {
    write(*file_);
    const auto now = std::chrono::steady_clock::now();
    if (file_->unwritten_bytes() < kMostUnwritten && now - written_ < kMostDelay) return;
    written_ = now;
    file_->flush();
  } catch (const Error& e) {
    file_.reset();
    warn_(fmt::format("{}; the run goes on without files for TensorBoard", e.what()));
  }
}

void TensorBoard::flush() {
  attempt([](EventFile& f) { f.flush(); });
}

/// SessionLog{status = 1: START = 1}: TensorBoard removes what it has read of this step and later ones.
void TensorBoard::restart(std::uint64_t step) {
  attempt([&](EventFile& f) { f.add(step, kSessionLog, ProtobufMessage().integer(1, 1)); });
}

void TensorBoard::rollback(std::uint64_t to) { restart(to + 1); }

void TensorBoard::scalars(std::uint64_t step, const Scalars& values) {
  ProtobufMessage summary;
  for (const auto& [tag, v] : values)
    summary.message(kValue, ProtobufMessage().text(kTag, tag).f32(kSimpleValue, static_cast<float>(v)));
  attempt([&](EventFile& f) { f.add(step, kSummary, summary); });
}

void TensorBoard::step(const StepProgress& p, Scalars layer_norms) {
  if (!file_) return;
  Scalars values = {{"loss/train", p.loss},
                    {"optimizer/lr", p.lr},
                    {"optimizer/grad_norm", p.grad_norm},
                    {"speed/tokens_per_s", p.tokens_per_s},
                    {"memory/in_use_bytes", static_cast<double>(p.memory_bytes)}};
  if (p.mfu) values.emplace_back("speed/mfu", *p.mfu);
  if (p.ranks) values.emplace_back("speed/wait_share", p.ranks->wait_share);
  for (auto& norm : layer_norms) values.push_back(std::move(norm));
  scalars(p.step, values);
}

void TensorBoard::validation(std::uint64_t step, double loss) {
  scalars(step, {{"loss/validation", loss}});
  flush();
}

/// TensorProto{dtype = 1: DT_STRING = 7, tensor_shape = 2 {dim = 2 {size = 1: 1}}, string_val = 8}. The
/// plugin shows Markdown, in which four spaces begin a line of code.
void TensorBoard::text(std::uint64_t step, std::string_view tag, std::string_view text) {
  std::string markdown = "    ";
  for (const char c : text) markdown += c == '\n' ? std::string("\n    ") : std::string(1, c);
  ProtobufMessage shape, tensor;
  shape.message(2, ProtobufMessage().integer(1, 1));
  tensor.integer(1, 7).message(2, shape).text(8, markdown);
  const ProtobufMessage value =
      std::move(plugin_value(fmt::format("{}/text_summary", tag), "text", {}).message(kTensor, tensor));
  attempt([&](EventFile& f) { f.add(step, kSummary, summary_of(value)); });
}

/// HParamsPluginData: experiment = 2 {hparam_infos = 4, metric_infos = 5}, session_start_info = 3 {hparams =
/// 1: a map, start_time_secs = 5}.
void TensorBoard::hyperparameters(const runfile::RunConfig& c) {
  ProtobufMessage experiment, start;
  for (const HyperParameter& h : hyper_parameters(c)) {
    experiment.message(4, ProtobufMessage().text(1, h.name).integer(4, h.is_number ? 3 : 1));
    start.message(1, ProtobufMessage().text(1, h.name).message(2, h.value));
  }
  for (const char* tag : {"loss/train", "loss/validation", "speed/tokens_per_s"})
    experiment.message(5, ProtobufMessage().message(1, ProtobufMessage().text(2, tag)));
  start.f64(5, std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count());
  const auto add = [&](const char* tag, std::uint32_t field, const ProtobufMessage& content) {
    const ProtobufMessage value = plugin_value(tag, "hparams", ProtobufMessage().message(field, content));
    attempt([&](EventFile& f) { f.add(0, kSummary, summary_of(value)); });
  };
  add("_hparams_/experiment", 2, experiment);
  add("_hparams_/session_start_info", 3, start);
  flush();
}

/// SessionEndInfo{status = 1: SUCCESS = 1, FAILURE = 2; end_time_secs = 2}.
void TensorBoard::end(bool finished) {
  ProtobufMessage info;
  info.integer(1, finished ? 1 : 2)
      .f64(2, std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count());
  const ProtobufMessage value =
      plugin_value("_hparams_/session_end_info", "hparams", ProtobufMessage().message(4, info));
  attempt([&](EventFile& f) { f.add(0, kSummary, summary_of(value)); });
  flush();
}

}  // namespace trainhost::training
