/* trainhost plugin ABI: interface "trainhost.estimator/1": what a run takes, without running it. */
#ifndef TRAINHOST_ESTIMATOR_H
#define TRAINHOST_ESTIMATOR_H
#include "trainhost/host.h"
#include "trainhost/memory.h"
#include "trainhost/model.h"

#define TH_ESTIMATOR_ID "trainhost.estimator/1"

/* Both functions are mandatory. */
typedef struct th_estimator {
  uint32_t struct_size, reserved;
  /* 0 = does not apply, else 1..1000: how closely it fits this family and run; more is taken as 1000, less as
   * 0. No I/O, < 1 ms. [any] {started} */
  int32_t (*match)(const th_model*, const th_run*);
  /* Sends its leaves to the sink and fills the summary; the same arguments give the same report. profile: of
   * the trainer that would run it; NULL when there is none. TH_E_UNSUPPORTED: it cannot count this run. [any]
   * {started} */
  th_status (*estimate)(const th_host*, const th_model*, const th_run*, const th_profile*, th_mem_sink*,
                        th_mem_summary*, th_error*);
} th_estimator;
#endif
