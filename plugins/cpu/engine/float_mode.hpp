// Denormal numbers count as zero while kernels run: they cost hundreds of cycles each and carry nothing that
// training needs. Set for the pool's own threads and, inside a call, for the caller's; the caller's mode is
// given back.
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
