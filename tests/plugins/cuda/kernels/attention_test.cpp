// Attention kernels on the emulation, compared with a naive implementation in double: plain kernels, bf16 and
// TF32 tensor-core kernels with products of warps, and of warpgroups on compute capability 9.0; forward,
// backward and one generated token. Outputs and the guard elements behind
// them are NaN before the call.
#include <boost/test/unit_test.hpp>

#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "emu.hpp"
#include "plugins/cuda/kernels/kernel_functions.hpp"
#include "tests/support/reference_ops.hpp"

namespace trainhost::cuda {
namespace {

using reference::Heads;
using reference::Vec;
namespace ref = reference;

constexpr double kExactTolerance = 2e-5;  // f32 sums of some hundred products of numbers below 1
constexpr std::size_t kGuard = 64;        // elements behind each array that must not be written

template <class T>
double widen(T x) {
  if constexpr (std::is_same_v<T, Bf16>)
    return __bfloat162float(x);
  else
    return x;
}
template <class T>
T narrow(double x) {
  if constexpr (std::is_same_v<T, Bf16>)
    return __float2bfloat16_rn(static_cast<float>(x));
  else
    return static_cast<T>(x);
}

/// An array in device memory, filled with NaN or with values rounded to T.
template <class T>
class Array {
 public:
  explicit Array(std::size_t n) : count_(n) {
    BOOST_REQUIRE(cudaMalloc(&data_, bytes()) == cudaSuccess);
    BOOST_REQUIRE(cudaMemsetAsync(data_, 0xff, bytes(), nullptr) == cudaSuccess);
    BOOST_REQUIRE(cudaStreamSynchronize(nullptr) == cudaSuccess);
  }
  explicit Array(const Vec& values) : Array(values.size()) {
    std::vector<T> host(values.size());
    for (std::size_t i = 0; i < host.size(); ++i) host[i] = narrow<T>(values[i]);
    BOOST_REQUIRE(cudaMemcpyAsync(data_, host.data(), host.size() * sizeof(T), cudaMemcpyHostToDevice,
                                  nullptr) == cudaSuccess);
    BOOST_REQUIRE(cudaStreamSynchronize(nullptr) == cudaSuccess);
  }
  ~Array() { (void)cudaFree(data_); }
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;
  operator T*() const { return data_; }

  Vec values() const {
    std::vector<T> host(count_ + kGuard);
    BOOST_REQUIRE(cudaMemcpyAsync(host.data(), data_, bytes(), cudaMemcpyDeviceToHost, nullptr) ==
                  cudaSuccess);
    BOOST_REQUIRE(cudaStreamSynchronize(nullptr) == cudaSuccess);
    for (std::size_t i = count_; i < host.size(); ++i) BOOST_REQUIRE(std::isnan(widen(host[i])));
    Vec v(count_);
    for (std::size_t i = 0; i < count_; ++i) v[i] = widen(host[i]);
    return v;
  }

