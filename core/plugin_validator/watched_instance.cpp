// See watched_instance.hpp. Every call goes through WatchedPlugin::call(), which guards the error, and
// through InstanceCalls, which enforces [inst] for the checks. Structs that the plugin reads are compared
// after the call; structs that it writes lie between guard bytes.
#include "core/plugin_validator/watched_instance.hpp"

#include <algorithm>
#include <cstring>
#include <random>

#include "core/base/text.hpp"

namespace trainhost::plugin_validator {

// -100 is the only target below 0.
std::uint64_t Batch::counted() const {
  return static_cast<std::uint64_t>(
      std::count_if(targets.begin(), targets.end(), [](std::int32_t t) { return t >= 0; }));
}

/// By mt19937_64 and remainder, which give the same ids on every machine. The last target of a sequence has
/// no next token.
Batch make_batch(const Sample& s, std::uint64_t seed, std::uint32_t sequences) {
  Batch b;
  b.sequences = sequences, b.seq = s.run.seq_len;
  std::mt19937_64 random(seed);
  const std::size_t n = std::size_t{sequences} * s.run.seq_len;
  for (std::size_t i = 0; i < n; ++i) {
    b.tokens.push_back(static_cast<std::int32_t>(random() % s.model.vocab));
    b.targets.push_back((i + 1) % s.run.seq_len == 0 ? -100
                                                     : static_cast<std::int32_t>(random() % s.model.vocab));
  }
  return b;
}

Batch make_batch(const Sample& s, std::uint64_t seed) {
  return make_batch(s, seed, s.run.micro_batch * s.run.accumulate);
}

CallResult WatchedInstance::create(std::int32_t device, bool no_error) {
  th_model model = sample_.c_model();
  th_run run = sample_.c_run();
  CallResult a = plugin_.call(
      [&](th_error* e) { return table_.create(plugin_.host().get(), device, &model, &run, &instance_, e); },
      no_error);
  // The plugin may read model and run only during create(); they are on this stack.
  std::memset(&model, 0xDB, sizeof model),
      std::memset(&run, 0xDB, sizeof run);  // a plugin that kept the pointer reads invalid values
  calls_.reopen();
  // While an instance exists its threads may call the host, also between calls.
  if (instance_) callbacks_allowed_.emplace(plugin_.host());
  return a;
}

CallResult WatchedInstance::call(const char* name,
                                 const std::function<th_status(th_trainer_inst*, th_error*)>& f) {
  plugin::InstanceCalls::Scope scope(calls_, "under test", name);
  return plugin_.call([&](th_error* e) { return f(instance_, e); });
}

CallResult WatchedInstance::init(std::uint64_t seed) {
  return call("init", [&](auto* i, auto* e) { return table_.init(i, seed, e); });
}

CallResult WatchedInstance::load(std::uint32_t scope, const th_tensor& t) {
  return call("load", [&](auto* i, auto* e) { return table_.load(i, scope, &t, e); });
}

// A copy of name and data: the plugin gets memory that ends with this call, so a pointer that it keeps is
// invalid afterwards.
CallResult WatchedInstance::load(std::uint32_t scope, const ReceivedPiece& p) {
  const std::string name = p.name.value_or("");
  std::vector<unsigned char> bytes = p.bytes;
  th_tensor t = p.head;
  t.name = name.c_str(), t.data = bytes.data();
  return load(scope, t);
}

StepCallResult WatchedInstance::step_with(const th_step& s) {
  StepCallResult a;
  Guarded<th_step_out> out;
  const th_step before = s;
  static_cast<CallResult&>(a) =
      call("step", [&](auto* i, auto* e) { return table_.step(i, &s, out.get(), e); });
  if (!out.margins_unchanged())
    plugin_.record().breach(Rule::kOutPastSize, "step() wrote outside th_step_out's struct_size");
  if (std::memcmp(&before, &s, sizeof s) != 0)
    plugin_.record().breach(Rule::kInputChanged, "step() wrote into th_step");
  // After the checks, so that margins written by accident are reported even if the step failed.
  a.out = *out;
  return a;
}

namespace {

th_step step_of(const Batch& b, double lr, std::uint64_t index, std::uint32_t flags) {
  th_step s{};
  s.struct_size = sizeof s;
  s.flags = flags;
  s.batch = b.sequences, s.seq = b.seq;
  s.tokens = b.tokens.data(), s.targets = b.targets.data();
  s.lr = lr, s.step_index = index;
  return s;
}

}  // namespace

StepCallResult WatchedInstance::step(const Batch& b, double lr, std::uint64_t index) {
  return step_with(step_of(b, lr, index, 0));
}
StepCallResult WatchedInstance::evaluate(const Batch& b) {
  return step_with(step_of(b, 0, 0, TH_STEP_EVALUATE));
}

SaveResult WatchedInstance::save(std::uint32_t scope, std::size_t fail_from) {
  // Kept by WatchedPlugin: a late call of the sink finds an object that knows it is closed.
  TensorSink& sink = plugin_.tensor_sink();
  sink.fail_from(fail_from, TH_E_CANCELLED);
  SaveResult a;
  static_cast<CallResult&>(a) =
      call("save", [&](auto* i, auto* e) { return table_.save(i, scope, sink.get(), e); });
  sink.close();
  a.pieces = sink.pieces();
  a.calls_after_failure = sink.calls_after_failure();
  return a;
}

CallResult WatchedInstance::counters(th_counters& out) {
  if (!table_.counters) return {};
  Guarded<th_counters> c;
  CallResult a = call("counters", [&](auto* i, auto* e) { return table_.counters(i, c.get(), e); });
  if (!c.margins_unchanged())
    plugin_.record().breach(Rule::kOutPastSize, "counters() wrote outside th_counters' struct_size");
  out = *c;
  return a;
}

void WatchedInstance::destroy() {
  // Twice is allowed: checks call it, and so does the destructor.
  if (!instance_) return;
  // No call may be running; from here on InstanceCalls refuses further ones.
  calls_.close();
  // destroy() itself may call the host; the permission of the instance ends after it.
  CheckingHost::CallbacksAllowed allowed(plugin_.host());
  table_.destroy(instance_);
  instance_ = nullptr;
  callbacks_allowed_.reset();
}

void WatchedInstance::create_and_init(std::uint64_t seed) {
  CallResult a = create();
  expect(a.ok() && instance_, "create() on a tiny model returned {}", a.text());
  a = init(seed);
  expect(a.ok(), "init() on a tiny model returned {}", a.text());
}

/// All values of a piece come from the plugin: each is checked before it is used as a size.
Tensors assembled(const std::vector<ReceivedPiece>& pieces) {
  Tensors out;
  std::map<std::string, std::vector<bool>> have;
  for (const ReceivedPiece& p : pieces) {
    expect(p.name && !p.name->empty(), "save() sent a tensor without a name");
    const std::string name = escaped(*p.name);
    expect(valid_utf8(*p.name), "save() sent a tensor whose name is not UTF-8");
    expect(p.head.rank >= 1 && p.head.rank <= 2, "save() sent {} the rank {}; 1 and 2 exist", name,
           p.head.rank);
    const std::size_t each = element_bytes(p.head.dtype);
    expect(each > 0, "save() sent {} the unknown type {}", name, p.head.dtype);
    const std::uint64_t all = p.head.dim[0] * (p.head.rank == 2 ? p.head.dim[1] : 1);
    // 2^28 elements: far above the tiny models, and small enough to allocate.
    expect(all > 0 && all < (1u << 28), "save() sent {} {} elements", name, all);
    expect(p.head.first <= all && p.head.count <= all - p.head.first,
           "save() sent elements {} to {} of {}, which has {}", p.head.first, p.head.first + p.head.count,
           name, all);
    expect(p.bytes.size() == p.head.count * each, "save() sent a piece of {} without data", name);
    auto& bytes = out[*p.name];
    auto& seen = have[*p.name];
    bytes.resize(all * each), seen.resize(all);
    std::memcpy(bytes.data() + p.head.first * each, p.bytes.data(), p.bytes.size());
    // By element, so that overlapping pieces are found as well as gaps.
    const auto first = seen.begin() + static_cast<std::ptrdiff_t>(p.head.first),
               end = first + static_cast<std::ptrdiff_t>(p.head.count), again = std::find(first, end, true);
    expect(again == end, "save() sent element {} of {} twice", again - seen.begin(), name);
    std::fill(first, end, true);
  }
  for (const auto& [name, seen] : have) {
    const auto missing = std::find(seen.begin(), seen.end(), false);
    expect(missing == seen.end(), "save() left out element {} of {}", missing - seen.begin(), escaped(name));
  }
  return out;
}

}  // namespace trainhost::plugin_validator
