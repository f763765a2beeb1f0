// dim3 and the short vector types, with the alignment that vector loads need.
#pragma once

#define EMU_VECTOR2(name, T, bytes)             \
  struct __attribute__((aligned(bytes))) name { \
    T x, y;                                     \
  };                                            \
  static inline constexpr name make_##name(T x, T y) { return {x, y}; }
#define EMU_VECTOR3(name, T) \
  struct name {              \
    T x, y, z;               \
  };                         \
  static inline constexpr name make_##name(T x, T y, T z) { return {x, y, z}; }
#define EMU_VECTOR4(name, T, bytes)             \
  struct __attribute__((aligned(bytes))) name { \
    T x, y, z, w;                               \
  };                                            \
  static inline constexpr name make_##name(T x, T y, T z, T w) { return {x, y, z, w}; }

EMU_VECTOR2(short2, short, 4)
EMU_VECTOR2(ushort2, unsigned short, 4)
EMU_VECTOR2(int2, int, 8)
EMU_VECTOR2(uint2, unsigned, 8)
EMU_VECTOR2(float2, float, 8)
EMU_VECTOR2(double2, double, 16)
EMU_VECTOR2(longlong2, long long, 16)
EMU_VECTOR2(ulonglong2, unsigned long long, 16)
EMU_VECTOR3(int3, int)
EMU_VECTOR3(uint3, unsigned)
EMU_VECTOR3(float3, float)
EMU_VECTOR4(short4, short, 8)
EMU_VECTOR4(ushort4, unsigned short, 8)
EMU_VECTOR4(int4, int, 16)
EMU_VECTOR4(uint4, unsigned, 16)
EMU_VECTOR4(float4, float, 16)
#undef EMU_VECTOR2
#undef EMU_VECTOR3
#undef EMU_VECTOR4

struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned vx = 1, unsigned vy = 1, unsigned vz = 1) : x(vx), y(vy), z(vz) {}
  constexpr dim3(uint3 v) : x(v.x), y(v.y), z(v.z) {}
  constexpr operator uint3() const { return {x, y, z}; }
};
