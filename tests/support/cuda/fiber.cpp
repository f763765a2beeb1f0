// On x86-64 a switch saves the callee-saved registers and exchanges the stack pointer, in about 15
// instructions; other processors use ucontext, which is slower because it also saves the signal mask. See
// fiber.hpp.
#include "fiber.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <new>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

#if defined(__x86_64__)
// Pushes the callee-saved registers, stores the stack pointer at *from, loads it from `to` and pops the
// registers there.
extern "C" void trainhost_emu_switch(void** from, void* to);
asm(R"(
.text
.globl trainhost_emu_switch
.hidden trainhost_emu_switch
.type trainhost_emu_switch, @function
trainhost_emu_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size trainhost_emu_switch, .-trainhost_emu_switch
)");
#else
#include <ucontext.h>
#endif

namespace emu {
namespace {

// Who called switch_to() last, and whom it continues: a new stack has no other way to know. One thread at a
// time switches.
Fiber *departed = nullptr, *arriving = nullptr;

}  // namespace

#if defined(__x86_64__)

void Fiber::start(void (*entry)(void*), void* argument) {
  entry_ = entry, argument_ = argument, fake_stack_ = nullptr;
  auto* top =
      reinterpret_cast<void**>((reinterpret_cast<std::uintptr_t>(stack_) + bytes_) & ~std::uintptr_t{15});
  *--top = nullptr;  // in place of a return address: at entry the stack is 8 bytes off a multiple of 16, as
                     // after a call
  *--top = reinterpret_cast<void*>(&Fiber::begin);
  for (int i = 0; i < 6; ++i) *--top = nullptr;
  context_ = top;
}
static void switch_context(void*& from, void*& to) { trainhost_emu_switch(&from, to); }

#else

void Fiber::start(void (*entry)(void*), void* argument) {
  entry_ = entry, argument_ = argument, fake_stack_ = nullptr;
  if (!context_) context_ = new ucontext_t;  // one per stack; never freed
  auto* c = static_cast<ucontext_t*>(context_);
  getcontext(c);
  c->uc_stack.ss_sp = const_cast<void*>(stack_), c->uc_stack.ss_size = bytes_, c->uc_link = nullptr;
  makecontext(c, &Fiber::begin, 0);
}
static void switch_context(void*& from, void*& to) {
  if (!from) from = new ucontext_t;  // of a thread's own stack
  swapcontext(static_cast<ucontext_t*>(from), static_cast<ucontext_t*>(to));
}

#endif

void Fiber::begin() {
  Fiber* const self = arriving;
  self->arrive();
  self->entry_(self->argument_);
  __builtin_trap();
}

void Fiber::switch_to(Fiber& next, [[maybe_unused]] bool ends) {
  departed = this, arriving = &next;
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(ends ? nullptr : &fake_stack_, next.stack_, next.bytes_);
#endif
  switch_context(context_, next.context_);
  arrive();
}

/// First thing after a switch, on the stack that is continued.
void Fiber::arrive() {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(fake_stack_, &departed->stack_, &departed->bytes_);
#endif
}

std::size_t Stacks::bytes() {
#if defined(__SANITIZE_ADDRESS__)
  return 512 * 1024;
#else
  return 128 * 1024;  // pages are allocated when they are first written
#endif
}

namespace {
std::size_t guard() { return static_cast<std::size_t>(sysconf(_SC_PAGESIZE)); }
}  // namespace

Stacks::Stacks(std::size_t count) : count_(count) {
  void* p = mmap(nullptr, count * (bytes() + guard()), PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) throw std::bad_alloc();
  base_ = static_cast<std::byte*>(p);
  for (std::size_t i = 0; i < count; ++i) mprotect(base_ + i * (bytes() + guard()), guard(), PROT_NONE);
}
Stacks::~Stacks() { munmap(base_, count_ * (bytes() + guard())); }
void Stacks::unpoison() {
#if defined(__SANITIZE_ADDRESS__)
  for (std::size_t i = 0; i < count_; ++i) __asan_unpoison_memory_region(at(i), bytes());
#endif
}
std::byte* Stacks::at(std::size_t i) const { return base_ + i * (bytes() + guard()) + guard(); }

}  // namespace emu
