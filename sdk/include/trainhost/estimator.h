/* trainhost plugin ABI: interface "trainhost.estimator/1": memory of a run, without running it. */
#ifndef TRAINHOST_ESTIMATOR_H
#define TRAINHOST_ESTIMATOR_H
#include "trainhost/host.h"
#include "trainhost/memory.h"
#include "trainhost/model.h"

#define TH_ESTIMATOR_ID "trainhost.estimator/1"

/* Both functions are mandatory. */
typedef struct th_estimator {
  uint32_t struct_size, reserved;
  /* Returns how well the estimator fits this model and run: 0 = does not apply, 1..1000 = better with larger
   * values; other values are clamped to this range. No I/O, < 1 ms. [any] {started} */
  int32_t (*match)(const th_model*, const th_run*);
  /* Sends its entries to the sink and fills the summary; equal arguments give equal reports. profile: traits
   * of the trainer that would execute the run; NULL if there is none. TH_E_UNSUPPORTED: the estimator does
   * not cover this run. [any] {started} */
  th_status (*estimate)(const th_host*, const th_model*, const th_run*, const th_profile*, th_mem_sink*,
                        th_mem_summary*, th_error*);
} th_estimator;
#endif
