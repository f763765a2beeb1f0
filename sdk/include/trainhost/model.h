/* trainhost plugin ABI: the model, the run and the traits of a trainer, as numbers. A field that is zero is
 * unset. Symbols in formulas: V vocab, H hidden, L layers, A heads, K kv_heads, D head_dim, I intermediate,
 * B micro_batch, S seq_len. */
#ifndef TRAINHOST_MODEL_H
#define TRAINHOST_MODEL_H
#include "trainhost/status.h"

/* th_model.flags */
#define TH_MODEL_TIED_EMBEDDINGS 1u /* the LM head uses the embedding matrix */
#define TH_MODEL_QKV_BIAS 2u
#define TH_MODEL_O_BIAS 4u
#define TH_MODEL_MLP_BIAS 8u /* on gate, up and down */
#define TH_MODEL_QK_NORM 16u /* RMSNorm over each head of q and k */

#define TH_ROPE_DEFAULT 0u
#define TH_ROPE_LINEAR 1u
#define TH_ROPE_LLAMA3 2u

/* Dimensions that every decoder-only model has. Other keys of config_json are read with
 * "trainhost.config/1". */
typedef struct th_model {
  uint32_t struct_size, flags;  /* TH_MODEL_* mask */
  const char* family;           /* model_type of the config: "llama", "mistral", ...; never NULL */
  const char* name;             /* display name; never NULL */
  uint64_t vocab;               /* V tokens */
  uint64_t max_positions;       /* tokens of the longest supported sequence */
  uint32_t hidden, layers;      /* H elements of the residual stream; L */
  uint32_t heads, kv_heads;     /* A query heads, K key and value heads; K divides A */
  uint32_t head_dim;            /* D elements per head; A*D may differ from H */
  uint32_t intermediate;        /* I elements of the MLP's inner layer */
  uint32_t sliding_window;      /* keys that a query attends to, itself included; 0 = all earlier ones */
  uint32_t first_window_layer;  /* layers with a smaller index (from 0) use full attention */
  double rope_theta, norm_eps;  /* base of the rotary angles; epsilon under RMSNorm's square root */
  double initializer_range;     /* standard deviation of initial weights */
  uint32_t rope_kind, reserved; /* TH_ROPE_* */
  double rope_factor, rope_low_freq_factor, rope_high_freq_factor; /* unless rope_kind is default */
  uint64_t rope_original_max_positions;                            /* tokens; unless rope_kind is default */
  const char* config_json; /* the Hugging Face config; NULL if the model was given as numbers */
} th_model;

/* Element types. */
#define TH_DT_F32 1u
#define TH_DT_F16 2u
#define TH_DT_BF16 3u
#define TH_DT_I32 4u
#define TH_DT_U8 5u
#define TH_DT_TF32 6u /* compute type only */
#define TH_DT_F64 7u
/* Storage types for planning; a trainer is never asked to compute with them. */
#define TH_DT_F8 8u
#define TH_DT_I8 9u
#define TH_DT_NF4 10u /* 4 bits, plus one scale per block */
#define TH_DT_I4 11u

#define TH_MODE_FULL 1u      /* every parameter is trained */
#define TH_MODE_LORA 2u      /* adapters are trained, weights are frozen */
#define TH_MODE_QLORA 3u     /* like lora, with frozen weights quantized to dt_frozen */
#define TH_MODE_INFERENCE 4u /* evaluation and generation only: no gradients, no optimizer */

#define TH_OPT_ADAMW 1u /* decoupled weight decay, two moments */
#define TH_OPT_SGD 2u
#define TH_OPT_SGD_MOMENTUM 3u
/* A trainer may refuse these. */
#define TH_OPT_ADAFACTOR 4u
#define TH_OPT_LION 5u
#define TH_OPT_MUON 6u
#define TH_OPT_ADAMW_8BIT 7u

