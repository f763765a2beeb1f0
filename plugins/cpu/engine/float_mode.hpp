// Flushes denormal numbers to zero while kernels run: each one costs hundreds of cycles, and training does
// not need them. Set for the threads of the pool and, during a call, for the caller's thread, whose mode is
// restored.
#pragma once
#include <xmmintrin.h>

namespace trainhost::cpu {

class FlushDenormals {
 public:
  FlushDenormals() : before_(_mm_getcsr()) { _mm_setcsr((before_ & ~0x3fu) | 0x8040u); }  // FTZ | DAZ
  ~FlushDenormals() { _mm_setcsr(before_); }
  FlushDenormals(const FlushDenormals&) = delete;

 private:
  unsigned before_;
};

}  // namespace trainhost::cpu
