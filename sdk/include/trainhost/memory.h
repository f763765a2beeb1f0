/* trainhost plugin ABI: memory as a tree of leaves, used by estimators (prediction) and trainers (their own
 * plan) alike. All sizes are bytes of one rank, the one that takes most, below 2^63. The host refuses a
 * report that contradicts itself, with a sentence that names the node. */
#ifndef TRAINHOST_MEMORY_H
#define TRAINHOST_MEMORY_H
#include "trainhost/host.h" /* TH_TIER_* */

/* What is claimed of a number. */
#define TH_EXACT 1u         /* lo == bytes == hi: counted */
#define TH_UPPER_BOUND 2u   /* bytes == hi: never more */
#define TH_APPROXIMATION 3u /* lo <= truth <= hi is the claim, and is scored */

/* When it is alive: a mask. */
#define TH_PH_LOAD 1u
#define TH_PH_FORWARD 2u
#define TH_PH_BACKWARD 4u
#define TH_PH_UPDATE 8u
#define TH_PH_EVAL 16u
#define TH_PH_SAVE 32u
#define TH_PH_GENERATE 64u

/* What it is for. */
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
#define TH_MEM_FRAGMENTATION 11u /* of an arena: its size less what is alive in it at the peak */
#define TH_MEM_RUNTIME 12u       /* of a driver or a library: stated or measured, not planned */

#define TH_MEM_HAS_AT_PEAK 1u /* bytes_at_peak is set (it may be 0) */

/* A node. One that others name as their parent is a heading: its name counts, its numbers do not. */
typedef struct th_mem {
  uint32_t struct_size, id,
      parent; /* ids 1..n in the order of the calls, a parent is emitted first, 0 = root */
  uint32_t tier, component, claim; /* TH_TIER_* TH_MEM_* TH_EXACT.. */
  uint32_t phases, flags;          /* TH_PH_* mask, 0 = always there; TH_MEM_HAS_* mask */
  uint64_t bytes, lo, hi;     /* the most it ever takes; the claim's bounds, both 0 = follow from the claim */
  uint64_t bytes_at_peak;     /* its share of the tier's peak: the leaves of a tier sum to its total */
  const char *name, *formula; /* "layers[].qkv", "L*B*S*(A+2K)*D*4"; NULL = none; read up to 2000 bytes */
} th_mem;

/* The host's; valid inside the call that brings it, on the thread of that call. A code other than TH_OK: the
 * report is refused; return that code. */
typedef struct th_mem_sink th_mem_sink;
struct th_mem_sink {
  uint32_t struct_size, reserved;
  void* self;
  th_status (*node)(th_mem_sink*, const th_mem*); /* fewer than 10^6 of them */
  th_status (*note)(th_mem_sink*,
                    const char* sentence); /* for the user: what is left out, and why; <= 1000 */
};

/* What a plan or an estimate returns beside its leaves. The caller zero-fills it. */
typedef struct th_mem_summary {
  uint32_t struct_size, claim;       /* of the whole; 0 = the least sure of the leaves' */
  uint64_t digest;                   /* of the plan; 0 = none. Equal digests: the same plan, to the offset */
  uint64_t tier_peak[TH_TIER_SLOTS]; /* bytes by TH_TIER_*; 0 = not given, the host adds up leaves by phase */
  uint32_t peak_phase[TH_TIER_SLOTS]; /* one TH_PH_*: when that peak is; 0 = the host takes the worst phase */
} th_mem_summary;
#endif
