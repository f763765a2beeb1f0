// Interface "trainhost.decode/0": inference for many rows of several sequences at a time. Provisional: it is
// not part of the frozen SDK (sdk/abi/README.md) until a second trainer implements it. A host uses it only if
// the revision is its own; without it, it falls back to th_generate, one token at a time.
#pragma once
#include <cstdint>

#include "trainhost/host.h"
#include "trainhost/memory.h"
#include "trainhost/model.h"
#include "trainhost/trainer.h"

namespace trainhost::abi {

inline constexpr const char* kDecodeId = "trainhost.decode/0";
/// Incremented whenever a struct below or the meaning of a call changes.
inline constexpr std::uint32_t kDecodeRevision = 1;

struct DecodeOptions {
  std::uint32_t weight_type;  // TH_DT_F32 or TH_DT_BF16: how matrices are kept; vectors are f32
  std::uint32_t sequences;    // sequences that have a key/value cache
  std::uint32_t context;      // positions of each
  std::uint32_t rows;         // rows of one forward(), at most
};

/// Bytes that create() allocates, as one block of the host tier with the tag "decoder".
struct DecodeMemory {
  std::uint64_t weights, cache, workspace;
};

/// One token at a position of a sequence. Its keys and values are appended to the cache of the sequence. Rows
/// of one sequence are neighbours and have consecutive positions; the first position is at most the number of
/// positions in the cache, and what the cache has beyond it is discarded.
struct DecodeRow {
  std::int32_t token;
  std::uint32_t sequence, position;
  std::uint32_t wants_logits;  // 1: the logits of the next token are computed
};

struct DecodeInstance;

/// Functions return TH_OK or an error as those of th_trainer do.
struct DecodeTable {
  th_status (*memory)(const th_host*, const th_model*, const DecodeOptions*, DecodeMemory*, th_error*);
  th_status (*create)(const th_host*, const th_model*, const DecodeOptions*, DecodeInstance**, th_error*);
  /// A part of a weight, as f32. Matrices kept as bf16 are rounded to nearest even.
  th_status (*load)(DecodeInstance*, const th_tensor*, th_error*);
  /// logits: [rows that want them, vocab], in the order of the rows. After an error each sequence of the call
  /// ends where its rows began.
  th_status (*forward)(DecodeInstance*, const DecodeRow*, std::uint32_t rows, float* logits, th_error*);
  void (*destroy)(DecodeInstance*);
};

/// The table that get(kDecodeId) returns. open() loads what the functions need; the result is valid until the
/// process ends.
struct DecodeEntry {
  std::uint32_t revision, reserved;
  th_status (*open)(const th_host*, const DecodeTable**, th_error*);
};

/// For TH_PLUGIN, which finds it by argument-dependent lookup.
inline const char* id_of(const DecodeEntry*) noexcept { return kDecodeId; }

}  // namespace trainhost::abi