#define TH_ATTENTION_FLASH 1u
#define TH_ATTENTION_MATERIALISED 2u /* attention scores are kept for the backward pass */
#define TH_CE_FUSED 1u               /* logits of one chunk of tokens at a time */
#define TH_CE_PLAIN 2u               /* logits and their gradient are materialised */
#define TH_CE_IN_PLACE 3u            /* logits are materialised in f32; the gradient overwrites them */

/* th_run.layout_flags */
#define TH_LAYOUT_SEQUENCE_PARALLEL 1u /* TP ranks split the tokens between parallel matrices */
#define TH_LAYOUT_DOUBLE_QUANTIZED 2u  /* nf4: the block scales are quantized to 8 bits */
#define TH_LAYOUT_DORA 4u              /* one magnitude vector per adapter */

/* th_run.lora_targets */
#define TH_LORA_Q 1u
#define TH_LORA_K 2u
#define TH_LORA_V 4u
#define TH_LORA_O 8u
#define TH_LORA_GATE 16u
#define TH_LORA_UP 32u
#define TH_LORA_DOWN 64u
#define TH_LORA_HEAD 128u  /* since 1.1: the LM head, of a model with tied embeddings too */
#define TH_LORA_EMBED 256u /* since 1.1: the embedding */
/* Since 1.1, with TH_LORA_EMBED and without TH_LORA_HEAD: the LM head, which is the embedding, has the same
 * adapter, A of one being B of the other transposed. */
#define TH_LORA_TIED 512u

/* Activation checkpointing. */
#define TH_RC_NONE 1u      /* everything that the backward pass reads is kept */
#define TH_RC_SELECTIVE 2u /* norm outputs and the SwiGLU product are recomputed */
#define TH_RC_FULL 3u      /* a layer keeps only its input */
#define TH_RC_AUTO 4u      /* the host resolves it; a plugin never receives it */
#define TH_RC_LAYERS 5u    /* chosen per layer: recompute_full, _mlp and _selective of th_run */

