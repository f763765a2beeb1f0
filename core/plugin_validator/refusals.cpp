// See refusals.hpp.
#include "core/plugin_validator/refusals.hpp"

#include <set>

namespace trainhost::plugin_validator {

void for_unknown_words(const Sample& s,
                       const std::function<void(const Sample&, const std::string& what)>& visit) {
  const auto with = [&](const char* what, auto change) {
    Sample wrong = s;
    change(wrong);
    visit(wrong, what);
  };
  with("optimizer 99", [](Sample& w) { w.run.optimizer = static_cast<Optimizer>(99); });
  with("mode 99", [](Sample& w) { w.run.mode = static_cast<RunMode>(99); });
  with("dt_weight 99", [](Sample& w) { w.run.weight = static_cast<DType>(99); });
  with("recompute 99", [](Sample& w) { w.run.recompute = static_cast<Recompute>(99); });
}

void for_degenerate(const Sample& s,
                    const std::function<void(const Sample&, const std::string& what)>& visit) {
  const auto with = [&](const char* what, auto change) {
    Sample wrong = s;
    change(wrong);
    write_config(wrong.model);
    visit(wrong, what);
  };
  with("0 layers", [](Sample& w) { w.model.layers = 0; });
  with("hidden 0", [](Sample& w) { w.model.hidden = 0; });
  with("vocab 0", [](Sample& w) { w.model.vocab = 0; });
  with("0 heads", [](Sample& w) { w.model.heads = 0, w.model.kv_heads = 0; });
  with("seq_len 0", [](Sample& w) { w.run.seq_len = 0; });
}

std::string printed(const SeenReport& r) {
  std::string out = fmt::format("digest {} claim {}\n", r.summary.digest, r.summary.claim);
  for (const SeenNode& n : r.nodes)
    out += fmt::format("{} {} {} {} {} {} {} {} {} {} {}\n", n.mem.id, n.mem.parent, n.mem.tier,
                       n.mem.component, n.mem.claim, n.mem.phases, n.mem.bytes, n.mem.lo, n.mem.hi,
                       n.mem.bytes_at_peak, n.name.value_or("-"));
  for (const auto& note : r.notes) out += note.value_or("-") + "\n";
  return out;
}

double sum_of_leaves(const SeenReport& r) {
  std::set<std::uint32_t> parents;
  for (const SeenNode& n : r.nodes) parents.insert(n.mem.parent);
  double sum = 0;
  for (const SeenNode& n : r.nodes)
    if (!parents.count(n.mem.id)) sum += static_cast<double>(n.mem.bytes);
  return sum;
}

}  // namespace trainhost::plugin_validator
