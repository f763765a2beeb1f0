// A fiber runs until it reaches a barrier or warp operation; then the schedule selects the next fiber that
// can run, and the first continues it directly: most of the time of a kernel is spent between its shuffles.
// Ascending and descending orders run one warp as far as possible before the next one starts, which is the
// worst case for a missing barrier. The random order continues with a warp for a few operations and then
// switches. A thread that has not started needs no stack: it runs on that of a thread that has returned, so
// kernels without barriers never switch. Kernels run one at a time, under the mutex of the machine, so there
// is one executor, and threadIdx and shared variables are plain globals.
#include "thread_block.hpp"

#include <algorithm>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <numeric>
#include <stdexcept>
#include <vector>

#include "cuda_emulation/execution.h"
#include "cuda_emulation/intrinsics.h"
#include "cuda_emulation/wgmma.h"
#include "fiber.hpp"
#include "random.hpp"
#include "symbols.hpp"
#include "wgmma.hpp"

constinit uint3 threadIdx{}, blockIdx{};
constinit dim3 blockDim{}, gridDim{};

namespace emu {
namespace {

constexpr unsigned kMaxThreads = 1024, kWarp = 32;
constexpr std::size_t kGuard = 64;  // guard bytes after dynamic shared memory, which must not change
constexpr unsigned char kMark = 0xA5;

struct AsyncCopy {
  void* to;
  const void* from;  // null: zeros
};
/// What a thread waits for: nothing (it can run), __syncthreads, other lanes of its warp; or it has returned.
enum class Waits : unsigned char { kNothing, kBlock, kLanes, kReturned };

/// Asynchronous work that a thread has started and not waited for.
struct Started {
  std::vector<std::vector<AsyncCopy>> groups;  // committed groups of asynchronous copies, oldest first
  std::vector<AsyncCopy> open;                 // started since the last commit
  std::vector<std::vector<Wgmma>> products;    // committed groups of products of its warpgroup, oldest first
  std::vector<Wgmma> open_products;
  bool fenced = false;  // wgmma_fence() was called after the last wait for products
};

/// State of the lanes of a warp. While a lane waits for a warp operation (its bit in `here`): the operation,
/// the lanes that take part, and the lane's argument.
struct Warp {
  std::uint32_t ready = 0, here = 0;  // bit masks: lanes that can run, lanes that wait
  Collective perform[kWarp] = {};
  unsigned mask[kWarp] = {};
  void* mine[kWarp] = {};
  bool alike = true;  // all lanes in `here` wait for the operation and with the mask of the first of them
  unsigned first = 0;
};

class Executor {
 public:
  // The lanes of a warp run in turn, each on its own stack. The stacks start at different offsets in their
  // pages, because memory at equal offsets shares a few sets of the processor's cache.
  Executor() : stacks_(kMaxThreads) {
    constexpr std::size_t kStep = 128;
    all_fibers_.reserve(kMaxThreads), free_.reserve(kMaxThreads);
    for (unsigned i = 0; i < kMaxThreads; ++i)
      all_fibers_.emplace_back(stacks_.at(i), Stacks::bytes() - i % kWarp * kStep);
    free_all();
  }

  void run(const Kernel& k, uint3 at, std::size_t number, Order order, Random random) {
    kernel_ = &k, at_ = at, order_ = order, random_ = random;
    count_ = k.block.x * k.block.y * k.block.z;
    one_dimensional_ = k.block.x == count_, threadIdx = {};
    error_.clear();
    blockIdx = at, blockDim = k.block, gridDim = k.grid;
    prepare_memory(number);
    start_threads();
    choose();
    main_.switch_to(fiber_of(now_));  // returns when all threads have returned, or at an error or deadlock
    if (error_.empty() && returned_ < count_) error_ = describe_deadlock();
    if (error_.empty()) check_memory();
    if (asynchronous_) std::fill_n(started_.begin(), count_, Started());
    if (error_.empty()) return;
    free_all();
    stacks_.unpoison();
    throw std::runtime_error(where() + ": " + error_);
  }

  unsigned now() const { return now_; }
  void* shared() { return shared_; }
  std::size_t shared_bytes() const { return kernel_->shared_bytes; }

  void barrier() {
    waits_[now_] = Waits::kBlock;
    if (++at_barrier_ == count_) {
      at_barrier_ = 0;
      set_all_ready();
    }
    suspend();
  }

