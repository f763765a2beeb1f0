// Fibers: functions with their own stack that continue each other. The emulation runs each thread of a block
// as a fiber. Exceptions must not leave the function of a fiber. Stacks have a guard page and are reused.
#pragma once
#include <cstddef>

namespace emu {

class Fiber {
 public:
  /// The stack that the calling thread runs on.
  Fiber() = default;
  /// A stack that start() prepares.
  Fiber(std::byte* stack, std::size_t bytes) : stack_(stack), bytes_(bytes) {}

  /// The next switch_to() this fiber calls entry(argument), which must not return. A function that was
  /// suspended on the stack is abandoned.
  void start(void (*entry)(void*), void* argument);
  /// Suspends this fiber, which must be the running one, and continues `next`. Returns when another fiber
  /// continues this one. ends: this fiber is finished and must not be continued.
  void switch_to(Fiber& next, bool ends = false);

 private:
  static void begin();
  void arrive();

  const void* stack_ = nullptr;  // lowest address; of a thread's own stack known to AddressSanitizer only
  std::size_t bytes_ = 0;
  void (*entry_)(void*) = nullptr;
  void* argument_ = nullptr;
  void* context_ = nullptr;     // while suspended: the saved stack pointer, or a ucontext
  void* fake_stack_ = nullptr;  // while suspended: AddressSanitizer's second stack
};

/// Stacks for `count` fibers, in one memory mapping.
class Stacks {
 public:
  explicit Stacks(std::size_t count);
  ~Stacks();
  Stacks(const Stacks&) = delete;
  Stacks& operator=(const Stacks&) = delete;
  std::byte* at(std::size_t i) const;
  /// Removes AddressSanitizer's marks from all stacks; needed after fibers were abandoned.
  void unpoison();
  static std::size_t bytes();

 private:
  std::byte* base_;
  std::size_t count_;
};

}  // namespace emu
