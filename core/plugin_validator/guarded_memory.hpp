// A struct that a plugin may fill, surrounded by guards: pattern bytes before it, zeros after it, then a
// page that cannot be accessed. Small overruns change the guard bytes; large ones crash inside the plugin's
// call.
#pragma once
#include <sys/mman.h>

#include <cstdint>
#include <cstring>
#include <new>

namespace trainhost::plugin_validator {

template <class T>
class Guarded {
 public:
  static constexpr std::size_t kPage = 4096, kSize = 2 * kPage;
  static constexpr unsigned char kPattern = 0xA5, kPoison = 0xDB;
  static_assert(sizeof(T) < kPage);

  /// [pattern][T][4 KiB of zeros, as the interface promises][a page that faults]
  Guarded() {
    void* p = ::mmap(nullptr, kSize + kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) throw std::bad_alloc();
    page_ = static_cast<unsigned char*>(p);
    ::mprotect(page_ + kSize, kPage, PROT_NONE);
    unsigned char* at = page_ + (kPage - sizeof(T)) / alignof(T) * alignof(T);
    std::memset(page_, kPattern, static_cast<std::size_t>(at - page_));
    value_ = new (at) T{};
    value_->struct_size = sizeof(T);
  }
  ~Guarded() { ::munmap(page_, kSize + kPage); }
  Guarded(const Guarded&) = delete;

  T* get() { return value_; }
  T& operator*() { return *value_; }
  T* operator->() { return value_; }

  /// Whether the bytes around the struct are unchanged.
  bool margins_unchanged() const {
    const auto* begin = reinterpret_cast<const unsigned char*>(value_);
    for (const unsigned char* p = page_; p < begin; ++p)
      if (*p != kPattern) return false;
    for (const unsigned char* p = begin + sizeof(T); p < page_ + kSize; ++p)
      if (*p != 0) return false;
    return true;
  }
  /// Overwrites the struct, so that poison_unchanged() detects later writes.
  void poison() { std::memset(static_cast<void*>(value_), kPoison, sizeof(T)); }
  bool poison_unchanged() const {
    const auto* p = reinterpret_cast<const unsigned char*>(value_);
    for (std::size_t i = 0; i < sizeof(T); ++i)
      if (p[i] != kPoison) return false;
    return true;
  }

 private:
  unsigned char* page_;
  T* value_;
};

}  // namespace trainhost::plugin_validator
