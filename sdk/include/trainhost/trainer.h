/* trainhost plugin ABI: interfaces "trainhost.trainer/1" and "trainhost.generate/1". */
#ifndef TRAINHOST_TRAINER_H
#define TRAINHOST_TRAINER_H
#include "trainhost/host.h"
#include "trainhost/memory.h"
#include "trainhost/model.h"

#define TH_TRAINER_ID "trainhost.trainer/1"
#define TH_GENERATE_ID "trainhost.generate/1"

#define TH_SCOPE_WEIGHTS 1u
#define TH_SCOPE_ADAPTER 2u
#define TH_SCOPE_MOMENT1 3u /* same names and shapes as the weights */
#define TH_SCOPE_MOMENT2 4u

/* A tensor, or a piece of one: elements [first, first + count) in row-major order. */
typedef struct th_tensor {
  uint32_t struct_size, dtype; /* TH_DT_* of the elements at data */
  uint32_t rank, reserved;     /* dimensions: 1 or 2 in this minor */
  uint64_t dim[8];             /* elements, of the whole tensor; [rank] and later are 0 */
  const char* name;            /* Hugging Face name: "model.layers.0.self_attn.q_proj.weight" */
  void* data;            /* of the piece; host memory, aligned to the element; load() does not write there */
  uint64_t first, count; /* elements */
} th_tensor;

/* The host's; valid inside save(), on its thread. A code other than TH_OK: return it. */
typedef struct th_tensor_sink th_tensor_sink;
struct th_tensor_sink {
  uint32_t struct_size, reserved;
  void* self;
  th_status (*tensor)(th_tensor_sink*, const th_tensor*); /* data is valid inside the call */
};

#define TH_STEP_EVALUATE 1u /* loss only: one micro-batch, nothing changes, the state neither */

/* One step() is one optimizer update: accumulate x micro_batch x seq ids. Loss and gradients are means over
 * all counted targets of the update. */
typedef struct th_step {
  uint32_t struct_size, flags; /* TH_STEP_* mask */
  uint32_t batch, seq; /* batch = accumulate * micro_batch (evaluate: 1..micro_batch), seq = run.seq_len */
  const int32_t *tokens, *targets; /* [batch * seq], 0..vocab-1; target -100 = not counted */
  double lr;                       /* learning rate of this update */
  uint64_t step_index;             /* of the update, from 0: bias correction uses step_index + 1 */
} th_step;

/* Zero-filled by the caller. */
typedef struct th_step_out {
  uint32_t struct_size, reserved;
  double loss;             /* mean over counted targets, nats */
  double grad_norm;        /* global L2 norm before clipping; 0 when evaluating */
  uint64_t tokens_counted; /* targets other than -100 */
  uint64_t wall_ns;        /* of the step */
  uint64_t device_ns;      /* that a device was busy with it; 0 = not known */
} th_step_out;

/* Sums since create(); none ever falls. Zero-filled by the caller; what a trainer does not count stays 0. */
typedef struct th_counters {
  uint32_t struct_size, reserved;
  uint64_t h2d_bytes, d2h_bytes, h2d_count,
      d2h_count;                            /* class `activation`: host to device, device to host */
  uint64_t sync_count, sync_bytes;          /* class `sync`: small results that the host waits for */
  uint64_t chunks;                          /* pieces that copies were issued in */
  uint64_t launches;                        /* kernels or operations started */
  uint64_t compute_ns, exposed_transfer_ns; /* busy; waiting for copies alone */
  uint64_t stream_count,
      stream_bytes; /* class `stream`: weights and gradients of a run that lives in host memory */
} th_counters;

typedef struct th_trainer_inst th_trainer_inst; /* the plugin's own */

/* counters, info and metric may be NULL; all others are mandatory. */
typedef struct th_trainer {
  uint32_t struct_size, reserved;
  /* Can it be used here? Cheap, leaves no context behind; *devices: how many, 0 is the same as
   * TH_E_UNAVAILABLE. [any] {started} */
  th_status (*probe)(const th_host*, uint32_t* devices, th_error*);
  /* The choices that it would make for this run; zero-filled before. Needs no device. [any] {started} */
  th_status (*profile)(const th_host*, const th_model*, const th_run*, th_profile*, th_error*);
  /* The trainer's own account of a run; takes no memory of the run, needs no device. [any] {started} */
  th_status (*plan)(const th_host*, const th_model*, const th_run*, th_mem_sink*, th_mem_summary*, th_error*);
  /* Takes all memory of the run. device: from 0, below the number that probe() gives. On failure nothing
   * stays taken and *instance is NULL. model and run are the host's: copy what is needed later. [any]
   * {started} */
  th_status (*create)(const th_host*, int32_t device, const th_model*, const th_run*,
                      th_trainer_inst** instance, th_error*);
  /* A piece of a tensor, pieces in any order; TH_E_ARG for a name, shape or type that the model does not
   * have. [inst] {created+} */
  th_status (*load)(th_trainer_inst*, uint32_t scope, const th_tensor*, th_error*);
  /* Fills whatever load() left out, by seed alone, and ends in {ready}. [inst] {created} */
  th_status (*init)(th_trainer_inst*, uint64_t seed, th_error*);
  /* One update, or one evaluation; returns when it is done and *out is filled. [inst] {ready+} */
  th_status (*step)(th_trainer_inst*, const th_step*, th_step_out* out, th_error*);
  /* Every tensor of the scope, in the order of the checkpoint's names; changes nothing. [inst] {ready+} */
  th_status (*save)(th_trainer_inst*, uint32_t scope, th_tensor_sink*, th_error*);
  th_status (*counters)(th_trainer_inst*, th_counters*, th_error*); /* [inst] {created+} */
  /* Facts about an instance: "kernel_set" (what the bits depend on). Valid until destroy(); NULL = unknown.
   * [inst] {created+} */
  const char* (*info)(th_trainer_inst*, const char* key);
  /* Figures, measured on request: "peak_flops" (of the machine's own matrix product, flop/s). TH_E_ABSENT or
   * TH_E_UNSUPPORTED: no such figure. [inst] {created+} */
  th_status (*metric)(th_trainer_inst*, const char* key, double* value, th_error*);
  /* Gives everything back; always succeeds, also after TH_E_DEVICE_LOST. [inst] {alive} */
  void (*destroy)(th_trainer_inst*);
} th_trainer;

/* Token by token. Mandatory where the interface is offered. */
typedef struct th_generate {
  uint32_t struct_size, reserved;
  /* Logits of the token after `token` at `position` (0, 1, 2, ...: position 0 starts anew, a gap is
   * TH_E_ARG). logits: [vocab], the caller's. [inst] {ready+} */
  th_status (*next)(th_trainer_inst*, int32_t token, uint32_t position, float* logits, th_error*);
} th_generate;
#endif
