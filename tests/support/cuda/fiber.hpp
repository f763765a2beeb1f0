// A stack of its own and the switch to it and back. The emulation runs each thread of a block as one of
// these; nothing here knows of blocks. Exceptions must not leave a fiber's function. Stacks have a guard page
// below and are used again.
#pragma once
#include <cstddef>

namespace emu {

class Fiber {
 public:
  explicit Fiber(std::byte* stack, std::size_t bytes) : stack_(stack), bytes_(bytes) {}

  /// The next resume() calls entry(argument) on this stack. What was running there before is forgotten.
  void start(void (*entry)(void*), void* argument);
  /// Goes there; returns when the fiber suspends. Called by the thread's own stack only.
  void resume();
  /// Goes back to the caller of resume(). Called on the fiber's stack. `last`: it will not be resumed.
  void suspend(bool last);

 private:
  static void begin(Fiber* self);

  std::byte* stack_;
  std::size_t bytes_;
  void (*entry_)(void*) = nullptr;
  void* argument_ = nullptr;
  void* here_ = nullptr;  // stack pointers, while the other side runs
  void* there_ = nullptr;
  void* fake_here_ = nullptr;  // AddressSanitizer's
  void* fake_there_ = nullptr;
  const void* caller_stack_ = nullptr;
  std::size_t caller_bytes_ = 0;
};

/// Stacks for `count` fibers, in one mapping that lives as long as this.
class Stacks {
 public:
  explicit Stacks(std::size_t count);
  ~Stacks();
  Stacks(const Stacks&) = delete;
  Stacks& operator=(const Stacks&) = delete;
  std::byte* at(std::size_t i) const;
  /// After fibers were left in the middle: what AddressSanitizer keeps of their frames is dropped.
  void forget();
  static std::size_t bytes();

 private:
  std::byte* base_;
  std::size_t count_;
};

}  // namespace emu
