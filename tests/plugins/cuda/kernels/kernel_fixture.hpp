// Fixture for tests of kernels: runs a kernel under every schedule of the emulation. Arrays have guard bytes
// on both sides, outputs are filled with NaN, results are compared with references in double and must have
// the same bits under every schedule. An array without an expected result must not change.
#pragma once
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <random>
#include <type_traits>

#include "emu.hpp"
#include "plugins/cuda/kernels/kernel_functions.hpp"
#include "tests/support/reference_ops.hpp"

namespace trainhost::test {

using cuda::Bf16;
using reference::Ids;
using reference::Vec;
namespace ref = reference;

/// Reproducible numbers in about [-scale, scale] that are exact in f32.
inline Vec random_vec(std::size_t n, unsigned seed, double scale = 1.0) {
  std::mt19937 g(seed);
  Vec v(n);
  for (double& x : v) x = static_cast<float>((static_cast<double>(g()) / 4294967296.0 * 2 - 1) * scale);
  return v;
}
template <class T>
T stored(double x) {
  if constexpr (std::is_same_v<T, Bf16>)
    return __float2bfloat16_rn(static_cast<float>(x));
  else
    return static_cast<T>(x);
}
template <class T>
double value(T x) {
  if constexpr (std::is_same_v<T, Bf16>)
    return static_cast<double>(__bfloat162float(x));
  else
    return static_cast<double>(x);
}
/// The values rounded to T, so that references have the same inputs as kernels.
template <class T>
Vec rounded(Vec v) {
  for (double& x : v) x = value(stored<T>(x));
  return v;
}
template <class T>
Vec random_of(std::size_t n, unsigned seed, double scale = 1.0) {
  return rounded<T>(random_vec(n, seed, scale));
}

/// |actual - expected| <= relative * |expected| + absolute. NaN is accepted only if it is expected.
struct Tolerance {
  double relative, absolute;
};
/// Tolerance for results of f32 arithmetic on numbers near 1, sums of some hundred terms included; results
/// stored as bf16 are also rounded to 8 bits.
template <class T>
constexpr Tolerance close() {
  if constexpr (std::is_same_v<T, Bf16>)
    return {1.0 / 256, 2e-5};
  else
    return {1e-5, 1e-5};
}
inline constexpr Tolerance kExact{0, 0};

/// An array that starts `shift` elements after a 16-byte boundary, with guard bytes on both sides.
class ArrayBase {
 public:
  ArrayBase(std::size_t n, std::size_t size, std::size_t shift)
      : size_(size), bytes_(n * size), start_(kGuard + shift * size) {
    data_.reset(
        static_cast<unsigned char*>(std::aligned_alloc(64, (start_ + bytes_ + kGuard + 63) / 64 * 64)));
    std::memset(data_.get(), kPattern, start_ + bytes_ + kGuard);
  }
  virtual ~ArrayBase() = default;
  virtual double at(std::size_t i) const = 0;
  std::size_t count() const { return bytes_ / size_; }
  bool starts_at(const void* at) const { return at == first(); }
  std::vector<unsigned char> bits() const { return {first(), first() + bytes_}; }
  bool guards_unchanged() const {
    for (std::size_t i = 0; i < start_; ++i)
      if (data_.get()[i] != kPattern || (i < kGuard && first()[bytes_ + i] != kPattern)) return false;
    return true;
  }
  std::vector<unsigned char> before;  // bytes before the kernel ran
  const Vec* expected = nullptr;      // null: must not change
  Tolerance tolerance = kExact;
  bool any_result = false;  // its result is not checked
  std::string name = "an input";

 protected:
  static constexpr std::size_t kGuard = 128;  // bytes
  static constexpr unsigned char kPattern = 0xa5;
  unsigned char* first() const { return data_.get() + start_; }

