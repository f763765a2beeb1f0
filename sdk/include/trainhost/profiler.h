/* trainhost plugin ABI: interface "trainhost.profiler/1": time of each operation of a step. Optional: a
 * trainer without it trains but cannot be profiled. Unrelated to th_profile, which describes a trainer. */
#ifndef TRAINHOST_PROFILER_H
#define TRAINHOST_PROFILER_H
#include "trainhost/trainer.h"

#define TH_PROFILER_ID "trainhost.profiler/1"

/* Points of a step at which the host samples memory. */
#define TH_BEFORE_FORWARD 1u /* of micro-batch `micro` */
#define TH_AFTER_FORWARD 2u
#define TH_AFTER_BACKWARD 3u
#define TH_AFTER_UPDATE 4u

/* Owned by the host; valid from start() until stop(). */
typedef struct th_moments th_moments;
struct th_moments {
  uint32_t struct_size, reserved;
  void* self;
  /* The trainer calls this inside step(), between operations, on the thread of step(). It takes a few
   * microseconds. moment: one of the points above; micro: micro-batch of the update, from 0; live_bytes:
   * tensor bytes that are live at this point according to the trainer's plan, 0 = unknown. [inst] inside
   * step() */
  void (*reached)(th_moments*, uint32_t moment, uint32_t micro, uint64_t live_bytes);
};

/* One operation, or neighbouring operations that ran as one. Times are CLOCK_MONOTONIC of the host's machine;
 * a trainer converts the times of its device's own clock. Operations of a step do not overlap and are sent in
 * the order of their start. */
typedef struct th_op_record {
  uint32_t struct_size, phase; /* TH_PH_FORWARD, _BACKWARD or _UPDATE */
  int32_t layer;               /* from 0; -1 = outside of the layers */
  uint32_t micro;              /* micro-batch of the update, from 0 */
  const char *kind, *name;     /* "linear"; "layers.3 linear qkv"; never NULL */
  uint64_t start_ns, duration_ns;
  uint64_t flops;                     /* of its matrix products, 2*m*n*k each; 0 = no matrix product */
  uint64_t bytes_read, bytes_written; /* each operand counted once, scratch not counted */
  uint64_t live_bytes;                /* tensor bytes live meanwhile, by the trainer's plan; 0 = unknown */
} th_op_record;

/* Owned by the host; valid inside read(), on its thread. If op() fails, return its code. */
typedef struct th_op_sink th_op_sink;
struct th_op_sink {
  uint32_t struct_size, reserved;
  void* self;
  th_status (*op)(th_op_sink*, const th_op_record*); /* strings are valid inside the call */
};

/* All four functions are mandatory. */
typedef struct th_profiler {
  uint32_t struct_size, reserved;
  /* Bytes needed for the records of one step, so that the host can plan them. Needs no device. [any]
   * {started} */
  th_status (*record_bytes)(const th_host*, const th_model*, const th_run*, uint64_t* bytes, th_error*);
  /* Starts profiling: each step() from now on writes its operations to `records`. That is host memory of
   * record_bytes() bytes, owned by the host, 64-byte aligned, valid until stop(). step() allocates no more
   * memory than without profiling. [inst] {created+} */
  th_status (*start)(th_trainer_inst*, void* records, uint64_t bytes, th_moments*, th_error*);
  /* Sends the records of the last update; evaluation does not change them. TH_E_STATE: start() was not
   * called. [inst] {stepped} */
  th_status (*read)(th_trainer_inst*, th_op_sink*, th_error*);
  /* Stops profiling. May be called without start() and repeatedly. [inst] {exists} */
  void (*stop)(th_trainer_inst*);
} th_profiler;
#endif
