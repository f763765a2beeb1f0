// Memory for testing one kernel: reproducible operands between guard bytes, outputs and scratch filled with
// NaN; afterwards it reports writes outside operands, changed inputs and wrong outputs. Part of
// kernel_check.hpp.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <limits>
#include <new>
#include <optional>
#include <string>
#include <vector>

namespace trainhost::executor {

/// Allocator of guarded operands: aligned to 64 bytes, any contents. Replaced for kernels that can only
/// address memory of their own allocator.
struct OperandAllocator {
  std::function<void*(std::uint64_t bytes)> allocate = [](std::uint64_t bytes) {
    return std::aligned_alloc(64, (bytes + 63) / 64 * 64);
  };
  std::function<void(void*)> release = [](void* p) { std::free(p); };
};

class GuardedOperands {
 public:
  GuardedOperands(unsigned seed, const OperandAllocator& from)
      : from_(from), state_(seed * 0x9e3779b97f4a7c15ull + 1) {}
  GuardedOperands(const GuardedOperands&) = delete;
  ~GuardedOperands() {
    for (Block& b : blocks_) from_.release(b.raw);
  }

  /// Input: random numbers in [-scale, scale]; must not change.
  const float* in(std::uint64_t count, double scale = 1.0) {
    return fill(floats(count, kInput), count, scale);
  }
  const float* in(const std::vector<float>& values) { return keep(floats(values.size(), kInput), values); }
  /// The same as an operand that is changed in place.
  float* inout(std::uint64_t count, double scale = 1.0) { return fill(floats(count, kOutput), count, scale); }
  /// Numbers in [0, scale], changed in place: second moments.
  float* inout_positive(std::uint64_t count, double scale) {
    float* p = inout(count, scale);
    for (std::uint64_t i = 0; i < count; ++i) p[i] = std::fabs(p[i]);
    return p;
  }
  /// Output: filled with NaN; every element must be written.
  float* out(std::uint64_t count) { return nan(floats(count, kOutput), count); }
  /// Scratch: filled with NaN; its final contents are not checked.
  float* scratch(std::uint64_t count) { return nan(floats(count, kScratch), count); }
  void* scratch_bytes(std::uint64_t bytes) { return scratch((bytes + 3) / 4); }
  /// Random numbers that the kernel may overwrite; the final contents are not checked.
  float* unchecked(std::uint64_t count, double scale) { return fill(floats(count, kScratch), count, scale); }
  /// Random ids below `below`; with gaps about every fifth is -100.
  const std::int32_t* ids(std::uint64_t count, std::uint64_t below, bool gaps = false) {
    std::int32_t* p = reinterpret_cast<std::int32_t*>(floats(count, kInput));
    for (std::uint64_t i = 0; i < count; ++i)
      p[i] = gaps && next() % 5 == 0 ? -100 : static_cast<std::int32_t>(next() % below);
    return p;
  }
  /// Records a value that the kernel returned.
  void result(double v) { results_.push_back(v); }