  void collective(unsigned mask, Collective perform, void* mine) {
    const unsigned first = now_ / kWarp * kWarp, lane = now_ - first;
    Warp& w = warps_[now_ / kWarp];
    if (count_ - first < kWarp) mask &= (1u << (count_ - first)) - 1;
    if (!(mask >> lane & 1)) {
      error_ = who(now_) + " is not in the mask of its own warp operation";
      leave();
    }
    waits_[now_] = Waits::kLanes;
    w.perform[lane] = perform, w.mask[lane] = mask, w.mine[lane] = mine;
    if (w.here == 0)
      w.alike = true, w.first = lane;
    else
      w.alike &= (mask == w.mask[w.first]) & (perform == w.perform[w.first]);
    w.here |= 1u << lane;
    if ((w.here & mask) != mask) return suspend();  // the last lane performs it
    bool agree = w.alike;
    if (!agree) {
      agree = true;
      for (unsigned i = 0; i < kWarp; ++i)
        agree &= (!(mask >> i & 1)) | ((w.mask[i] == mask) & (w.perform[i] == perform));
    }
    if (!agree) return suspend();  // the lanes disagree: reported as a deadlock by run()
    perform(w.mine, mask);
    w.here &= ~mask;
    w.ready |= mask, warps_ready_ |= 1u << now_ / kWarp;
    suspend();
  }

  void copy(void* to, const void* from) {
    if (reinterpret_cast<std::uintptr_t>(to) % 16 || reinterpret_cast<std::uintptr_t>(from) % 16) {
      error_ = who(now_) + " starts an asynchronous copy at an address that is not 16-byte aligned";
      leave();
    }
    std::memset(to, 0xff, 16);  // NaN until the thread waits for the copy
    started().open.push_back({to, from});
  }
  void commit() {
    Started& t = started();
    t.groups.push_back(std::move(t.open));
    t.open.clear();
  }
  void wait(unsigned left) {
    Started& t = started();
    while (t.groups.size() > left) {
      for (const AsyncCopy& c : t.groups.front())
        if (c.from)
          std::memcpy(c.to, c.from, 16);
        else
          std::memset(c.to, 0, 16);
      t.groups.erase(t.groups.begin());
    }
  }

  void fence() { started().fenced = true; }
  void multiply(const Wgmma& w) {
    Started& t = started();
    if (!t.fenced) {
      error_ = who(now_) + " starts a product of its warpgroup without wgmma_fence() after the last wait";
      leave();
    }
    if (!w.add) std::memset(w.d, 0xff, 32 * sizeof(float));  // NaN until the thread waits for the product
    t.open_products.push_back(w);
  }
  void commit_products() {
    Started& t = started();
    t.products.push_back(std::move(t.open_products));
    t.open_products.clear();
  }
  // The lanes of a warp wait together; those of the other warps of the group compute their own rows.
  void wait_for_products(unsigned left) {
    Started& t = started();
    t.fenced = false;
    while (t.products.size() > left) {
      for (Wgmma& w : t.products.front()) collective(0xffffffffu, multiply_warpgroup_rows, &w);
      t.products.erase(t.products.begin());
    }
  }

  void set_error(const char* why) { error_ = who(now_) + ": " + why; }
  // Ends the block with error_. All fibers are abandoned where they are, without unwinding, so the caller
  // must not own anything.
  [[noreturn]] void leave() {
    fibers_[now_]->switch_to(main_);
    std::abort();
  }

 private:
  /// The function of every fiber: runs the thread now_ and then, as long as the schedule selects threads that
  /// have not started, those too.
  static void body(void* self) {
    auto& e = *static_cast<Executor*>(self);
    for (;;) {
      e.kernel_->body();
      e.end_thread();
      Fiber& mine = *e.fibers_[e.now_];
      Fiber* next = &e.main_;
      if (e.can_continue()) {
        e.choose();
        next = e.fibers_[e.now_];
      }
      if (next) {
        e.free_.push_back(&mine);
        mine.switch_to(*next, true);
      }
      e.fibers_[e.now_] = &mine;
    }
  }
  void end_thread() {
    waits_[now_] = Waits::kReturned;
    ++returned_;
    if (!asynchronous_) return;
    const Started& t = started_[now_];
    if (!t.open.empty() || !t.groups.empty())
      error_ = who(now_) + " returned without waiting for its asynchronous copies";
    if (!t.open_products.empty() || !t.products.empty())
      error_ = who(now_) + " returned without waiting for the products of its warpgroup";
  }

