// Memory between tripwires: a struct of the host that a plugin may fill, with pattern bytes around it and a page behind
// them that cannot be touched. A little too far is seen by the pattern, far too far is a crash in the plugin's own call.
#pragma once
#include <sys/mman.h>

#include <cstdint>
#include <cstring>
#include <new>

namespace trainhost::check {

template <class T>
class Guarded {
 public:
  static constexpr std::size_t kPage = 4096, kMargin = 256;
  static constexpr unsigned char kPattern = 0xA5, kPoison = 0xDB;
  static_assert(sizeof(T) + 2 * kMargin <= kPage);

  Guarded() {
    void* p = ::mmap(nullptr, 2 * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) throw std::bad_alloc();
    page_ = static_cast<unsigned char*>(p);
    ::mprotect(page_ + kPage, kPage, PROT_NONE);
    std::memset(page_, kPattern, kPage);
    value_ = new (page_ + (kPage - kMargin - sizeof(T)) / alignof(T) * alignof(T)) T{};
    value_->struct_size = sizeof(T);
  }
  ~Guarded() { ::munmap(page_, 2 * kPage); }
  Guarded(const Guarded&) = delete;

  T* get() { return value_; }
  T& operator*() { return *value_; }
  T* operator->() { return value_; }

  /// Are the bytes around the struct as they were?
  bool margins_kept() const {
    const auto* begin = reinterpret_cast<const unsigned char*>(value_);
    for (const unsigned char* p = page_; p < page_ + kPage; ++p)
      if ((p < begin || p >= begin + sizeof(T)) && *p != kPattern) return false;
    return true;
  }
  /// Overwrites the struct: whoever still writes to it later is seen by poison_kept().
  void poison() { std::memset(static_cast<void*>(value_), kPoison, sizeof(T)); }
  bool poison_kept() const {
    const auto* p = reinterpret_cast<const unsigned char*>(value_);
    for (std::size_t i = 0; i < sizeof(T); ++i)
      if (p[i] != kPoison) return false;
    return true;
  }

 private:
  unsigned char* page_;
  T* value_;
};

}  // namespace trainhost::check
