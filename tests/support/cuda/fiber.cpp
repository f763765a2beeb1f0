// Switching costs about ten instructions on x86-64; other processors use ucontext, which also saves the
// signal mask.
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
// Saves what a call must keep, stores the stack pointer at *from and continues where `to` was saved.
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

// The fiber that is being started: begin() finds itself here. One per thread, as the threads of a block share
// one.
thread_local Fiber* starting = nullptr;

}  // namespace

#if defined(__x86_64__)

void Fiber::start(void (*entry)(void*), void* argument) {
  entry_ = entry, argument_ = argument, fake_here_ = nullptr;
  auto* top =
      reinterpret_cast<void**>(reinterpret_cast<std::uintptr_t>(stack_ + bytes_) & ~std::uintptr_t{15});
  *--top =
      nullptr;  // where a caller's return address would be: the stack is 8 off 16 at entry, as after a call
  *--top = reinterpret_cast<void*>(+[] { begin(starting); });
  for (int i = 0; i < 6; ++i) *--top = nullptr;
  here_ = top;
}
static void switch_context(void*& from, void*& to) { trainhost_emu_switch(&from, to); }

#else

void Fiber::start(void (*entry)(void*), void* argument) {
  entry_ = entry, argument_ = argument, fake_here_ = nullptr;
  if (!here_)
    here_ = new ucontext_t, there_ = new ucontext_t;  // as many as stacks; they live to the end of the tests
  auto* c = static_cast<ucontext_t*>(here_);
  getcontext(c);
  c->uc_stack.ss_sp = stack_, c->uc_stack.ss_size = bytes_, c->uc_link = nullptr;
  makecontext(
      c, +[] { begin(starting); }, 0);
}
static void switch_context(void*& from, void*& to) {
  swapcontext(static_cast<ucontext_t*>(from), static_cast<ucontext_t*>(to));
}

#endif

void Fiber::begin(Fiber* self) {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(nullptr, &self->caller_stack_, &self->caller_bytes_);
#endif
  self->entry_(self->argument_);
  self->suspend(true);
  __builtin_unreachable();
}

void Fiber::resume() {
  starting = this;
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(&fake_there_, stack_, bytes_);
#endif
  switch_context(there_, here_);
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(fake_there_, nullptr, nullptr);
#endif
}

void Fiber::suspend([[maybe_unused]] bool last) {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(last ? nullptr : &fake_here_, caller_stack_, caller_bytes_);
#endif
  switch_context(here_, there_);
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(fake_here_, &caller_stack_, &caller_bytes_);
#endif
}

std::size_t Stacks::bytes() {
#if defined(__SANITIZE_ADDRESS__)
  return 512 * 1024;
#else
  return 128 * 1024;  // pages are only there once they are touched
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
void Stacks::forget() {
#if defined(__SANITIZE_ADDRESS__)
  for (std::size_t i = 0; i < count_; ++i) __asan_unpoison_memory_region(at(i), bytes());
#endif
}
std::byte* Stacks::at(std::size_t i) const { return base_ + i * (bytes() + guard()) + guard(); }

}  // namespace emu
