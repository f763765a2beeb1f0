/* trainhost plugin ABI: the model, the run and a trainer's choices as numbers. A zero field is unset: the
 * config does not have it. Symbols of formulas: V vocab, H hidden, L layers, A heads, K kv_heads, D head_dim,
 * I intermediate, B micro_batch, S seq_len. */
#ifndef TRAINHOST_MODEL_H
#define TRAINHOST_MODEL_H
#include "trainhost/status.h"

/* th_model.flags */
#define TH_MODEL_TIED_EMBEDDINGS 1u /* the LM head is the embedding */
#define TH_MODEL_QKV_BIAS 2u
#define TH_MODEL_O_BIAS 4u
#define TH_MODEL_MLP_BIAS 8u /* on gate, up and down */
#define TH_MODEL_QK_NORM 16u /* RMSNorm over each head of q and k */

#define TH_ROPE_DEFAULT 0u
#define TH_ROPE_LINEAR 1u
#define TH_ROPE_LLAMA3 2u

/* What every decoder-only model has; the rest is in config_json, to be read with "trainhost.config/1". */
typedef struct th_model {
  uint32_t struct_size, flags;  /* TH_MODEL_* mask */
  const char* family;           /* model_type of the config: "llama", "mistral", ...; never NULL */
  const char* name;             /* for people; never NULL */
  uint64_t vocab;               /* V tokens */
  uint64_t max_positions;       /* tokens of the longest sequence that the model was made for */
  uint32_t hidden, layers;      /* H elements of the residual stream; L */
  uint32_t heads, kv_heads;     /* A of queries, K of keys and values; K divides A */
  uint32_t head_dim;            /* D elements a head; A*D need not be H */
  uint32_t intermediate;        /* I elements of the MLP's inner layer */
  uint32_t sliding_window;      /* keys a query sees, itself included; 0 = all before it */
  uint32_t first_window_layer;  /* layers below it attend to everything, counted from 0 */
  double rope_theta, norm_eps;  /* base of the rotary angles; added under RMSNorm's root */
  double initializer_range;     /* standard deviation of fresh weights */
  uint32_t rope_kind, reserved; /* TH_ROPE_* */
  double rope_factor, rope_low_freq_factor, rope_high_freq_factor; /* of rope_kind other than default */
  uint64_t rope_original_max_positions;                            /* tokens, likewise */
  const char* config_json; /* the raw Hugging Face config; NULL when the model was given inline */
} th_model;

/* Element types. */
#define TH_DT_F32 1u
#define TH_DT_F16 2u
#define TH_DT_BF16 3u
#define TH_DT_I32 4u
#define TH_DT_U8 5u
#define TH_DT_TF32 6u /* as a compute type only */
#define TH_DT_F64 7u
/* Storage that planners count; no trainer is asked to compute with these. */
#define TH_DT_F8 8u
#define TH_DT_I8 9u
#define TH_DT_NF4 10u /* 4 bits and the scales of blocks */
#define TH_DT_I4 11u

#define TH_MODE_FULL 1u      /* every parameter is trained */
#define TH_MODE_LORA 2u      /* adapters are trained beside frozen weights */
#define TH_MODE_QLORA 3u     /* likewise, the frozen weights quantized to dt_frozen */
#define TH_MODE_INFERENCE 4u /* weights, evaluation and generation; no gradients, no optimizer */

#define TH_OPT_ADAMW 1u /* decoupled weight decay, two moments */
#define TH_OPT_SGD 2u
#define TH_OPT_SGD_MOMENTUM 3u
/* Planned only: */
#define TH_OPT_ADAFACTOR 4u
#define TH_OPT_LION 5u
#define TH_OPT_MUON 6u
#define TH_OPT_ADAMW_8BIT 7u

#define TH_ATTENTION_FLASH 1u
#define TH_ATTENTION_MATERIALISED 2u /* scores are kept whole for the backward pass */
#define TH_CE_FUSED 1u               /* logits a chunk of tokens at a time */
#define TH_CE_PLAIN 2u               /* logits and their gradient stand whole */
#define TH_CE_IN_PLACE 3u            /* they stand whole once, in f32: the gradient overwrites them */

/* th_run.layout_flags */
#define TH_LAYOUT_SEQUENCE_PARALLEL \
  1u /* between tensor-parallel parts each rank keeps its share of the tokens */
#define TH_LAYOUT_DOUBLE_QUANTIZED 2u /* nf4: the block scales are themselves 8-bit */
#define TH_LAYOUT_DORA 4u             /* a magnitude vector beside each adapter */

/* th_run.lora_targets */
#define TH_LORA_Q 1u
#define TH_LORA_K 2u
#define TH_LORA_V 4u
#define TH_LORA_O 8u
#define TH_LORA_GATE 16u
#define TH_LORA_UP 32u
#define TH_LORA_DOWN 64u

