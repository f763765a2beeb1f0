// See chrome_trace.hpp. fmt formats numbers, the JSON library quotes texts. A slice precedes the slices
// inside it.
#include "core/training/chrome_trace.hpp"
#include "core/base/json_value.hpp"

#include <fmt/format.h>

#include <utility>

namespace trainhost::training {
namespace {

std::string in_quotes(std::string_view text) { return json_string(text); }

// Bytes or FLOPs per nanosecond are GB/s or GFLOP/s.
double per_ns(std::uint64_t amount, std::uint64_t ns) {
  return ns ? static_cast<double>(amount) / static_cast<double>(ns) : 0;
}

}  // namespace

ChromeTrace::ChromeTrace(const std::string& process, const std::string& track)
    : ChromeTrace(process, track, 0) {}

/// Viewers show processes in the order of their numbers, which begin with 1.
ChromeTrace::ChromeTrace(const std::string& process, const std::string& track, std::uint32_t rank)
    : pid_(rank + 1) {
  text_ = (rank == 0 ? "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n" : ",\n") +
          metadata("process_name", "name", in_quotes(process)) + ",\n" +
          metadata("thread_name", "name", in_quotes(track)) + ",\n" +
          metadata("thread_sort_index", "sort_index", "1");
}

std::string ChromeTrace::metadata(const char* what, const char* key, const std::string& value) const {
  return fmt::format(R"({{"ph":"M","pid":{},"tid":1,"name":"{}","args":{{"{}":{}}}}})", pid_, what, key,
                     value);
}

std::string ChromeTrace::us(std::uint64_t at_ns) const {
  // Relative to the first step: viewers lose precision with large times. Microseconds with three decimals.
  const std::uint64_t ns = at_ns > origin_ns_ ? at_ns - origin_ns_ : 0;
  return fmt::format("{}.{:03}", ns / 1000, ns % 1000);
}

void ChromeTrace::slice(std::string& to, const std::string& name, const char* category,
                        std::uint64_t start_ns, std::uint64_t end_ns, const std::string& args) {
  const std::uint64_t ns = end_ns - start_ns;
  to += fmt::format(
      ",\n{{\"ph\":\"X\",\"pid\":{},\"tid\":1,\"name\":{},\"cat\":\"{}\",\"ts\":{},\"dur\":{}.{:03},\"args\":"
      "{"
      "{{}}}}}",
      pid_, name, category, us(start_ns), ns / 1000, ns % 1000, args);
}

void ChromeTrace::counter(std::string& to, const char* name, std::uint64_t at_ns, const std::string& args) {
  to += fmt::format(",\n{{\"ph\":\"C\",\"pid\":{},\"tid\":1,\"name\":\"{}\",\"ts\":{},\"args\":{{{}}}}}",
                    pid_, name, us(at_ns), args);
}

void ChromeTrace::begin_step(std::uint64_t number, std::uint64_t start_ns, std::uint64_t end_ns) {
  if (!std::exchange(has_origin_, true)) origin_ns_ = start_ns;
  slice(text_, in_quotes(fmt::format("step {}", number)), "step", start_ns, end_ns,
        fmt::format("\"step\":{}", number));
}

/// Operations of one phase are collected first, since the slice of the phase must precede them and its end is
/// not known before.
void ChromeTrace::op(const plugin::OpTiming& t) {
  if (!phase_ops_.empty() && (t.phase != phase_ || t.micro != micro_)) flush_phase();
  const std::uint64_t end_ns = t.start_ns + t.duration_ns;
  if (phase_ops_.empty()) phase_ = t.phase, micro_ = t.micro, phase_start_ns_ = t.start_ns;
  phase_end_ns_ = end_ns;
  // Arguments appear in the viewer when a slice is selected.
  std::string args = fmt::format("\"phase\":\"{}\",\"micro\":{},\"layer\":{},\"bytes\":{},\"GB/s\":{:.2f}",
                                 name(t.phase), t.micro, t.layer, t.bytes, per_ns(t.bytes, t.duration_ns));
  if (t.flops)
    args += fmt::format(",\"flops\":{},\"GFLOP/s\":{:.2f}", t.flops, per_ns(t.flops, t.duration_ns));
  if (t.live_bytes) args += fmt::format(",\"live_bytes\":{}", t.live_bytes);
  slice(phase_ops_, in_quotes(t.name), "operation", t.start_ns, end_ns, args);
  // A counter changes only when its value does.
  if (t.live_bytes && std::exchange(live_bytes_, t.live_bytes) != t.live_bytes)
    counter(phase_ops_, "planned live bytes", t.start_ns, fmt::format("\"bytes\":{}", t.live_bytes));
  ++ops_;
}

void ChromeTrace::flush_phase() {
  if (phase_ops_.empty()) return;
  const std::string title = phase_ == kUpdate ? std::string(name(phase_))
                                              : fmt::format("{} of micro-batch {}", name(phase_), micro_);
  slice(text_, in_quotes(title), "phase", phase_start_ns_, phase_end_ns_,
        fmt::format("\"micro\":{}", micro_));
  text_ += phase_ops_;
  phase_ops_.clear();
}

void ChromeTrace::memory(std::uint64_t at_ns, std::uint64_t held_bytes, std::uint64_t resident_bytes) {
  counter(text_, "held bytes (ledger)", at_ns, fmt::format("\"bytes\":{}", held_bytes));
  counter(text_, "resident bytes (process)", at_ns, fmt::format("\"bytes\":{}", resident_bytes));
}

std::string ChromeTrace::take() { return std::exchange(text_, {}); }

}  // namespace trainhost::training
