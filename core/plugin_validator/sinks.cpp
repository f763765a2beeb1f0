// See sinks.hpp. Sinks are called by the plugin, possibly late and from foreign threads, and must survive
// both: they have a lock, throw nothing, and outlive the call (WatchedPlugin keeps them). They store what was
// sent, without judging it; checks do that.
#include "core/plugin_validator/sinks.hpp"

#include <algorithm>
#include <cstring>
#include <set>

#include "core/plugin_validator/validator_check.hpp"

namespace trainhost::plugin_validator {
namespace {

// 64 KiB: a longer text is cut, and no report has one.
constexpr std::size_t kMaxText = 1 << 16;

/// Records a call from another thread, or after the plugin's function had returned. Returns false in the
/// latter case: then the sink stores nothing.
bool check_time_and_thread(BreachRecord& record, const std::atomic<bool>& open, std::thread::id caller,
                           const char* what) {
  if (!open) {
    record.breach(Rule::kSinkAfterReturn,
                  fmt::format("{} was called after the plugin's function had returned", what));
    return false;
  }
  if (std::this_thread::get_id() != caller)
    record.breach(Rule::kSinkThread,
                  fmt::format("{} was called from a thread other than that of the call", what));
  return true;
}

}  // namespace

std::optional<std::string> copied(const char* s) {
  if (!s) return std::nullopt;
  return std::string(s, ::strnlen(s, kMaxText));
}

std::size_t element_bytes(std::uint32_t dtype) {
  switch (dtype) {
    case TH_DT_F32:
    case TH_DT_I32:
      return 4;
    case TH_DT_F16:
    case TH_DT_BF16:
      return 2;
    case TH_DT_U8:
      return 1;
    case TH_DT_F64:
      return 8;
    default:
      return 0;
  }
}

ReportSink::ReportSink(BreachRecord& record, std::thread::id caller) : record_(record), caller_(caller) {
  sink_.struct_size = sizeof sink_;
  sink_.self = this;
  sink_.node = &on_node;
  sink_.note = &on_note;
}

bool ReportSink::judge(const char* what) { return check_time_and_thread(record_, open_, caller_, what); }

th_status ReportSink::on_node(th_mem_sink* sink, const th_mem* m) noexcept try {
  auto& self = *static_cast<ReportSink*>(sink->self);
  if (!self.judge("the report sink's node()")) return TH_E_STATE;
  std::unique_lock lock(self.mutex_);
  auto& nodes = self.report_.nodes;
  // Counted from 1, like fail_from. calls_after_failure_ includes the call that fails first.
  if (self.fail_from_ != 0 && nodes.size() + 1 >= self.fail_from_) {
    ++self.calls_after_failure_;
    return self.fail_code_;
  }
  // Ends an endless loop of the plugin before memory does.
  if (nodes.size() >= kMostNodes) {
    self.report_.too_many = true;
    return TH_E_ARG;
  }
  ReceivedNode n;
  if (m) {
    // At most what both sides know; the rest stays 0.
    std::memcpy(&n.mem, m, std::min<std::size_t>(m->struct_size, sizeof n.mem));
    if (TH_HAS(m, th_mem, name)) n.name = copied(m->name);
    if (TH_HAS(m, th_mem, formula)) n.formula = copied(m->formula);
  }
  nodes.push_back(std::move(n));
  const bool among_first = nodes.size() <= kMeanwhileNodes;
  lock.unlock();
  if (self.meanwhile_ && among_first) self.meanwhile_();
  return TH_OK;
} catch (...) {
  return TH_E_HOST_OOM;
}

th_status ReportSink::on_note(th_mem_sink* sink, const char* text) noexcept try {
  auto& self = *static_cast<ReportSink*>(sink->self);
  if (!self.judge("the report sink's note()")) return TH_E_STATE;
  std::lock_guard lock(self.mutex_);
  // Notes have no position of their own: they fail from the first failed node on.
  if (self.calls_after_failure_ > 0) {
    ++self.calls_after_failure_;
    return self.fail_code_;
  }
  if (self.report_.notes.size() < kMostNodes) self.report_.notes.push_back(copied(text));
  return TH_OK;
} catch (...) {
  return TH_E_HOST_OOM;
}

TensorSink::TensorSink(BreachRecord& record, std::thread::id caller) : record_(record), caller_(caller) {
  sink_.struct_size = sizeof sink_;
  sink_.self = this;
  sink_.tensor = &on_tensor;
}

th_status TensorSink::on_tensor(th_tensor_sink* sink, const th_tensor* t) noexcept try {
  auto& self = *static_cast<TensorSink*>(sink->self);
  if (!check_time_and_thread(self.record_, self.open_, self.caller_, "the tensor sink")) return TH_E_STATE;
  if (self.fail_from_ != 0 && ++self.count_ >= self.fail_from_) {
    ++self.calls_after_failure_;
    return self.fail_code_;
  }
  ReceivedPiece p;
  if (t) {
    // All fields of th_tensor exist since 1.0.
    p.head = *t;
    p.name = copied(t->name);
    // The count is the plugin's: bounded before it is used as a size. assembled() reports pieces without
    // bytes.
    if (const std::size_t each = element_bytes(t->dtype); t->data && each && t->count < (1u << 28)) {
      const auto* data = static_cast<const unsigned char*>(t->data);
      p.bytes.assign(data, data + t->count * each);
    }
  }
  self.pieces_.push_back(std::move(p));
  return TH_OK;
} catch (...) {
  return TH_E_HOST_OOM;
}

/// All that must be equal for equal requests: no addresses, no formulas (text for people).
std::string report_text(const ReceivedReport& r) {
  std::string out = fmt::format("digest {} claim {}\n", r.summary.digest, r.summary.claim);
  for (const ReceivedNode& n : r.nodes)
    out += fmt::format("{} {} {} {} {} {} {} {} {} {} {}\n", n.mem.id, n.mem.parent, n.mem.tier,
                       n.mem.component, n.mem.claim, n.mem.phases, n.mem.bytes, n.mem.lo, n.mem.hi,
                       n.mem.bytes_at_peak, n.name.value_or("-"));
  for (const auto& note : r.notes) out += note.value_or("-") + "\n";
  return out;
}

std::vector<th_mem> entries_of(const ReceivedReport& r) {
  std::set<std::uint32_t> parents;
  // A node is an entry if no other names it as parent; 0 is the root and no node.
  for (const ReceivedNode& n : r.nodes) parents.insert(n.mem.parent);
  std::vector<th_mem> entries;
  for (const ReceivedNode& n : r.nodes)
    if (!parents.count(n.mem.id)) entries.push_back(n.mem);
  return entries;
}

/// A double, because a wrong report may overflow 64 bits.
double sum_of_entries(const ReceivedReport& r) {
  double sum = 0;
  for (const th_mem& m : entries_of(r)) sum += static_cast<double>(m.bytes);
  return sum;
}

}  // namespace trainhost::plugin_validator
