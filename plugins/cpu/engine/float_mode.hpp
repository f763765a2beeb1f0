// Sets the CPU to flush denormal numbers to zero while kernels run: an operation with a denormal takes
// hundreds of cycles, and training does not need them. The threads of the pool keep this mode; the thread of
// the caller has it during a call only.
#pragma once
#include <xmmintrin.h>

namespace trainhost::cpu {

/// Sets flush-to-zero and denormals-are-zero for the calling thread; the destructor restores the previous
/// mode.
class FlushDenormals {
 public:
  FlushDenormals() : before_(_mm_getcsr()) {
    _mm_setcsr((before_ & ~0x3fu) | 0x8040u);
  }  // clears exception flags; FTZ | DAZ
  ~FlushDenormals() { _mm_setcsr(before_); }
  FlushDenormals(const FlushDenormals&) = delete;

 private:
  unsigned before_;
};

}  // namespace trainhost::cpu