#define TH_RC_NONE 1u      /* everything that the backward pass reads is kept */
#define TH_RC_SELECTIVE 2u /* norm outputs and the SwiGLU product are made again */
#define TH_RC_FULL 3u      /* a layer keeps its input alone */
#define TH_RC_AUTO 4u      /* resolved by the host before a plugin sees a run */
#define TH_RC_LAYERS 5u    /* by layer: see recompute_full in th_run */

/* One training run. Counts of ranks and the like: 0 is 1. */
typedef struct th_run {
  uint32_t struct_size, mode;    /* TH_MODE_* */
  uint32_t micro_batch, seq_len; /* B sequences that go through the model together, of S tokens each */
  uint32_t accumulate;           /* micro-batches per update */
  uint32_t dt_weight, dt_grad, dt_master, dt_moment,
      dt_compute;                /* TH_DT_*; dt_master 0 = no master weights */
  uint32_t optimizer, recompute; /* TH_OPT_* TH_RC_* */
  uint32_t zero_stage;           /* 0..3: 1 shards moments, 2 gradients too, 3 weights too */
  uint32_t data_parallel, tensor_parallel, pipeline_parallel; /* ranks */
  uint32_t lora_rank, lora_targets;                           /* columns of an adapter; TH_LORA_* mask */
  double lora_alpha;                   /* adapters are scaled by lora_alpha / lora_rank */
  double beta1, beta2, eps;            /* of Adam; beta1 is the momentum of sgd-momentum */
  double weight_decay;                 /* per update, times the learning rate */
  double clip_norm;                    /* global L2 norm that gradients are scaled down to; 0 = no clipping */
  uint64_t seed;                       /* of fresh weights */
  uint64_t device_budget, host_budget; /* bytes; 0 = whatever is free */
  /* TH_RC_LAYERS, counted from the first layer: `full` layers keep their input alone, the next `mlp` make
   * gate and up again, and what selective does; the next `selective` make norm outputs and the SwiGLU product
   * again. */
  uint32_t recompute_full, recompute_mlp, recompute_selective;
  /* What planners read beside the above. A trainer is never asked for a run where one of these differs from
   * its default (ranks, interleave, vocab_multiple, recompute_every, kv_page: 0 or 1; flags, types, tiers: 0;
   * flash; fused). */
  uint32_t layout_flags;     /* TH_LAYOUT_* mask */
  uint32_t context_parallel; /* ranks that share each sequence's tokens */
  uint32_t expert_parallel;  /* ranks of the data-parallel group that share a layer's experts */
  uint32_t interleave;       /* chunks of layers a pipeline rank holds */
  uint32_t vocab_multiple;   /* the vocabulary is padded to a multiple of this times tensor_parallel */
  uint32_t recompute_every;  /* with TH_RC_FULL: layers made again together from one kept input */
  uint32_t attention, cross_entropy; /* TH_ATTENTION_* TH_CE_* */
  uint32_t weights_tier, optimizer_tier,
      activations_tier;            /* TH_TIER_HOST or _DISK: offloaded; 0 = on the device */
  uint32_t dt_frozen, dt_kv_cache; /* TH_DT_*; 0 = as dt_weight */
  uint32_t kv_page;                /* tokens that a sequence's cache grows by */
  uint32_t reserved;
} th_run;

/* th_profile.flags. A lower precision than f32 is for matrix products alone: the trainer rounds their
 * operands when it reads them, and every weight, activation and gradient stays f32 in memory. */
#define TH_PROFILE_F32_STORAGE 1u

/* Choices of a trainer that change its memory. Published by trainer->profile() without touching a device and
 * handed to estimators, so that an estimate knows the trainer it is made for. */
typedef struct th_profile {
  uint32_t struct_size, alignment; /* of every buffer in an arena, bytes, a power of two */
  uint32_t head_chunk_tokens;      /* rows of logits alive at once; 0 = all of the micro-batch */
  uint32_t attention_tile_q,
      attention_tile_k;     /* queries and keys whose scores are alive at once, per thread */
  uint32_t threads, slots;  /* CPU threads; partial sums that row-reductions are cut into, by shape alone */
  uint32_t tier;            /* TH_TIER_*: where the arena lives */
  uint64_t workspace_bytes; /* of the vendor library, taken from the plan */
  char trainer[64];         /* plugin id */
  char mode[32];            /* resident | hybrid | streamed; "" where there is one mode */
  uint32_t flags;           /* TH_PROFILE_* mask */
  /* Layers that the trainer makes again where the run's recompute is none: as in th_run. */
  uint32_t recompute_full, recompute_mlp, recompute_selective;
  /* Bytes that the trainer's runtime takes of the device beside the plan (context, code, library handles):
   * stated, not planned. A run is given the device's memory less this. */
  uint64_t runtime_bytes;
} th_profile;
#endif
