// Memory of the objects of a tape, of which a replay makes and frees hundreds of thousands of few sizes.
// Private to tape.hpp.
#pragma once
#include <cstddef>
#include <new>
#include <utility>

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define TRAINHOST_TAPE_WITHOUT_POOL
#endif
#elif defined(__SANITIZE_ADDRESS__)
#define TRAINHOST_TAPE_WITHOUT_POOL
#endif

namespace trainhost::frameworks {

#if defined(TRAINHOST_TAPE_WITHOUT_POOL)

/// AddressSanitizer watches single objects.
template <class T>
struct Pooled {};

#else

/// Blocks of one size, in chunks that are freed when no block is in use any more. The objects of a tape end
/// with it, so nothing is left when its thread ends.
template <std::size_t Size>
class BlockPool {
 public:
  void* allocate() {
    if (!free_) add_chunk();
    Block* b = std::exchange(free_, free_->next);
    ++used_;
    return b;
  }
  void free(void* p) noexcept {
    free_ = new (p) Block{free_};
    if (--used_ == 0) clear();
  }

 private:
  static constexpr std::size_t kBlocks = 256;
  struct Block {
    Block* next;
  };
  struct Chunk {
    Chunk* next;
    alignas(std::max_align_t) std::byte blocks[kBlocks][Size];
  };

  void add_chunk() {
    auto* chunk = new Chunk;  // blocks without values
    chunk->next = chunks_;
    chunks_ = chunk;
    for (std::size_t i = kBlocks; i-- > 0;) free_ = new (chunk->blocks[i]) Block{free_};
  }
  void clear() noexcept {
    while (chunks_) delete std::exchange(chunks_, chunks_->next);
    free_ = nullptr;
  }

  Block* free_ = nullptr;
  Chunk* chunks_ = nullptr;
  std::size_t used_ = 0;
};

/// Base of a class T, from which no other derives: new and delete use a pool of the thread.
template <class T>
struct Pooled {
  static void* operator new(std::size_t) { return pool().allocate(); }
  static void operator delete(void* p) noexcept { pool().free(p); }

 private:
  static auto& pool() {
    constexpr std::size_t kAlignment = alignof(std::max_align_t);
    static constinit thread_local BlockPool<(sizeof(T) + kAlignment - 1) / kAlignment * kAlignment> of_thread;
    return of_thread;
  }
};

#endif

}  // namespace trainhost::frameworks
