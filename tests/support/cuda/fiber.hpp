// Fibers: functions with their own stack that the caller can resume and that can suspend themselves. The
// emulation runs each thread of a block as a fiber. Exceptions must not leave the function of a fiber. Stacks
// have a guard page and are reused.
#pragma once
#include <cstddef>

namespace emu {

class Fiber {
 public:
  explicit Fiber(std::byte* stack, std::size_t bytes) : stack_(stack), bytes_(bytes) {}

  /// The next resume() calls entry(argument) on this stack. A function that was suspended on it is abandoned.
  void start(void (*entry)(void*), void* argument);
  /// Runs the fiber until it suspends. Must be called on the stack of the thread, not on a fiber.
  void resume();
  /// Returns to the caller of resume(). Must be called on the fiber's stack. last: the fiber will not be
  /// resumed.
  void suspend(bool last);

 private:
  static void begin(Fiber* self);

  std::byte* stack_;
  std::size_t bytes_;
  void (*entry_)(void*) = nullptr;
  void* argument_ = nullptr;
  void* fiber_context_ = nullptr;   // saved stack pointer (or ucontext) of the fiber, while the caller runs
  void* caller_context_ = nullptr;  // the same of the caller, while the fiber runs
  void* fake_fiber_ = nullptr;      // fake stacks of AddressSanitizer
  void* fake_caller_ = nullptr;
  const void* caller_stack_ = nullptr;
  std::size_t caller_bytes_ = 0;
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