/* One training run. For numbers of ranks and other counts 0 means 1. */
typedef struct th_run {
  uint32_t struct_size, mode;    /* TH_MODE_* */
  uint32_t micro_batch, seq_len; /* B sequences per micro-batch, of S tokens each */
  uint32_t accumulate;           /* gradient accumulation steps: micro-batches per update */
  uint32_t dt_weight, dt_grad, dt_master, dt_moment,
      dt_compute;                /* TH_DT_*; dt_master 0 = no master weights */
  uint32_t optimizer, recompute; /* TH_OPT_*; TH_RC_* */
  uint32_t zero_stage;           /* ZeRO: 0..3; 1 shards moments, 2 also gradients, 3 also weights */
  uint32_t data_parallel, tensor_parallel, pipeline_parallel; /* ranks */
  uint32_t lora_rank, lora_targets;                           /* columns of an adapter; TH_LORA_* mask */
  double lora_alpha;                   /* adapters are scaled by lora_alpha / lora_rank */
  double beta1, beta2, eps;            /* of Adam; beta1 is the momentum of sgd-momentum */
  double weight_decay;                 /* per update, multiplied by the learning rate */
  double clip_norm;                    /* largest global L2 norm of the gradients; 0 = no clipping */
  uint64_t seed;                       /* random seed for initial weights */
  uint64_t device_budget, host_budget; /* bytes; 0 = all free memory */
  /* With TH_RC_LAYERS, numbers of layers, counted from the first one: the first recompute_full layers keep
   * only their input; the next recompute_mlp layers recompute gate and up in addition to what selective
   * recomputes; the next recompute_selective layers recompute norm outputs and the SwiGLU product. */
  uint32_t recompute_full, recompute_mlp, recompute_selective;
  /* TH_LAYOUT_* mask. This field and the following ones are for planning: a trainer is never asked for a run
   * in which one of them differs from its default. The default is 0 or 1 for numbers of ranks, interleave,
   * vocab_multiple, recompute_every and kv_page; 0 for flags, types and tiers; flash; fused. */
  uint32_t layout_flags;
  uint32_t context_parallel; /* context-parallel ranks: they split the tokens of each sequence */
  uint32_t expert_parallel;  /* expert-parallel ranks, a subgroup of the data-parallel ranks */
  uint32_t interleave;       /* virtual pipeline stages per rank */
  uint32_t vocab_multiple;   /* the vocabulary is padded to a multiple of this times tensor_parallel */
  uint32_t recompute_every;  /* with TH_RC_FULL: consecutive layers that are recomputed from one kept input */
  uint32_t attention, cross_entropy; /* TH_ATTENTION_*; TH_CE_* */
  uint32_t weights_tier, optimizer_tier,
      activations_tier;            /* offloaded to TH_TIER_HOST or _DISK; 0 = device */
  uint32_t dt_frozen, dt_kv_cache; /* TH_DT_*; 0 = dt_weight */
  uint32_t kv_page;                /* tokens per page of the KV cache */
  uint32_t reserved;
  /* Since 1.1, for trainers too. A plugin of minor version 0 is not asked for a run in which one of them is
   * set. */
  const char*
      trainable; /* Which tensors of the model have gradients: one rule per line, '+' or '-' before a glob
                  * pattern of tensor names ('*' any text, '?' one character); the last rule that matches
                  * decides, and without a match a tensor is trained. NULL: all are trained. */
  double lora_dropout;    /* fraction of the elements of an adapter's input that is dropped in training */
  uint32_t document_mask; /* 1: a sequence has several documents; a token attends only to its own:
                             th_step.starts */
  /* Number of one of the data_parallel ranks, from 1: step program and memory are those of this rank, and
   * accumulate and micro_batch are its own. 0: of none in particular; a trainer gets 0 in a run of one rank.
   */
  uint32_t data_rank;
  /* Likewise of the tensor_parallel ranks: this rank has its part of every matrix. Set together with
   * data_rank. */
  uint32_t tensor_rank, reserved_2;
  const char* lora_rules; /* Adapters that differ from lora_rank and lora_alpha: one line per matrix, its name
                           * ("model.layers.0.self_attn.q_proj"), rank and alpha, separated by one space; rank 0:
                           * no adapter. Of matrices in lora_targets alone. NULL: none differs. */
} th_run;

/* th_profile.flags. The compute type applies to matrix products only: the trainer rounds their operands when
 * it reads them, and all weights, activations and gradients are stored as f32. */
#define TH_PROFILE_F32_STORAGE 1u

/* Traits of a trainer that determine its memory. trainer->profile() fills them without a device; the host
 * passes them to estimators, so that an estimate applies to that trainer. */
typedef struct th_profile {
  uint32_t struct_size, alignment; /* bytes; of every buffer in an arena; power of two */
  uint32_t head_chunk_tokens;      /* rows of logits that are live at once; 0 = the whole micro-batch */
  uint32_t attention_tile_q,
      attention_tile_k;     /* queries and keys whose scores are live at once, per thread */
  uint32_t threads, slots;  /* CPU threads; partial sums per row reduction, which depend on the shape only */
  uint32_t tier;            /* TH_TIER_* of the arena */
  uint64_t workspace_bytes; /* of the vendor library; part of the plan */
  char trainer[64];         /* plugin id */
  char mode[32];            /* resident, hybrid or streamed; "" if there is only one mode */
  uint32_t flags;           /* TH_PROFILE_* mask */
  /* Layers that the trainer recomputes although the run's recompute is none: as in th_run. */
  uint32_t recompute_full, recompute_mlp, recompute_selective;
  /* Device bytes of the trainer's runtime in addition to the plan (context, code, library handles): stated,
   * not planned. The host subtracts them from the device memory that a run may use. */
  uint64_t runtime_bytes;
} th_profile;
#endif
