/* trainhost plugin ABI: interfaces "trainhost.trainer/1" (training) and "trainhost.generate/1" (generation
 * token by token). */
#ifndef TRAINHOST_TRAINER_H
#define TRAINHOST_TRAINER_H
#include "trainhost/host.h"
#include "trainhost/memory.h"
#include "trainhost/model.h"

#define TH_TRAINER_ID "trainhost.trainer/1"
#define TH_GENERATE_ID "trainhost.generate/1"

/* Sets of tensors that load() and save() transfer. */
#define TH_SCOPE_WEIGHTS 1u
/* Everything that a run with adapters trains: A, B and magnitudes in the names of PEFT, and modules that are trained
 * whole (lora.modules_to_save) in the names of the model. */
#define TH_SCOPE_ADAPTER 2u
#define TH_SCOPE_MOMENT1                                                                       \
  3u                        /* first moment of the optimizer; names and shapes of the weights, \
                             * except state that is factored or of 8 bits (core/model/optimizer_state.hpp) */
#define TH_SCOPE_MOMENT2 4u /* second Adam moment; likewise */

/* With a scope, in save(): only the elements that this rank has to write, so that the ranks of a run together write
 * every element once. Sends nothing to other ranks and needs none of them. dim, first and count of th_tensor are
 * those of the tensor-parallel part of the tensor that the rank has; one range per tensor, in pieces, or none. Of
 * trainers for runs of several ranks. Since 1.1. */
#define TH_SAVE_OWN_PART 0x100u

/* A tensor or a part of it: elements [first, first + count) in row-major order. */
typedef struct th_tensor {
  uint32_t struct_size, dtype; /* TH_DT_* of the elements at data */
  uint32_t rank, reserved;     /* dimensions: 1 or 2 in this minor */
  uint64_t dim[8];             /* elements of the whole tensor; [rank] and later are 0 */
  const char* name;            /* Hugging Face name: "model.layers.0.self_attn.q_proj.weight" */
  void* data;            /* of the part; host memory, aligned to the element type; load() only reads it */
  uint64_t first, count; /* elements */
} th_tensor;

/* Owned by the host; valid inside save(), on its thread. If tensor() fails, return its code. */
typedef struct th_tensor_sink th_tensor_sink;
struct th_tensor_sink {
  uint32_t struct_size, reserved;
  void* self;
  th_status (*tensor)(th_tensor_sink*, const th_tensor*); /* data is valid inside the call */
};

#define TH_STEP_EVALUATE 1u /* computes the loss of one micro-batch; parameters and state do not change */

/* Input of one step(), which is one optimizer update over accumulate x micro_batch x seq tokens. Loss and
 * gradients are means over all counted targets of the update. */
typedef struct th_step {
  uint32_t struct_size, flags; /* TH_STEP_* mask */
  uint32_t batch, seq; /* sequences: accumulate * micro_batch (evaluate: 1..micro_batch); tokens of each */
  const int32_t *tokens, *targets; /* [batch, seq], values 0..vocab-1; target -100 = not counted */
  double lr;                       /* learning rate of this update */
  uint64_t step_index;             /* from 0; Adam bias correction uses step_index + 1 */
  /* [batch, seq]: the index in the sequence of the first token of each token's document; padding counts as a
   * document. NULL unless th_run.document_mask. Since 1.1. */
  const int32_t* starts;
} th_step;

/* Result of step(). The caller fills it with zeros. */
typedef struct th_step_out {
  uint32_t struct_size, reserved;
  double loss;             /* mean over counted targets, nats */
  double grad_norm;        /* global L2 norm before clipping; 0 for an evaluation */
  uint64_t tokens_counted; /* targets other than -100 */
  uint64_t wall_ns;        /* duration of the step */
  uint64_t device_ns;      /* time that the device was busy; 0 = unknown */
} th_step_out;

/* Totals since create(); they never decrease. The caller fills it with zeros; values that a trainer does not
 * count stay 0. */
typedef struct th_counters {
  uint32_t struct_size, reserved;
  /* Class `activation`: copies of activations from host to device and from device to host. */
  uint64_t h2d_bytes, d2h_bytes, h2d_count, d2h_count;
  uint64_t sync_count, sync_bytes;          /* class `sync`: small results that the host waits for */
  uint64_t chunks;                          /* number of parts in which copies were issued */
  uint64_t launches;                        /* kernels or operations started */
  uint64_t compute_ns, exposed_transfer_ns; /* time busy; time spent waiting for copies only */
  uint64_t stream_count, stream_bytes;      /* class `stream`: weights and gradients kept in host memory */
  /* Since 1.1. Sent to other ranks, and time in which the step waited for them. */
  uint64_t communication_bytes, communication_wait_ns;
} th_counters;

