// Instructions of the tensor cores and of asynchronous copies as functions: PTX on the device (sm_80 and
// later), calls of the emulation in tests. The only file of this folder with two implementations of the same
// function. All functions except exp2_approx, to_tf32 and cp.async must be called by all 32 lanes of a warp.
#pragma once
#include <cuda_runtime.h>

#include <cstdint>

#ifndef __CUDACC__
#include <cuda_emulation/mma.h>
#endif

namespace trainhost::cuda {

// Fragments of d += a * b, as defined by the PTX ISA, for lane = 4*g + t (g: 0..7, t: 0..3):
//   m16n8k16, bf16   a[0]: row g,   k 2t, 2t+1     a[1]: row g+8, k 2t, 2t+1    (lower k in the lower half)
//                    a[2]: row g,   k 2t+8, 2t+9   a[3]: row g+8, k 2t+8, 2t+9
//                    b[0]: k 2t, 2t+1, column g    b[1]: k 2t+8, 2t+9, column g
//   m16n8k8, tf32    a[0]: row g, k t   a[1]: row g+8, k t   a[2]: row g, k t+4   a[3]: row g+8, k t+4
//                    b[0]: k t, column g   b[1]: k t+4, column g
//   d of both        d[0]: row g, column 2t   d[1]: row g, 2t+1   d[2]: row g+8, 2t   d[3]: row g+8, 2t+1

#ifdef __CUDACC__

__device__ __forceinline__ void mma_m16n8k16_bf16(float (&d)[4], const std::uint32_t (&a)[4],
                                                  const std::uint32_t (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

/// Operands are f32 bit patterns; the hardware ignores the lower 13 bits of the mantissa (TF32 has 10 of 23).
__device__ __forceinline__ void mma_m16n8k8_tf32(float (&d)[4], const std::uint32_t (&a)[4],
                                                 const std::uint32_t (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

/// 2^x with an error of about 2 ulp; denormal results become 0; 2^-inf = 0.
__device__ __forceinline__ float exp2_approx(float x) {
  float r;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
  return r;
}

/// Rounds to TF32, to nearest, ties away from zero.
__device__ __forceinline__ std::uint32_t to_tf32(float x) {
  std::uint32_t r;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(r) : "f"(x));
  return r;
}

__device__ __forceinline__ std::uint32_t shared_address(const void* shared) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(shared));
}

/// Loads four 8x8 matrices of 2-byte elements from shared memory. Lane 8i + j passes the address of row j of
/// matrix i, 16-byte aligned. r[i]: elements 2t, 2t+1 of row g of matrix i.
__device__ __forceinline__ void ldmatrix_x4(std::uint32_t (&r)[4], const void* shared_row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address(shared_row))
               : "memory");
}

/// The same with transposed matrices. r[i]: element g of rows 2t and 2t+1 of matrix i.
__device__ __forceinline__ void ldmatrix_x4_trans(std::uint32_t (&r)[4], const void* shared_row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address(shared_row))
               : "memory");
}

/// Starts an asynchronous copy of 16 bytes from global to shared memory, both 16-byte aligned. If `valid` is
/// false, writes zeros and reads nothing (source size 0).
__device__ __forceinline__ void cp_async_16(void* shared, const void* global, bool valid = true) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(shared)), "l"(global),
               "r"(valid ? 16 : 0)
               : "memory");
}

/// Combines the copies that this thread has started since the last commit into a group.
__device__ __forceinline__ void cp_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }

/// Waits until at most kLeft groups of this thread are pending. Other threads see the bytes only after a
/// barrier.
template <int kLeft>
__device__ __forceinline__ void cp_async_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kLeft) : "memory");
}

#else

inline void mma_m16n8k16_bf16(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2]) {
  emu::Mma m{d, a, b};
  emu::warp_collective(0xffffffffu, emu::mma_bf16, &m);
}
inline void mma_m16n8k8_tf32(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2]) {
  emu::Mma m{d, a, b};
  emu::warp_collective(0xffffffffu, emu::mma_tf32, &m);
}
inline float exp2_approx(float x) { return exp2f(x); }
inline std::uint32_t to_tf32(float x) { return emu::round_to_tf32(x); }
inline void ldmatrix_x4(std::uint32_t (&r)[4], const void* shared_row) {
  emu::LoadMatrix l{r, shared_row};
  emu::warp_collective(0xffffffffu, emu::load_matrix, &l);
}
inline void ldmatrix_x4_trans(std::uint32_t (&r)[4], const void* shared_row) {
  emu::LoadMatrix l{r, shared_row};
  emu::warp_collective(0xffffffffu, emu::load_matrix_transposed, &l);
}
inline void cp_async_16(void* shared, const void* global, bool valid = true) {
  emu::copy_async_16(shared, valid ? global : nullptr);
}
inline void cp_async_commit() { emu::copy_async_commit(); }
template <int kLeft>
void cp_async_wait() {
  emu::copy_async_wait(kLeft);
}

#endif

}  // namespace trainhost::cuda
