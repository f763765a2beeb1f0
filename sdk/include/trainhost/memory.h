/* trainhost plugin ABI: a memory breakdown as a tree of entries. Estimators send predictions in this form,
 * trainers their own plan. All sizes are bytes of one rank (the rank that needs most), below 2^63. The host
 * rejects a report that contradicts itself; its message names the node. */
#ifndef TRAINHOST_MEMORY_H
#define TRAINHOST_MEMORY_H
#include "trainhost/host.h" /* TH_TIER_* */

/* Kind of a number. */
#define TH_EXACT 1u         /* lo == bytes == hi: counted */
#define TH_UPPER_BOUND 2u   /* bytes == hi: the true value is never larger */
#define TH_APPROXIMATION 3u /* lo <= true value <= hi is claimed, and is scored */

/* Step phases in which the memory is live: a mask. */
#define TH_PH_LOAD 1u
#define TH_PH_FORWARD 2u
#define TH_PH_BACKWARD 4u
#define TH_PH_UPDATE 8u
#define TH_PH_EVAL 16u
#define TH_PH_SAVE 32u
#define TH_PH_GENERATE 64u

/* Component: what the memory is used for. */
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
#define TH_MEM_FRAGMENTATION 11u /* of an arena: its size minus the live bytes at the peak */
#define TH_MEM_RUNTIME 12u       /* of a driver or library: stated or measured, not planned */

#define TH_MEM_HAS_AT_PEAK 1u /* bytes_at_peak is set (it may be 0) */

/* A node. A node that is the parent of others is a heading: its name is used, its numbers are ignored. All
 * other nodes are entries. */
typedef struct th_mem {
  /* Ids are 1..n in the order of the calls; a parent is sent before its children; parent 0 = root. */
  uint32_t struct_size, id, parent;
  uint32_t tier, component, claim; /* TH_TIER_*; TH_MEM_*; TH_EXACT, TH_UPPER_BOUND or TH_APPROXIMATION */
  uint32_t phases, flags;          /* TH_PH_* mask, 0 = always live; TH_MEM_HAS_* mask */
  uint64_t bytes, lo, hi;          /* maximum over time; bounds of the claim, both 0 = implied by the claim */
  uint64_t bytes_at_peak;     /* share of the peak of its tier: the entries of a tier add up to that peak */
  const char *name, *formula; /* "layers[].qkv", "L*B*S*(A+2K)*D*4"; NULL = none; read up to 2000 bytes */
} th_mem;

/* Owned by the host; valid inside the call that passes it, on the thread of that call. If a function returns
 * a code other than TH_OK, the host rejects the report: return that code. */
typedef struct th_mem_sink th_mem_sink;
struct th_mem_sink {
  uint32_t struct_size, reserved;
  void* self;
  /* Adds a node; fewer than 10^6 per report. */
  th_status (*node)(th_mem_sink*, const th_mem*);
  /* Adds a sentence for the user: what is not counted, and why. At most 1000 per report. */
  th_status (*note)(th_mem_sink*, const char* sentence);
};

/* Totals of a plan or an estimate. The caller fills it with zeros. */
typedef struct th_mem_summary {
  uint32_t struct_size, claim;        /* of the total; 0 = the least certain claim of the entries */
  uint64_t digest;                    /* of the plan; equal digests: equal plans, to the offset; 0 = none */
  uint64_t tier_peak[TH_TIER_SLOTS];  /* bytes, by TH_TIER_*; 0 = unset: the host adds up entries by phase */
  uint32_t peak_phase[TH_TIER_SLOTS]; /* phase of that peak: one TH_PH_*; 0 = the host finds it */
} th_mem_summary;
#endif
