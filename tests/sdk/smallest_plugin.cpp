#include <trainhost/trainhost.hpp>
TH_MANIFEST(
    "id = 'acme-weights'\nversion = '1.0'\nkind = 'estimator'\nsummary = 'weights'\nfamilies = ['llama']\n");
struct Weights {
  static int match(const th_model& m, const th_run&) noexcept {
    return m.family && !std::strcmp(m.family, "llama");
  }
  static void estimate(const th_host&, const th_model& m, const th_run&, const th_profile*, th::Tree& tree) {
    tree.exact({"embedding", TH_TIER_HOST, TH_MEM_WEIGHTS, 0, "V*H*4"}, th::product({m.vocab, m.hidden, 4}));
    tree.note("Only the embedding is counted.");
  }
};
TH_PLUGIN("acme-weights", "1.0", th::estimator<Weights>())