  /// Remembers the inputs. Call after creating the operands, before running the kernel.
  void seal() {
    for (Block& b : blocks_)
      if (b.use == kInput) b.before.assign(b.data(), b.data() + b.bytes);
  }
  /// The first forbidden write: outside an operand, or into an input.
  std::optional<std::string> misuse() const {
    for (std::size_t i = 0; i < blocks_.size(); ++i) {
      const Block& b = blocks_[i];
      for (std::uint64_t g = 0; g < kGuard; ++g)
        if (b.raw[g] != kMark || b.data()[b.bytes + g] != kMark)
          return std::string("wrote ") + (b.raw[g] != kMark ? "before" : "after") + " operand " +
                 std::to_string(i) + " of " + std::to_string(b.bytes) + " bytes";
      if (b.use == kInput && std::memcmp(b.before.data(), b.data(), b.bytes) != 0)
        return "changed operand " + std::to_string(i) + ", an input";
    }
    return std::nullopt;
  }
  /// The first output that differs from the expected one by more than tolerance * (1 + |expected|).
  std::optional<std::string> differs_from(const GuardedOperands& expected, double tolerance) const {
    for (std::size_t i = 0; i < results_.size(); ++i)
      if (!near(results_[i], expected.results_[i], tolerance))
        return difference("the result", 0, results_[i], expected.results_[i]);
    for (std::size_t i = 0; i < blocks_.size(); ++i) {
      if (blocks_[i].use != kOutput) continue;
      const float *mine = blocks_[i].floats(), *theirs = expected.blocks_[i].floats();
      for (std::uint64_t e = 0; e < blocks_[i].bytes / 4; ++e)
        if (!near(mine[e], theirs[e], tolerance))
          return difference("operand " + std::to_string(i), e, mine[e], theirs[e]);
    }
    return std::nullopt;
  }
  bool same_bits(const GuardedOperands& other) const {
    for (std::size_t i = 0; i < blocks_.size(); ++i)
      if (blocks_[i].use == kOutput &&
          std::memcmp(blocks_[i].data(), other.blocks_[i].data(), blocks_[i].bytes) != 0)
        return false;
    if (results_.size() != other.results_.size()) return false;
    return results_.empty() ||
           std::memcmp(results_.data(), other.results_.data(), results_.size() * sizeof(double)) == 0;
  }
  std::vector<float> values(std::size_t operand) const {
    const Block& b = blocks_[operand];
    return {b.floats(), b.floats() + b.bytes / 4};
  }

 private:
  enum Use { kInput, kOutput, kScratch };
  static constexpr std::uint64_t kGuard = 64;
  static constexpr unsigned char kMark = 0xA5;
  struct Block {
    unsigned char* raw;
    std::uint64_t bytes;
    Use use;
    std::vector<unsigned char> before;
    unsigned char* data() const { return raw + kGuard; }
    const float* floats() const { return reinterpret_cast<const float*>(data()); }
  };

  float* floats(std::uint64_t count, Use use) {
    const std::uint64_t bytes = count * sizeof(float);
    auto* raw = static_cast<unsigned char*>(from_.allocate(bytes + 2 * kGuard));
    if (!raw) throw std::bad_alloc();
    std::memset(raw, kMark, bytes + 2 * kGuard);
    blocks_.push_back({raw, bytes, use, {}});
    return reinterpret_cast<float*>(blocks_.back().data());
  }
  float* fill(float* p, std::uint64_t count, double scale) {
    for (std::uint64_t i = 0; i < count; ++i)
      p[i] = static_cast<float>((static_cast<double>(next()) / 4294967296.0 * 2 - 1) * scale);
    return p;
  }
  static float* keep(float* p, const std::vector<float>& v) {
    if (!v.empty()) std::memcpy(p, v.data(), v.size() * sizeof(float));
    return p;
  }
  static float* nan(float* p, std::uint64_t count) {
    for (std::uint64_t i = 0; i < count; ++i) p[i] = std::numeric_limits<float>::quiet_NaN();
    return p;
  }
  std::uint32_t next() {  // splitmix64
    std::uint64_t z = state_ += 0x9e3779b97f4a7c15ull;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return static_cast<std::uint32_t>((z ^ (z >> 31)) >> 32);
  }
  static bool near(double a, double b, double tolerance) {
    return std::fabs(a - b) <= tolerance * (1 + std::fabs(b));
  }
  static std::string difference(const std::string& what, std::uint64_t at, double got, double expected) {
    if (!std::isfinite(got))
      return what + ", element " + std::to_string(at) + ": not written or not finite (expected " +
             std::to_string(expected) + ")";
    return what + ", element " + std::to_string(at) + ": " + std::to_string(got) + ", expected " +
           std::to_string(expected);
  }

  const OperandAllocator& from_;
  std::uint64_t state_;
  std::vector<Block> blocks_;
  std::vector<double> results_;
};

}  // namespace trainhost::executor
