/* trainhost plugin ABI: interface "trainhost.communicator/1" (collective operations among the processes of a
 * run, over MPI for example) and the host's extension "trainhost.ranks/1", by which a trainer starts them. Since 1.1. */
#ifndef TRAINHOST_COMMUNICATOR_H
#define TRAINHOST_COMMUNICATOR_H
#include "trainhost/host.h"

#define TH_COMMUNICATOR_ID "trainhost.communicator/1"
#define TH_RANKS_ID "trainhost.ranks/1"

#define TH_ALL_REDUCE 1u     /* every rank gets the sum, or maximum, of all ranks' elements */
#define TH_REDUCE_SCATTER 2u /* rank r gets the sum of piece r; the other pieces become undefined */
#define TH_ALL_GATHER 3u     /* every rank gets the pieces of all ranks */
#define TH_BROADCAST 4u      /* every rank gets the elements of rank `root` */

#define TH_REDUCE_SUM 1u
#define TH_REDUCE_MAX 2u

/* One operation on `count` elements at `data`, in place. Piece r is elements [r * piece, (r + 1) * piece),
 * cut at count: the last pieces may be shorter or empty. Every rank starts the same operations in the same
 * order. Elements are added in the order of the ranks, in f32 (f64: in f64): the same ranks give the same
 * bits.
 *
 * With a width the operation is one of a group, which every rank starts among its own: `width` ranks,
 * `stride` apart. The group of rank r begins with rank r - (r / stride % width) * stride; r / stride % width
 * is the number of r in it, which replaces the rank in everything above. width * stride divides the number of
 * all ranks. */
typedef struct th_collective {
  uint32_t struct_size, kind; /* TH_ALL_REDUCE, ... */
  uint32_t dtype, reduction;  /* TH_DT_F32, _BF16, _F64, _I32 or _U8 (not reduced); TH_REDUCE_* */
  uint32_t root, reserved;    /* of a broadcast */
  void* data;
  uint64_t count, piece; /* elements; piece: of TH_REDUCE_SCATTER and TH_ALL_GATHER */
  /* Memory of the caller for what other ranks send, of at least `ranks` elements; operations run one after
   * the other, so all of them may share it. */
  void* scratch;
  uint64_t scratch_bytes;
  void* stream;           /* of a device: the operation runs in its order; NULL for host memory */
  uint32_t width, stride; /* of the group; width 0: all ranks */
} th_collective;

/* Extension of the host, from th_host.extension(TH_RANKS_ID); NULL in a run of one process. The ranks of one
 * run; rank is (th_run.data_rank - 1) * th_run.tensor_parallel +
 * th_run.tensor_rank - 1: tensor-parallel ranks are neighbours. */
typedef struct th_ranks th_ranks;
struct th_ranks {
  uint32_t struct_size, rank, ranks, reserved;
  void* self; /* owned by the host */
  /* Starts an operation. Its memory must not be touched before wait() has returned. [inst] inside step() */
  th_status (*start)(const th_ranks*, const th_collective*, uint64_t* ticket, th_error*);
  /* Returns when the operation is complete on this rank. TH_E_IO: another rank failed, or the timeout of the
   * run passed; return it. [inst] inside step() */
  th_status (*wait)(const th_ranks*, uint64_t ticket, th_error*);
  /* Of this process among the ranks on its machine; local_ranks 0 = unknown. */
  uint32_t local_rank, local_ranks;
  /* After which a wait for other ranks is an error; 0 = never. For a trainer with a library of its own. */
  uint64_t timeout_ms;
};

/* How this process was started. The caller fills it with zeros. */
typedef struct th_launch {
  uint32_t struct_size, rank, ranks; /* of this process, from 0; of all */
  uint32_t local_rank, local_ranks;  /* among the processes of this machine; local_ranks 0 = unknown */
  uint32_t reserved;
  char launcher[32]; /* "mpirun (Open MPI)" */
} th_launch;

typedef struct th_communicator_inst th_communicator_inst; /* defined by the plugin */

/* All functions are mandatory. Processes that were started together call create() together, then the same
 * operations in the same order. */
typedef struct th_communicator {
  uint32_t struct_size, reserved;
  /* Reads from the environment how this process was started. TH_E_UNAVAILABLE: by no launcher that this
   * plugin knows, or a library is missing. Opens no connection. [any] {started} */
  th_status (*probe)(const th_host*, th_launch*, th_error*);
  /* Connects the processes. timeout_ms: after which a wait for other ranks is an error; 0 = never. [ctl]
   * {started} */
  th_status (*create)(const th_host*, uint64_t timeout_ms, th_communicator_inst**, th_launch*, th_error*);
  /* As th_ranks. [inst] */
  th_status (*start)(th_communicator_inst*, const th_collective*, uint64_t* ticket, th_error*);
  th_status (*wait)(th_communicator_inst*, uint64_t ticket, th_error*);
  /* Ends all processes of the run, this one with exit code `code`; does not return. For failures of which the
   * other ranks, which wait for this one, cannot know. [any] */
  void (*abort)(th_communicator_inst*, int32_t code);
  /* Disconnects; all ranks call it. [inst] */
  void (*destroy)(th_communicator_inst*);
} th_communicator;
#endif