 private:
  struct Free {
    void operator()(unsigned char* p) const { std::free(p); }
  };
  std::size_t size_, bytes_, start_;
  std::unique_ptr<unsigned char, Free> data_;
};
template <class T>
class Array final : public ArrayBase {
 public:
  Array(std::size_t n, std::size_t shift) : ArrayBase(n, sizeof(T), shift) {}
  T* data() const { return reinterpret_cast<T*>(first()); }
  double at(std::size_t i) const override { return value(data()[i]); }
};

/// One run of a kernel under one schedule, with its stream and arrays.
class KernelRun {
 public:
  KernelRun() { BOOST_REQUIRE_EQUAL(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess); }
  ~KernelRun() { cudaStreamDestroy(stream); }
  KernelRun(const KernelRun&) = delete;

  /// An array with these values. The kernel must not change it unless expect() was called for it.
  template <class T, class Values>
  T* in(const Values& values, std::size_t shift = 0) {
    auto array = std::make_unique<Array<T>>(values.size(), shift);
    for (std::size_t i = 0; i < values.size(); ++i) array->data()[i] = stored<T>(values[i]);
    return keep(std::move(array));
  }
  /// An output array, filled with NaN.
  template <class T>
  T* out(std::size_t n, std::size_t shift = 0) {
    return in<T>(Vec(n, std::numeric_limits<double>::quiet_NaN()), shift);
  }

  /// Sets the expected result of an array. `values` must outlive the run.
  template <class T>
  void expect(T* array, const char* name, const Vec& values, Tolerance t) {
    for (auto& a : arrays_) {
      if (!a->starts_at(array)) continue;
      BOOST_REQUIRE_EQUAL(a->count(), values.size());
      a->expected = &values, a->tolerance = t, a->name = name;
      return;
    }
    BOOST_FAIL("no such array");
  }
  /// The result of the array is not checked, except that it must be the same under every schedule.
  template <class T>
  void expect_any(T* array) {
    for (auto& a : arrays_)
      if (a->starts_at(array)) a->any_result = true;
  }
  void require_success(cudaError_t e) { BOOST_REQUIRE_EQUAL(e, cudaSuccess); }

  cudaStream_t stream = nullptr;

 private:
  friend void under_every_schedule(const std::function<void(KernelRun&)>&);
  template <class T>
  T* keep(std::unique_ptr<Array<T>> array) {
    array->before = array->bits();
    T* data = array->data();
    arrays_.push_back(std::move(array));
    return data;
  }
  void finish() {
    require_success(cudaStreamSynchronize(stream));
    BOOST_TEST(emu::problems().empty());
    for (auto& a : arrays_) {
      BOOST_TEST(a->guards_unchanged(), a->name << ": written out of bounds");
      if (a->any_result) continue;
      if (a->expected == nullptr) {
        BOOST_TEST((a->bits() == a->before), "an input was written");
        continue;
      }
      for (std::size_t i = 0; i < a->count(); ++i) {
        const double got = a->at(i), wanted = (*a->expected)[i];
        const bool good =
            std::fabs(got - wanted) <= a->tolerance.relative * std::fabs(wanted) + a->tolerance.absolute ||
            (std::isinf(wanted) && got == wanted) || (std::isnan(wanted) && std::isnan(got));
        if (good) continue;
        BOOST_TEST(good, a->name << "[" << i << " of " << a->count() << "] is " << got << ", not " << wanted);
        break;
      }
    }
  }
  std::vector<unsigned char> results() const {
    std::vector<unsigned char> all;
    for (const auto& a : arrays_) {
      const std::vector<unsigned char> one = a->bits();
      all.insert(all.end(), one.begin(), one.end());
    }
    return all;
  }
  std::vector<std::unique_ptr<ArrayBase>> arrays_;
};

/// Calls body with a new KernelRun under every schedule and checks the results.
inline void under_every_schedule(const std::function<void(KernelRun&)>& body) {
  std::vector<unsigned char> first;
  std::size_t n = 0;
  for (const emu::Schedule& schedule : emu::every_schedule()) {
    BOOST_TEST_CONTEXT("schedule " << n) {
      emu::set_schedule(schedule);
      KernelRun run;
      body(run);
      run.finish();
      if (n++ == 0)
        first = run.results();
      else
        BOOST_TEST((run.results() == first), "bits depend on the schedule");
    }
  }
  emu::set_schedule({});
}

}  // namespace trainhost::test