 private:
  std::size_t bytes() const { return (count_ + kGuard) * sizeof(T); }
  std::size_t count_;
  T* data_ = nullptr;
};

/// Random numbers in [-scale, scale] that are exact in T, or in bf16 if `coarse`.
template <class T>
Vec numbers(std::size_t n, unsigned seed, double scale, bool coarse) {
  std::mt19937 g(seed);
  Vec v(n);
  for (double& x : v) {
    x = (static_cast<double>(g()) / 4294967296.0 * 2 - 1) * scale;
    x = coarse ? widen(narrow<Bf16>(x)) : widen(narrow<T>(x));
  }
  return v;
}

/// Largest difference relative to the largest expected value; infinity if a value is not finite.
double distance(const Vec& got, const Vec& expected) {
  double worst = 0, largest = 1e-30;
  for (std::size_t i = 0; i < got.size(); ++i) {
    if (!std::isfinite(got[i])) return std::numeric_limits<double>::infinity();
    worst = std::max(worst, std::abs(got[i] - expected[i])),
    largest = std::max(largest, std::abs(expected[i]));
  }
  return got.size() == expected.size() ? worst / largest : std::numeric_limits<double>::infinity();
}

AttentionShape attention_shape(const Heads& h, std::size_t sequences) {
  auto u = [](std::size_t n) { return static_cast<std::uint32_t>(n); };
  return {u(sequences), u(h.seq), u(h.heads), u(h.kv_heads), u(h.d), u(h.window)};
}

struct Results {
  Vec o, lse, delta, dqkv;
  bool operator==(const Results&) const = default;
};

struct Problem {
  Heads shape;
  std::size_t sequences;
  double scale = 1;
  bool coarse = false;
  std::size_t rows() const { return sequences * shape.seq; }
};

/// starts: of documents, by row; empty: a sequence is one document.
template <class T>
Results run(const Problem& p, F32Products f32, const Vec& starts = {}) {
  const Heads& h = p.shape;
  AttentionShape s = attention_shape(h, p.sequences);
  const Array<std::int32_t> on_device(starts.empty() ? Vec(1) : starts);
  if (!starts.empty()) s.starts = on_device;
  const Array<T> qkv(numbers<T>(p.rows() * h.width(), 1, p.scale, p.coarse)),
      d_o(numbers<T>(p.rows() * h.heads * h.d, 2, 1, p.coarse));
  const Array<T> o(p.rows() * h.heads * h.d), dqkv(p.rows() * h.width());
  const Array<float> lse(p.rows() * h.heads), delta(p.rows() * h.heads);
  BOOST_REQUIRE(attention<T>(nullptr, s, f32, qkv, o, lse) == cudaSuccess);
  BOOST_REQUIRE(attention_bwd<T>(nullptr, s, f32, d_o, o, lse, qkv, delta, dqkv) == cudaSuccess);
  BOOST_REQUIRE(cudaStreamSynchronize(nullptr) == cudaSuccess);
  return {o.values(), lse.values(), delta.values(), dqkv.values()};
}

/// Columns [from, to) of rows of `width`: q, k and v are checked separately, because their gradients differ
/// in size.
Vec columns(const Vec& x, std::size_t width, std::size_t from, std::size_t to) {
  Vec part;
  for (std::size_t r = 0; r < x.size() / width; ++r)
    part.insert(part.end(), x.begin() + static_cast<long>(r * width + from),
                x.begin() + static_cast<long>(r * width + to));
  return part;
}

template <class T>
void check(const Problem& p, F32Products f32, double tolerance) {
  const Heads& h = p.shape;
  const char* type = sizeof(T) == 2 ? "bf16" : f32 == F32Products::kTf32 ? "tf32" : "f32";
  BOOST_TEST_CONTEXT(type << " d " << h.d << " seq " << h.seq << " x" << p.sequences << " heads " << h.heads
                          << "/" << h.kv_heads << " window " << h.window) {
    const Results got = run<T>(p, f32);
    const Vec qkv = numbers<T>(p.rows() * h.width(), 1, p.scale, p.coarse),
              d_o = numbers<T>(p.rows() * h.heads * h.d, 2, 1, p.coarse);
    const Vec expected = ref::attention_bwd(d_o, qkv, h);
    Vec lse(p.rows() * h.heads);
    for (std::size_t b = 0; b < p.sequences; ++b)
      for (std::size_t head = 0; head < h.heads; ++head) {
        Vec of_head;
        ref::probabilities(qkv, h, b, head, &of_head);
        for (std::size_t r = 0; r < h.seq; ++r) lse[(b * h.seq + r) * h.heads + head] = of_head[r];
      }
    BOOST_TEST(distance(got.o, ref::attention(qkv, h)) <= tolerance);
    // Products of bf16 are exact in f32, and weights are added before they are rounded.
    const bool tf32 = sizeof(T) == 4 && tolerance > kExactTolerance;
    BOOST_TEST(distance(got.lse, lse) <= (tf32 ? tolerance : kExactTolerance));
    const std::size_t q = h.heads * h.d, k = q + h.kv_heads * h.d, w = h.width();
    // With a single visible key its weight is 1, and dq and dk are 0: their error is the rounding of numbers
    // near 1, so 1 is added to the scale of the comparison.
    auto gradient = [&](std::size_t from, std::size_t to) {
      Vec g = columns(got.dqkv, w, from, to), e = columns(expected, w, from, to);
      g.push_back(1), e.push_back(1);
      return distance(g, e);
    };
    BOOST_TEST(gradient(0, q) <= tolerance * p.scale);
    BOOST_TEST(gradient(q, k) <= tolerance * p.scale);
    BOOST_TEST(gradient(k, w) <= tolerance);
  }
}

struct Mode {
  F32Products f32;
  bool bf16;
  double tolerance;
};
constexpr Mode kModes[] = {{F32Products::kExact, false, kExactTolerance},
                           {F32Products::kTf32, false, 2e-3},
                           {F32Products::kExact, true, 2e-2}};

/// Rows [from, from + n) of a matrix with rows of `width`.
Vec rows_of(const Vec& x, std::size_t width, std::size_t from, std::size_t n) {
  return Vec(x.begin() + static_cast<long>(from * width), x.begin() + static_cast<long>((from + n) * width));
}
void append(Vec& to, const Vec& x) { to.insert(to.end(), x.begin(), x.end()); }

/// Sequences of documents of the given lengths, in turn: compared with each document in a sequence of its
/// own. Returns the starts.
template <class T>
Vec check_documents(const Problem& p, const Mode& mode, const std::vector<std::size_t>& lengths) {
  const Heads& h = p.shape;
  const std::size_t w = h.width(), ow = h.heads * h.d;
  const Vec qkv = numbers<T>(p.rows() * w, 1, p.scale, p.coarse),
            d_o = numbers<T>(p.rows() * ow, 2, 1, p.coarse);
  Vec o, dqkv, starts;
  for (std::size_t row = 0, i = 0; row < p.rows(); ++i) {
    const std::size_t in_sequence = row % h.seq,
                      length = std::min(lengths[i % lengths.size()], h.seq - in_sequence);
    Heads alone = h;
    alone.seq = length;
    append(o, ref::attention(rows_of(qkv, w, row, length), alone));
    append(dqkv, ref::attention_bwd(rows_of(d_o, ow, row, length), rows_of(qkv, w, row, length), alone));
    starts.insert(starts.end(), length, static_cast<double>(in_sequence));
    row += length;
  }
  const Results got = run<T>(p, mode.f32, starts);
  BOOST_TEST_CONTEXT((mode.bf16                        ? "bf16"
                      : mode.f32 == F32Products::kTf32 ? "tf32"
                                                       : "f32")
                     << " d " << h.d << " seq " << h.seq << " heads " << h.heads << "/" << h.kv_heads
                     << " window " << h.window) {
    BOOST_TEST(distance(got.o, o) <= mode.tolerance);
    BOOST_TEST(distance(got.dqkv, dqkv) <= mode.tolerance);
    // Without the mask, and with one start that is a token off, the comparison fails.
    BOOST_TEST(distance(run<T>(p, mode.f32).o, o) > mode.tolerance);
    Vec wrong = starts;
    for (std::size_t r = 1; r < wrong.size(); ++r)
      if (r % h.seq && wrong[r] == static_cast<double>(r % h.seq)) {
        wrong[r] = wrong[r - 1];
        break;
      }
    BOOST_TEST(distance(run<T>(p, mode.f32, wrong).o, o) > mode.tolerance);
  }
  return starts;
}
void check(const Problem& p, const Mode& mode) {
  if (mode.bf16)
    check<Bf16>(p, mode.f32, mode.tolerance);
  else
    check<float>(p, mode.f32, mode.tolerance);
}

void use_device(int major, int minor) {
  emu::reset();
  emu::Machine machine;
  machine.major = major, machine.minor = minor;
  emu::set_machine(machine);
}

constexpr std::size_t kLengths[] = {1, 5, 16, 63, 64, 65, 130, 200};
constexpr std::size_t kHeadCounts[][2] = {{1, 1}, {4, 2}, {4, 1}};
constexpr std::size_t kWindows[] = {0, 1, 7, 64};

BOOST_AUTO_TEST_SUITE(cuda_attention)

// Every head size with every length. Numbers of heads, windows and sequences alternate, so that all
// combinations occur.
BOOST_AUTO_TEST_CASE(attention_and_its_gradient_match_the_naive_version) {
  use_device(8, 0);
  const std::vector<emu::Schedule> schedules = emu::every_schedule();
  std::size_t turn = 0;
  for (const Mode& mode : kModes)
    for (std::size_t d : {8u, 16u, 32u, 64u, 96u, 128u})
      for (std::size_t seq : kLengths) {
        const auto& heads = kHeadCounts[turn % 3];
        emu::set_schedule(schedules[turn % schedules.size()]);
        check({{seq, heads[0], heads[1], d, kWindows[(turn + turn / 8) % 4]},
               seq < 100 && turn % 5 < 2 ? 2u : 1u},
              mode);
        ++turn;
      }
  emu::reset();
}

// Heads of 64 elements: the same bits as with products of warps, because all sums have the same order; an
// H100 gives the same bits too. Heads of 128: the tiles of the forward pass have more keys.
BOOST_AUTO_TEST_CASE(products_of_warpgroups_match_the_naive_version_and_products_of_warps) {
  const std::vector<emu::Schedule> schedules = emu::every_schedule();
  std::size_t turn = 0;
  for (const std::size_t d : {64u, 128u})
    for (const std::size_t seq : {1u, 63u, 64u, 65u, 130u, 257u, 300u}) {
      const auto& heads = kHeadCounts[turn % 3];
      const Problem p{{seq, heads[0], heads[1], d, kWindows[turn % 4]}, seq < 100 && turn % 5 < 2 ? 2u : 1u};
      use_device(8, 0);
      const Results warps = run<Bf16>(p, F32Products::kExact);
      use_device(9, 0);
      emu::set_schedule(schedules[turn++ % schedules.size()]);
      check(p, kModes[2]);
      const Results warpgroups = run<Bf16>(p, F32Products::kExact);
      if (d == 64) BOOST_TEST((warpgroups == warps), "seq " << seq);
      auto launches = emu::statistics().launches_of;
      BOOST_TEST(launches["wgmma_forward_kernel"] == 2u);
      BOOST_TEST(launches["wgmma_dq_kernel"] == 2u);
      BOOST_TEST(launches["wgmma_dkv_kernel"] == 2u);
    }
  emu::reset();
}

BOOST_AUTO_TEST_CASE(windows_of_every_size_mask_exactly) {
  for (const int major : {8, 9}) {
    use_device(major, 0);
    for (const Mode& mode : kModes)
      for (std::size_t window : {0u, 1u, 2u, 7u, 31u, 63u, 64u, 65u, 129u, 150u, 1000u})
        if (major == 8 || mode.bf16) check({{150, 1, 1, 64, window}, 1}, mode);
  }
  emu::reset();
}

// Documents that end inside of tiles, at their ends and after several, under every kernel.
BOOST_AUTO_TEST_CASE(documents_of_a_sequence_attend_to_themselves_only) {
  const std::vector<emu::Schedule> schedules = emu::every_schedule();
  std::size_t turn = 0;
  for (const Mode& mode : kModes)
    for (const std::size_t d : {20u, 64u, 128u, 256u, 64u, 128u}) {
      // The last two: with products of warpgroups.
      const int major = turn % 6 > 3 ? 9 : 8;
      if (major == 9 && !mode.bf16) {
        ++turn;
        continue;
      }
      use_device(major, 0);
      const auto& heads = kHeadCounts[turn % 3];
      emu::set_schedule(schedules[turn % schedules.size()]);
      const Problem p{{d > 64 ? 110u : 150u, heads[0], heads[1], d, turn % 3 == 1 ? 30u : 0u},
                      d == 20 ? 2u : 1u};
      const std::vector<std::size_t> lengths = {3, 64, 1, 90, 17, 30};
      if (mode.bf16)
        check_documents<Bf16>(p, mode, lengths);
      else
        check_documents<float>(p, mode, lengths);
      ++turn;
    }
  emu::reset();
}

BOOST_AUTO_TEST_CASE(head_sizes_that_are_no_multiple_of_a_tile) {
  for (std::size_t d : {1u, 20u, 80u, 129u, 200u, 256u})
    for (bool bf16 : {false, true})
      check({{70, 2, 1, d, 40}, 1}, Mode{F32Products::kTf32, bf16, bf16 ? 2e-2 : kExactTolerance});
}

// On a device with 99 KiB of shared memory per block too.
BOOST_AUTO_TEST_CASE(bf16_heads_of_48_80_and_256_elements_use_tensor_cores) {
  const std::vector<emu::Schedule> schedules = emu::every_schedule();
  std::size_t turn = 0;
  for (const int minor : {0, 6}) {
    emu::reset();
    emu::Machine machine;
    machine.major = 8, machine.minor = minor;
    emu::set_machine(machine);
    for (const std::size_t d : {48u, 80u, 256u})
      for (const std::size_t seq : {1u, 63u, 65u, 130u}) {
        const auto& heads = kHeadCounts[turn % 3];
        emu::set_schedule(schedules[turn % schedules.size()]);
        check({{seq, heads[0], heads[1], d, kWindows[(turn + turn / 4) % 4]}, turn % 5 < 2 ? 2u : 1u},
              kModes[2]);
        ++turn;
      }
    auto launches = emu::statistics().launches_of;
    BOOST_TEST(launches["mma_forward_kernel"] == 12u);
    BOOST_TEST(launches["mma_dq_kernel"] == 12u);
    BOOST_TEST(launches["mma_dkv_kernel"] == 16u);  // dk and dv of heads of 256 elements are two launches
    BOOST_TEST(launches["plain_forward_kernel"] == 0u);
  }
  emu::reset();
}

/// Threads of the launches of a forward and a backward pass, by kernel. With this cost a kernel takes a
/// microsecond per thread.
template <class T>
std::map<std::string, long> threads_of_kernels(const Problem& p, F32Products f32) {
  emu::Costs costs;
  costs.kernel_us = 0, costs.kernel_us_per_thread = 1;
  emu::set_costs(costs);
  emu::set_trace(true);
  run<T>(p, f32);
  std::map<std::string, long> threads;
  for (const emu::Record& r : emu::take_trace())
    if (r.name.starts_with("mma_") || r.name.starts_with("wgmma_"))
      threads[r.name] += std::lround(r.end_us - r.begin_us);
  return threads;
}

// Two blocks of four warps fit on 8.0 and 9.0, with TF32 only on 9.0, where bf16 has kernels of its own. k
// and v of a TF32 backward pass are too large for eight warps.
BOOST_AUTO_TEST_CASE(heads_of_128_elements_use_eight_warps_where_two_blocks_do_not_fit) {
  const Problem one_block{{60, 1, 1, 128, 0}, 1};
  struct Device {
    int major, minor, bf16_warps, tf32_warps;
  };
  for (const Device& d :
       {Device{8, 0, 4, 8}, {8, 6, 8, 8}, {8, 9, 8, 8}, {9, 0, 0, 4}, {10, 0, 4, 4}, {12, 0, 8, 8}}) {
    BOOST_TEST_CONTEXT(d.major << "." << d.minor) {
      use_device(d.major, d.minor);
      auto bf16 = threads_of_kernels<Bf16>(one_block, F32Products::kExact);
      for (const char* kernel : {"mma_forward_kernel", "mma_dq_kernel", "mma_dkv_kernel"})
        BOOST_TEST(bf16[kernel] == 32 * d.bf16_warps, kernel);
      for (const char* kernel : {"wgmma_forward_kernel", "wgmma_dkv_kernel"})
        BOOST_TEST(bf16[kernel] == (d.bf16_warps == 0 ? 256 : 0), kernel);
      use_device(d.major, d.minor);
      auto tf32 = threads_of_kernels<float>(one_block, F32Products::kTf32);
      BOOST_TEST(tf32["mma_forward_kernel"] == 32 * d.tf32_warps);
      for (const char* kernel : {"mma_dq_kernel", "mma_dkv_kernel"})
        BOOST_TEST(tf32[kernel] == 32 * 4, kernel);
    }
  }
  emu::reset();
}

BOOST_AUTO_TEST_CASE(eight_warps_match_the_naive_version_and_in_bf16_the_bits_of_four) {
  const std::vector<emu::Schedule> schedules = emu::every_schedule();
  std::size_t turn = 0;
  for (const std::size_t seq : {1u, 63u, 65u, 130u, 257u, 300u})
    for (const std::size_t window : {0u, 70u}) {
      const auto& heads = kHeadCounts[turn % 3];
      const Problem p{{seq, heads[0], heads[1], 128, window}, turn % 5 < 2 ? 2u : 1u};
      use_device(8, 0);
      const Results four = run<Bf16>(p, F32Products::kExact);
      use_device(8, 6);
      emu::set_schedule(schedules[turn++ % schedules.size()]);
      check(p, kModes[1]);
      check(p, kModes[2]);
      BOOST_TEST((run<Bf16>(p, F32Products::kExact) == four), "seq " << seq << " window " << window);
    }
  emu::reset();
}

// The kernel of dq writes what the kernel of dk and dv reads.
BOOST_AUTO_TEST_CASE(delta_is_the_sum_of_the_outputs_times_their_gradients) {
  for (const std::size_t d : {48u, 64u, 80u, 96u, 128u, 256u})
    for (const bool bf16 : {true, false}) {
      if (!bf16 && (d == 48 || d == 80 || d == 256)) continue;  // the plain kernels
      const Problem p{{70, 4, 2, d, 0}, 2};
      const Results got = bf16 ? run<Bf16>(p, F32Products::kExact) : run<float>(p, F32Products::kTf32);
      const std::size_t n = p.rows() * 4 * d;
      const Vec d_o = bf16 ? numbers<Bf16>(n, 2, 1, false) : numbers<float>(n, 2, 1, false);
      Vec expected(p.rows() * 4);
      for (std::size_t i = 0; i < n; ++i) expected[i / d] += d_o[i] * got.o[i];
      BOOST_TEST(distance(got.delta, expected) <= kExactTolerance, "d " << d << (bf16 ? ", bf16" : ", tf32"));
    }
}

BOOST_AUTO_TEST_CASE(large_scores_do_not_overflow) {
  for (const int major : {8, 9}) {
    use_device(major, 0);
    for (const Mode& mode : kModes)
      for (std::size_t d : {64u, 128u})
        if (major == 8 || mode.bf16) check({{130, 2, 1, d, 0}, 1, 30, true}, Mode{mode.f32, mode.bf16, 2e-2});
  }
  emu::reset();
}

BOOST_AUTO_TEST_CASE(bits_do_not_depend_on_the_order_of_threads_and_blocks) {
  for (const Mode& mode : kModes)
    for (std::size_t d : {64u, 80u, 128u, 256u}) {
      if (!mode.bf16 && (d == 80 || d == 256)) continue;
      const Problem p{{140, 2, 1, d, 90}, 1};  // heads of 64 and 128 in bf16: products of warpgroups
      std::vector<Results> all;
      for (const emu::Schedule& schedule : emu::every_schedule()) {
        emu::set_schedule(schedule);
        all.push_back(mode.bf16 ? run<Bf16>(p, mode.f32) : run<float>(p, mode.f32));
      }
      for (std::size_t i = 1; i < all.size(); ++i)
        BOOST_TEST((all[i] == all[0]), "schedule " << i << " changes bits, d " << d);
    }
  emu::set_schedule({});
}

template <class T>
void check_step(const Heads& h, std::uint32_t position, double tolerance) {
  // All rows up to `position` as one sequence: the last row of its attention is the token's.
  const std::size_t kv = h.kv_heads * h.d, q = h.heads * h.d, w = h.width(), rows = position + 1;
  const Vec qkv = numbers<T>(rows * w, 3, 1, false);
  Heads whole = h;
  whole.seq = rows;
  const Vec o = ref::attention(qkv, whole);
  // The caches hold the rows before; row `position` and those after it are NaN.
  const double nan = std::numeric_limits<double>::quiet_NaN();
  Vec k(h.seq * kv, nan), v(h.seq * kv, nan);
  for (std::size_t r = 0; r < rows; ++r)
    for (std::size_t i = 0; i < kv; ++i)
      k[r * kv + i] = qkv[r * w + q + i], v[r * kv + i] = qkv[r * w + q + kv + i];
  Vec k_before = k, v_before = v;
  for (std::size_t i = 0; i < kv; ++i) k_before[position * kv + i] = v_before[position * kv + i] = nan;
  const AttentionShape s = attention_shape(h, 1);
  Vec first;
  for (const emu::Schedule& schedule : emu::every_schedule()) {
    emu::set_schedule(schedule);
    const Array<T> row(columns(qkv, rows * w, position * w, rows * w)), cache_k(k_before), cache_v(v_before),
        out(q);
    const Array<float> scores(h.heads * h.seq);
    BOOST_REQUIRE(attention_step<T>(nullptr, s, position, row, cache_k, cache_v, scores, out) == cudaSuccess);
    BOOST_REQUIRE(cudaStreamSynchronize(nullptr) == cudaSuccess);
    const Vec got = out.values(), got_k = cache_k.values(), got_v = cache_v.values();
    if (first.empty()) first = got;
    BOOST_TEST((got == first));
    BOOST_TEST(distance(got, Vec(o.end() - static_cast<long>(q), o.end())) <= tolerance);
    for (std::size_t i = 0; i < k.size(); ++i) {
      BOOST_REQUIRE((got_k[i] == k[i] || (std::isnan(got_k[i]) && std::isnan(k[i]))));
      BOOST_REQUIRE((got_v[i] == v[i] || (std::isnan(got_v[i]) && std::isnan(v[i]))));
    }
  }
  emu::set_schedule({});
}

BOOST_AUTO_TEST_CASE(a_generated_token_attends_to_the_cache_and_is_appended) {
  for (std::size_t d : {8u, 64u, 80u, 256u})
    for (std::uint32_t position : {0u, 1u, 5u, 47u})
      for (std::size_t window : {0u, 1u, 6u}) {
        BOOST_TEST_CONTEXT("d " << d << " position " << position << " window " << window) {
          check_step<float>({48, 4, 2, d, window}, position, kExactTolerance);
          check_step<Bf16>({48, 4, 2, d, window}, position, 1e-2);
        }
      }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace trainhost::cuda
