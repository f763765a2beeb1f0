/* trainhost plugin ABI: memory as a tree of leaves, used by estimators (prediction) and trainers (their own plan) alike. */
#ifndef TRAINHOST_MEMORY_H
#define TRAINHOST_MEMORY_H
#include "trainhost/host.h" /* TH_TIER_* */

#define TH_EXACT 1u         /* lo == bytes == hi: counted */
#define TH_UPPER_BOUND 2u   /* bytes == hi: never more */
#define TH_APPROXIMATION 3u /* lo <= truth <= hi is the claim, and is scored */

#define TH_PH_LOAD 1u
#define TH_PH_FORWARD 2u
#define TH_PH_BACKWARD 4u
#define TH_PH_UPDATE 8u
#define TH_PH_EVAL 16u
#define TH_PH_SAVE 32u
#define TH_PH_GENERATE 64u

#define TH_MEM_WEIGHTS 1u
#define TH_MEM_MASTER_WEIGHTS 2u
#define TH_MEM_GRADIENTS 3u
#define TH_MEM_OPTIMIZER_STATE 4u
#define TH_MEM_ACTIVATIONS 5u
#define TH_MEM_LOGITS 6u
#define TH_MEM_WORKSPACE 7u
#define TH_MEM_COMMUNICATION 8u
#define TH_MEM_KV_CACHE 9u
#define TH_MEM_ADAPTERS 10u
#define TH_MEM_FRAGMENTATION 11u
#define TH_MEM_RUNTIME 12u

#define TH_MEM_HAS_AT_PEAK 1u /* bytes_at_peak is set (it may be 0) */

typedef struct th_mem {
  uint32_t struct_size, id, parent; /* ids 1..n, a parent is emitted first, 0 = root */
  uint32_t tier, component, claim, phases, flags;
  uint64_t bytes, lo, hi; /* the most it ever takes, and the claim's bounds */
  uint64_t bytes_at_peak; /* its share of the tier's peak: the leaves of a tier sum to its total */
  const char *name, *formula; /* "layers[].qkv", "L*B*S*(A+2K)*D*4" */
} th_mem;

typedef struct th_mem_sink th_mem_sink;
struct th_mem_sink {
  uint32_t struct_size, reserved;
  void *self;
  th_status (*node)(th_mem_sink *, const th_mem *);
  th_status (*note)(th_mem_sink *, const char *sentence); /* for the user: what the number leaves out, and why */
};

/* What a plan or an estimate returns beside its leaves. Zero-filled by the caller. */
typedef struct th_mem_summary {
  uint32_t struct_size, claim;
  uint64_t digest;       /* of the plan; 0 = none. Equal digests: the same plan, to the offset */
  uint64_t tier_peak[5]; /* by TH_TIER_*; [0] unused; 0 = not given, the host adds up the leaves */
  uint32_t peak_phase[5], reserved; /* TH_PH_* of that peak */
} th_mem_summary;
#endif