typedef struct th_trainer_inst th_trainer_inst; /* defined by the plugin */

/* counters, info and metric may be NULL; all other functions are mandatory. */
typedef struct th_trainer {
  uint32_t struct_size, reserved;
  /* Counts usable devices. *devices = 0 has the same meaning as TH_E_UNAVAILABLE. Cheap; leaves no device
   * context behind. [any] {started} */
  th_status (*probe)(const th_host*, uint32_t* devices, th_error*);
  /* Fills the traits that the trainer would have for this run; the struct is zero-filled before. Needs no
   * device. [any] {started} */
  th_status (*profile)(const th_host*, const th_model*, const th_run*, th_profile*, th_error*);
  /* Sends the trainer's own memory breakdown of a run. Allocates no memory of the run and needs no device.
   * [any] {started} */
  th_status (*plan)(const th_host*, const th_model*, const th_run*, th_mem_sink*, th_mem_summary*, th_error*);
  /* Allocates all memory of the run. device: from 0, less than the count of probe(). On failure everything is
   * freed and *instance is NULL. The host owns model and run: copy the values that are needed later. [any]
   * {started} */
  th_status (*create)(const th_host*, int32_t device, const th_model*, const th_run*,
                      th_trainer_inst** instance, th_error*);
  /* Loads a part of a tensor; parts may come in any order. TH_E_ARG: the model has no tensor of this name,
   * shape or type. [inst] {created+} */
  th_status (*load)(th_trainer_inst*, uint32_t scope, const th_tensor*, th_error*);
  /* Initializes every tensor that load() did not fill; the values depend on seed only. The next state is
   * {ready}. [inst] {created} */
  th_status (*init)(th_trainer_inst*, uint64_t seed, th_error*);
  /* Executes one update or one evaluation; returns when it is finished and *out is filled. [inst] {ready+} */
  th_status (*step)(th_trainer_inst*, const th_step*, th_step_out* out, th_error*);
  /* Sends every tensor of the scope in the order of the checkpoint; changes nothing. [inst] {ready+} */
  th_status (*save)(th_trainer_inst*, uint32_t scope, th_tensor_sink*, th_error*);
  /* Fills the counters. [inst] {created+} */
  th_status (*counters)(th_trainer_inst*, th_counters*, th_error*);
  /* Returns a fact about the instance: "kernel_set" (the kernels that determine its exact results),
   * "wrong_kernels" (a mistake in the names of its kernels, NULL if there is none), "device_name" and
   * "device_uuid" (the device that it runs on), "engine" (the file that it loaded for it). Valid until
   * destroy(); NULL = unknown key. [inst] {created+} */
  const char* (*info)(th_trainer_inst*, const char* key);
  /* Measures a figure: "peak_flops" (what MFU is a share of: FLOP/s of multiply-adds alone, or where they
   * cannot be measured of a large matrix product), "grad_norm.layer.3" and
   * "grad_norm.outside_layers" (norm of these gradients in the last update, before clipping), of several
   * ranks "grad_norm_part.layer.3" and "grad_norm_part.outside_layers" (of the elements that this rank counts:
   * the squares of all ranks add up to those of the layer). TH_E_ABSENT or TH_E_UNSUPPORTED: no such figure.
   * [inst] {created+} */
  th_status (*metric)(th_trainer_inst*, const char* key, double* value, th_error*);
  /* Frees everything; always succeeds, also after TH_E_DEVICE_LOST. [inst] {exists} */
  void (*destroy)(th_trainer_inst*);
} th_trainer;

/* Generation. A plugin that offers this interface must implement every function of it. */
typedef struct th_generate {
  uint32_t struct_size, reserved;
  /* Computes the logits of the token that follows `token` at `position`. logits: [vocab], owned by the
   * caller. Positions are 0, 1, 2, ...; position 0 starts a new text, a skipped position is TH_E_ARG. [inst]
   * {ready+} */
  th_status (*next)(th_trainer_inst*, int32_t token, uint32_t position, float* logits, th_error*);
} th_generate;
#endif
