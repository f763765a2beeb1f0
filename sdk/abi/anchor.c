/* A library whose functions name every struct of the plugin interface, so that abidiff sees their layouts: in
 * a plugin they travel behind const void *, where it sees nothing. Built by tests and never loaded. A struct
 * that is missing here is found by tests/sdk/abi. */
#include <trainhost/trainhost.h>

#define ANCHOR(type)                  \
  TH_EXPORT int anchor_##type(type*); \
  int anchor_##type(type* p) { return p != NULL; }

ANCHOR(th_config)
ANCHOR(th_counters)
ANCHOR(th_device)
ANCHOR(th_error)
ANCHOR(th_estimator)
ANCHOR(th_generate)
ANCHOR(th_host)
ANCHOR(th_mem)
ANCHOR(th_mem_sink)
ANCHOR(th_mem_summary)
ANCHOR(th_model)
ANCHOR(th_moments)
ANCHOR(th_op_record)
ANCHOR(th_op_sink)
ANCHOR(th_plugin)
ANCHOR(th_profile)
ANCHOR(th_profiler)
ANCHOR(th_run)
ANCHOR(th_step)
ANCHOR(th_step_out)
ANCHOR(th_tensor)
ANCHOR(th_tensor_sink)
ANCHOR(th_trainer)

const th_plugin* TH_ENTRY(void) { return NULL; }