  /// Continues the next thread that can run; returns when it is this thread's turn again. Without such a
  /// thread the block is deadlocked.
  void suspend() {
    Fiber& mine = *fibers_[now_];
    if (!can_continue()) leave();
    choose();
    Fiber& other = fiber_of(now_);
    if (&other != &mine) mine.switch_to(other);
  }
  bool can_continue() const { return warps_ready_ != 0 && error_.empty(); }
  /// The fiber of a thread, which gets one if it has not started.
  Fiber& fiber_of(unsigned thread) {
    if (!fibers_[thread]) {
      fibers_[thread] = free_.back();
      free_.pop_back();
      fibers_[thread]->start(body, this);
    }
    return *fibers_[thread];
  }
  void free_all() {
    free_.clear();
    for (std::size_t i = all_fibers_.size(); i-- > 0;) free_.push_back(&all_fibers_[i]);
  }
  Started& started() {
    asynchronous_ = true;
    return started_[now_];
  }

  void set_all_ready() {
    for (unsigned i = 0; i < count_; i += kWarp) {
      warps_[i / kWarp].ready = count_ - i < kWarp ? (1u << (count_ - i)) - 1 : ~0u;
      warps_ready_ |= 1u << i / kWarp;
    }
  }

  void choose() {
    if (order_ != Order::kAscending) return choose_otherwise();
    const auto warp = static_cast<unsigned>(std::countr_zero(warps_ready_));
    start(warp, static_cast<unsigned>(std::countr_zero(warps_[warp].ready)));
  }
  [[gnu::noinline]] void choose_otherwise() {
    if (order_ == Order::kDescending) {
      const unsigned warp = 31 - static_cast<unsigned>(std::countl_zero(warps_ready_));
      return start(warp, 31 - static_cast<unsigned>(std::countl_zero(warps_[warp].ready)));
    }
    unsigned warp = now_ / kWarp;
    if (!(warps_ready_ >> warp & 1) || random_.below(4 * kWarp) == 0) warp = random_.bit_of(warps_ready_);
    start(warp, random_.bit_of(warps_[warp].ready));
  }
  void start(unsigned warp, unsigned lane) {
    now_ = warp * kWarp + lane;
    if (one_dimensional_)
      threadIdx.x = now_;
    else
      threadIdx = index_of(now_);
    warps_[warp].ready &= ~(1u << lane);
    if (warps_[warp].ready == 0) warps_ready_ &= ~(1u << warp);
  }

  uint3 index_of(unsigned i) const {
    const dim3& b = kernel_->block;
    if (one_dimensional_) return {i, 0, 0};
    return {i % b.x, i / b.x % b.y, i / b.x / b.y};
  }

  void start_threads() {
    at_barrier_ = 0, warps_ready_ = 0, now_ = 0, returned_ = 0, asynchronous_ = false;
    for (Warp& w : warps_) w.ready = w.here = 0;
    std::fill_n(fibers_, count_, nullptr);
    std::fill_n(waits_, count_, Waits::kNothing);
    set_all_ready();
  }

  // Dynamic shared memory starts behind the static one, so it need not have a larger alignment than 16 bytes.
  void prepare_memory(std::size_t number) {
    const std::size_t before = (kernel_->static_shared_bytes + 15) / 16 * 16;
    memory_.resize(before + kernel_->shared_bytes + kGuard + 1024);
    shared_ = reinterpret_cast<unsigned char*>((reinterpret_cast<std::uintptr_t>(memory_.data()) + 1023) &
                                               ~std::uintptr_t{1023}) +
              before;
    std::memset(shared_, 0xff, kernel_->shared_bytes);
    std::memset(shared_ + kernel_->shared_bytes, kMark, kGuard);
    fill_static_shared(number);
  }
  void check_memory() {
    for (std::size_t i = 0; i < kGuard; ++i)
      if (shared_[kernel_->shared_bytes + i] != kMark)
        error_ = "a thread wrote beyond its " + std::to_string(kernel_->shared_bytes) +
                 " bytes of dynamic shared memory";
  }

  static std::string triple(uint3 v) {
    return "(" + std::to_string(v.x) + "," + std::to_string(v.y) + "," + std::to_string(v.z) + ")";
  }
  std::string where() const { return "kernel " + kernel_->name + ", block " + triple(at_); }
  std::string who(unsigned i) const { return "thread " + triple(index_of(i)); }

  std::string describe_deadlock() const {
    const char* names[] = {"", "at __syncthreads", "at a warp operation", "returned"};
    std::string text = "deadlock, no thread can continue:";
    for (Waits w : {Waits::kBlock, Waits::kLanes, Waits::kReturned}) {
      unsigned n = 0, first = 0;
      for (unsigned i = count_; i-- > 0;)
        if (waits_[i] == w) ++n, first = i;
      if (n > 0)
        text += " " + std::to_string(n) + " " + names[static_cast<int>(w)] + " (first: " + who(first) + ")";
    }
    return text;
  }

