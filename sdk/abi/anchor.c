/* A library with one function per struct of the plugin interface, so that abidiff sees their layouts; plugins
 * pass tables as const void *, whose type abidiff cannot see. Tests build it and never load it. tests/sdk/abi
 * fails if a struct is missing here. */
#include <trainhost/trainhost.h>

#define ANCHOR(type)                  \
  TH_EXPORT int anchor_##type(type*); \
  int anchor_##type(type* p) { return p != NULL; }

ANCHOR(th_collective)
ANCHOR(th_communicator)
ANCHOR(th_config)
ANCHOR(th_counters)
ANCHOR(th_device)
ANCHOR(th_error)
ANCHOR(th_estimator)
ANCHOR(th_generate)
ANCHOR(th_host)
ANCHOR(th_launch)
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
ANCHOR(th_ranks)
ANCHOR(th_run)
ANCHOR(th_step)
ANCHOR(th_step_out)
ANCHOR(th_tensor)
ANCHOR(th_tensor_sink)
ANCHOR(th_trainer)

const th_plugin* TH_ENTRY(void) { return NULL; }
