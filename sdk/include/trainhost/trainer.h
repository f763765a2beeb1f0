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
  uint32_t struct_size, dtype, rank, reserved;
  uint64_t dim[8];   /* of the whole tensor */
  const char *name;  /* Hugging Face name: "model.layers.0.self_attn.q_proj.weight" */
  void *data;        /* of the piece; host memory, aligned to the element */
  uint64_t first, count;
} th_tensor;

typedef struct th_tensor_sink th_tensor_sink;
struct th_tensor_sink {
  uint32_t struct_size, reserved;
  void *self;
  th_status (*tensor)(th_tensor_sink *, const th_tensor *); /* data is valid inside the call */
};

#define TH_STEP_EVALUATE 1u /* loss only: one micro-batch, nothing changes */

/* One step() is one optimizer update: accumulate x micro_batch x seq ids. Loss and gradients are means over all
 * counted targets of the update. */
typedef struct th_step {
  uint32_t struct_size, flags;
  uint32_t batch, seq; /* batch = accumulate * micro_batch (evaluate: <= micro_batch), seq = run.seq_len */
  const int32_t *tokens, *targets; /* [batch * seq]; target -100 = not counted */
  double lr;
  uint64_t step_index; /* of the update, from 0: bias correction uses step_index + 1 */
} th_step;

typedef struct th_step_out {
  uint32_t struct_size, flags;
  double loss, grad_norm; /* mean over counted targets, in nats; global L2 norm before clipping */
  uint64_t tokens_counted, wall_ns, device_ns;
} th_step_out;

typedef struct th_counters {
  uint32_t struct_size, reserved;
  uint64_t h2d_bytes, d2h_bytes, h2d_count, d2h_count;         /* class `activation` */
  uint64_t sync_count, sync_bytes, chunks;                     /* class `sync`; pieces that copies were issued in */
  uint64_t launches, compute_ns, exposed_transfer_ns;
  uint64_t stream_count, stream_bytes; /* class `stream`: weights and gradients of a run that lives in host memory */
} th_counters;

typedef struct th_trainer_inst th_trainer_inst;
typedef struct th_trainer {
  uint32_t struct_size, reserved;
  /* Can it be used here? Cheap, leaves no context behind; devices: how many. [any] */
  th_status (*probe)(const th_host *, uint32_t *devices, th_error *);
  /* Needs no device. [any] */
  th_status (*profile)(const th_host *, const th_model *, const th_run *, th_profile *, th_error *);
  /* The trainer's own account of a run; allocates nothing. [any] */
  th_status (*plan)(const th_host *, const th_model *, const th_run *, th_mem_sink *, th_mem_summary *, th_error *);
  th_status (*create)(const th_host *, int32_t device, const th_model *, const th_run *, th_trainer_inst **,
                      th_error *); /* [any] */
  /* All below [inst]; the host outlives the instance. */
  th_status (*load)(th_trainer_inst *, uint32_t scope, const th_tensor *, th_error *);
  th_status (*init)(th_trainer_inst *, uint64_t seed, th_error *); /* fills whatever load() left out */
  th_status (*step)(th_trainer_inst *, const th_step *, th_step_out *, th_error *); /* synchronous */
  th_status (*save)(th_trainer_inst *, uint32_t scope, th_tensor_sink *, th_error *); /* in the order of the checkpoint's names */
  th_status (*counters)(th_trainer_inst *, th_counters *, th_error *);
  /* Facts about an instance: "kernel_set" (what the bits depend on). STATIC for the instance's life; NULL = unknown. */
  const char *(*info)(th_trainer_inst *, const char *key);
  /* Figures, measured on request: "peak_flops" (of the machine's own matrix product, flop/s). */
  th_status (*metric)(th_trainer_inst *, const char *key, double *value, th_error *);
  void (*destroy)(th_trainer_inst *); /* always succeeds, also after DEVICE_LOST */
} th_trainer;

/* Token by token: logits of the token after `token` at `position` (0, 1, 2, ...: position 0 starts anew). [inst] */
typedef struct th_generate {
  uint32_t struct_size, reserved;
  th_status (*next)(th_trainer_inst *, int32_t token, uint32_t position, float *logits /* [vocab] */, th_error *);
} th_generate;
#endif