  Stacks stacks_;
  std::vector<Fiber> all_fibers_;
  std::vector<Fiber*> free_;
  Fiber* fibers_[kMaxThreads] = {};  // of each thread; null: it has not started
  Waits waits_[kMaxThreads] = {};    // what each thread waits for, or waited for last
  std::vector<Started> started_{kMaxThreads};
  bool asynchronous_ = false;  // a thread of this block has started asynchronous work
  bool one_dimensional_ = false;
  Fiber main_;  // the stack of the calling thread, on which run() waits
  const Kernel* kernel_ = nullptr;
  uint3 at_{};
  Order order_ = Order::kAscending;
  Random random_{};
  std::string error_;
  std::vector<unsigned char> memory_;
  unsigned char* shared_ = nullptr;
  unsigned count_ = 0, returned_ = 0, at_barrier_ = 0, now_ = 0;
  Warp warps_[kMaxThreads / kWarp];
  std::uint32_t warps_ready_ = 0;  // bit mask: warps with lanes that can run
};

thread_local bool inside_kernel = false;
Executor* one = nullptr;  // never freed; read by every shuffle, so without a guard
Executor& executor() { return *one; }

}  // namespace

void run_kernel(const Kernel& k, const Schedule& s) {
  if (!one) one = new Executor;
  Random random{s.seed};
  std::vector<unsigned> order(k.grid.x * k.grid.y * k.grid.z);
  std::iota(order.begin(), order.end(), 0u);
  if (s.blocks == Order::kDescending) std::reverse(order.begin(), order.end());
  if (s.blocks == Order::kRandom)
    for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random.below(i)]);
  std::size_t number = 0;
  struct Inside {
    Inside() { inside_kernel = true; }
    ~Inside() { inside_kernel = false; }
  } inside;
  for (unsigned i : order) {
    const uint3 at{i % k.grid.x, i / k.grid.x % k.grid.y, i / k.grid.x / k.grid.y};
    executor().run(k, at, number++, s.threads, Random{random.next()});
  }
}

unsigned thread_number() { return executor().now(); }
void block_barrier() { executor().barrier(); }
void warp_collective(unsigned mask, Collective perform, void* mine) {
  executor().collective(mask, perform, mine);
}
void* dynamic_shared() { return executor().shared(); }
void copy_async_16(void* shared, const void* global) { executor().copy(shared, global); }
void copy_async_commit() { executor().commit(); }
std::size_t dynamic_shared_bytes() { return executor().shared_bytes(); }
void wgmma(const Wgmma& product) { executor().multiply(product); }
void wgmma_fence() { executor().fence(); }
void wgmma_commit() { executor().commit_products(); }
void wgmma_wait(unsigned groups_left) { executor().wait_for_products(groups_left); }
void copy_async_wait(unsigned groups_left) { executor().wait(groups_left); }
void trap(const char* why) {
  executor().set_error(why);
  executor().leave();
}

void no_operation(void* const*, unsigned) {}
void shuffle(void* const* lanes, unsigned mask) {
  for (unsigned i = 0; i < kWarp; ++i) {
    if (!(mask >> i & 1)) continue;
    auto& to = *static_cast<Shuffle*>(lanes[i]);
    to.result = mask >> to.from & 1 ? static_cast<const Shuffle*>(lanes[to.from])->value : ~0ull;
  }
}
void vote(void* const* lanes, unsigned mask) {
  unsigned all = 0;
  for (unsigned i = 0; i < kWarp; ++i)
    if (mask >> i & 1 && static_cast<const Vote*>(lanes[i])->predicate) all |= 1u << i;
  for (unsigned i = 0; i < kWarp; ++i)
    if (mask >> i & 1) static_cast<Vote*>(lanes[i])->result = all;
}

}  // namespace emu

// Called by code that is compiled with -fsanitize=alignment before an access to a misaligned address. The
// sanitizer's own library is not linked.
extern "C" __attribute__((noreturn, visibility("default"))) void __ubsan_handle_type_mismatch_v1_abort(
    const void* data, std::uintptr_t address) {
  struct Place {
    const char* file;
    std::uint32_t line, column;
  };
  const Place& place = *static_cast<const Place*>(data);
  char text[400];
  std::snprintf(text, sizeof text, "cudaErrorMisalignedAddress: misaligned address %#zx at %s:%u", address,
                place.file, place.line);
  if (emu::inside_kernel) emu::trap(text);
  std::fprintf(stderr, "%s, outside kernels\n", text);
  std::abort();
}
