/* trainhost plugin ABI: interface "trainhost.profiler/1": what each operation of a step took. Optional: a
 * trainer that lacks it trains all the same and cannot be profiled. Not to be confused with th_profile, a
 * trainer's choices. */
#ifndef TRAINHOST_PROFILER_H
#define TRAINHOST_PROFILER_H
#include "trainhost/trainer.h"

#define TH_PROFILER_ID "trainhost.profiler/1"

/* Moments of a step at which the host looks at memory. */
#define TH_BEFORE_FORWARD 1u /* of micro-batch `micro` */
#define TH_AFTER_FORWARD 2u
#define TH_AFTER_BACKWARD 3u
#define TH_AFTER_UPDATE 4u

/* The host's; outlives start() until stop(). reached() is called inside step(), between operations, by the
 * thread that step() was called on; it takes a few microseconds. micro: of the update, from 0. live_bytes:
 * tensor bytes that the trainer's plan keeps across this moment; 0 = not known. */
typedef struct th_moments th_moments;
struct th_moments {
  uint32_t struct_size, reserved;
  void* self;
  void (*reached)(th_moments*, uint32_t moment, uint32_t micro,
                  uint64_t live_bytes); /* [inst] inside step() */
};

/* One operation, or neighbours that ran as one. Times are CLOCK_MONOTONIC of the host's machine: a trainer
 * whose device has a clock of its own converts. Operations of a step do not overlap and come in the order of
 * their start. */
typedef struct th_op_record {
  uint32_t struct_size, phase; /* TH_PH_FORWARD, _BACKWARD or _UPDATE */
  int32_t layer;               /* from 0; -1: of none */
  uint32_t micro;              /* micro-batch of the update, from 0 */
  const char *kind, *name;     /* "linear"; "layers.3 linear qkv"; neither is NULL */
  uint64_t start_ns, duration_ns;
  uint64_t flops;                     /* of its matrix products, 2*m*n*k each; 0 where it has none */
  uint64_t bytes_read, bytes_written; /* every operand once, scratch not counted */
  uint64_t live_bytes; /* tensor bytes alive while it runs, by the trainer's plan; 0 = not known */
} th_op_record;

/* The host's; valid inside read(), on its thread. A code other than TH_OK: return it. */
typedef struct th_op_sink th_op_sink;
struct th_op_sink {
  uint32_t struct_size, reserved;
  void* self;
  th_status (*op)(th_op_sink*, const th_op_record*); /* strings are valid inside the call */
};

/* All four are mandatory. */
typedef struct th_profiler {
  uint32_t struct_size, reserved;
  /* Bytes that the records of one step need, so that the host can plan them. Needs no device. [any] {started}
   */
  th_status (*record_bytes)(const th_host*, const th_model*, const th_run*, uint64_t* bytes, th_error*);
  /* From here on each step() writes what it did to `records`: host memory of record_bytes, the host's,
   * 64-aligned, there until stop(). A step allocates nothing more than without. [inst] {created+} */
  th_status (*start)(th_trainer_inst*, void* records, uint64_t bytes, th_moments*, th_error*);
  /* The records of the last update; evaluation leaves them as they are. TH_E_STATE without start(). [inst]
   * {stepped} */
  th_status (*read)(th_trainer_inst*, th_op_sink*, th_error*);
  void (*stop)(th_trainer_inst*); /* also without start(), and twice. [inst] {alive} */
} th_profiler;
#endif
