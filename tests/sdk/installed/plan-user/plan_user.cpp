// Counts the weights of a model with the host's formula, after converting the C struct. It links only the
// installed archive.
#include <trainhost/trainhost.hpp>

#include "core/abi/convert_structs.hpp"
#include "core/model/tensors.hpp"

TH_MANIFEST("id = 'plan-user'\nversion = '1'\nkind = 'estimator'\nfamilies = ['llama']\n");
struct PlanUser {
  static int match(const th_model&, const th_run&) noexcept { return 1; }
  static void estimate(const th_host&, const th_model& m, const th_run&, const th_profile*, th::Tree& tree) {
    const trainhost::ModelSpec model = trainhost::abi::from_c(m);
    tree.exact({"weights", TH_TIER_HOST, TH_MEM_WEIGHTS, 0, "P*4"},
               trainhost::count_parameters(model).total * 4);
  }
};
TH_PLUGIN("plan-user", "1", th::estimator<PlanUser>())
