// See allocator_segments.hpp. Functions follow those of DeviceCachingAllocator in torch 2.15: alloc_block(),
// try_merge_blocks(), find_expandable_block(), map_block(), unmap_block() and release_block().
#include "core/frameworks/allocator/allocator_segments.hpp"

#include <algorithm>
#include <cassert>

namespace trainhost::frameworks {
namespace {

/// Segments that can grow do so in pages of this size: one handle of cuMemCreate() each.
std::uint64_t page_size(std::uint8_t pool) { return is_small(pool) ? kSmallBuffer : kLargeBuffer; }

}  // namespace

std::uint32_t Segments::add(const Block& b) {
  if (!spare_.empty()) {
    const std::uint32_t i = spare_.back();
    spare_.pop_back();
    blocks_[i] = b;
    return i;
  }
  blocks_.push_back(b);
  return static_cast<std::uint32_t>(blocks_.size() - 1);
}

std::uint32_t Segments::add_segment(std::uint8_t pool, std::uint64_t bytes, bool mapped) {
  Block b;
  b.address = next_address_;
  b.size = bytes;
  b.pool = pool;
  b.mapped = mapped;
  next_address_ += bytes;
  return add(b);
}

void Segments::set_reserved(std::uint64_t bytes) {
  reserved_ = bytes;
  largest_reserved_ = std::max(largest_reserved_, reserved_);
}

std::uint32_t Segments::reserve(std::uint8_t pool, std::uint64_t size) {
  if (expandable_) return grow(pool, size);
  // get_allocation_size(): segments that are larger than the request, so that later requests share them.
  const std::uint64_t bytes = size <= kSmallSize      ? kSmallBuffer
                              : size < kMinLargeAlloc ? kLargeBuffer
                                                      : multiple(size, kRoundLarge);
  if (bytes > capacity_ - reserved_) return kNone;
  set_reserved(reserved_ + bytes);
  return add_segment(pool, bytes, true);
}

/// Adds the free block to its list. Its neighbours are in use or mapped otherwise, or will be.
void Segments::add_free(std::uint32_t i) {
  assert(!blocks_[i].used && blocks_[i].mapped);
  blocks_[i].since = time;
  free_[blocks_[i].pool].insert(i);
}

/// A neighbour that is free grows by the block, and keeps its index.
void Segments::make_free(std::uint32_t i) {
  Block& b = blocks_[i];
  b.used = false;
  const bool before = joins(b.previous), after = joins(b.next);
  if (!before && !after) return add_free(i);
  FreeBlocks& free = free_[b.pool];
  const std::uint32_t kept = before ? b.previous : b.next;
  std::uint64_t address = b.address, size = b.size + blocks_[kept].size;
  if (before) {
    address = blocks_[kept].address;
    std::uint32_t next = b.next;
    if (after) {
      size += blocks_[next].size;
      free.erase(next);
      spare_.push_back(next);
      next = blocks_[next].next;
    }
    blocks_[kept].next = next;
    if (next != kNone) blocks_[next].previous = kept;
  } else {
    blocks_[kept].previous = b.previous;
    if (b.previous != kNone) blocks_[b.previous].next = kept;
  }
  spare_.push_back(i);
  blocks_[kept].since = time;
  free.change(kept, address, size);
}

/// Returns the part behind the first `size` bytes as a block of its own, which is in no list.
std::uint32_t Segments::cut(std::uint32_t i, std::uint64_t size) {
  assert(0 < size && size < blocks_[i].size);
  Block rest = blocks_[i];
  rest.address += size;
  rest.size -= size;
  rest.previous = i;
  rest.used = false;
  const std::uint32_t r = add(rest);
  if (rest.next != kNone) blocks_[rest.next].previous = r;
  blocks_[i].next = r;
  blocks_[i].size = size;
  return r;
}

void Segments::split(std::uint32_t i, std::uint64_t size) { add_free(cut(i, size)); }

std::uint32_t Segments::take_front(std::uint32_t i, std::uint64_t size) {
  Block front = blocks_[i];
  front.size = size;
  front.next = i;
  front.listed = false;
  const std::uint32_t f = add(front);
  Block& rest = blocks_[i];
  if (rest.previous != kNone) blocks_[rest.previous].next = f;
  rest.previous = f;
  rest.since = time;
  free_[rest.pool].change(i, rest.address + size, rest.size - size);
  return f;
}

/// Joins the block with its neighbour, whose index becomes unused. Changes no list.
void Segments::join(std::uint32_t i, bool before) {
  Block& b = blocks_[i];
  const std::uint32_t other = before ? b.previous : b.next;
  const Block& o = blocks_[other];
  assert(o.pool == b.pool && o.mapped == b.mapped);
  if (before) {
    b.address = o.address;
    b.previous = o.previous;
    if (b.previous != kNone) blocks_[b.previous].next = i;
  } else {
    b.next = o.next;
    if (b.next != kNone) blocks_[b.next].previous = i;
  }
  b.size += o.size;
  spare_.push_back(other);
}

/// Joins the block, which is in no list, with neighbours that are not in use and mapped like it. Keeps its
/// index; those of the neighbours become unused.
std::uint32_t Segments::merged(std::uint32_t index) {
  for (const bool before : {true, false}) {
    const Block& b = blocks_[index];
    const std::uint32_t other = before ? b.previous : b.next;
    if (other == kNone || blocks_[other].used || blocks_[other].mapped != b.mapped) continue;
    if (b.mapped)
      take(other);
    else
      std::erase(unmapped_[b.pool], other);
    join(index, before);
  }
  return index;
}

/// Free or unmapped block from which at least `size` bytes of one segment follow that are not in use: the one
/// at the lowest address, so that gaps that unmap_pages() left are filled before the segment becomes longer.
/// A new segment if there is none.
std::uint32_t Segments::find_growable(std::uint8_t pool, std::uint64_t size) {
  for (const std::uint32_t unmapped : unmapped_[pool]) {
    const std::uint32_t before = blocks_[unmapped].previous;
    const std::uint32_t first = before != kNone && !blocks_[before].used ? before : unmapped;
    std::uint64_t bytes = 0;
    for (std::uint32_t i = first; i != kNone && !blocks_[i].used && bytes < size; i = blocks_[i].next)
      bytes += blocks_[i].size;
    if (bytes >= size) return first;
  }
  const std::uint32_t i = add_segment(pool, kAddressSpace, false);
  unmapped_[pool].push_back(i);  // at the highest address
  return i;
}

/// Maps pages of the unmapped block from its start until `size` bytes are covered, and joins them with the
/// free block before them. Returns kNone if the device has no memory left.
std::uint32_t Segments::map_pages(std::uint32_t index, std::uint64_t size) {
  assert(!blocks_[index].mapped);
  const std::uint8_t pool = blocks_[index].pool;
  const std::uint64_t bytes = std::min(multiple(size, page_size(pool)), blocks_[index].size);
  if (bytes > capacity_ - reserved_) return kNone;
  std::vector<std::uint32_t>& unmapped = unmapped_[pool];
  const auto at = std::find(unmapped.begin(), unmapped.end(), index);
  if (blocks_[index].size > bytes)
    *at = cut(index, bytes);  // the rest has the place of the block in the order of addresses
  else
    unmapped.erase(at);
  blocks_[index].mapped = true;
  set_reserved(reserved_ + bytes);
  index = merged(index);
  add_free(index);
  return index;
}

std::uint32_t Segments::grow(std::uint8_t pool, std::uint64_t size) {
  std::uint32_t block = find_growable(pool, size);
  if (!blocks_[block].mapped) block = map_pages(block, std::min(size, blocks_[block].size));
  while (block != kNone && blocks_[block].size < size) {
    // find_growable() has seen enough bytes, and mapped neighbours are merged: the next block is unmapped.
    const std::uint32_t next = blocks_[block].next;
    block = map_pages(next, std::min(size - blocks_[block].size, blocks_[next].size));
  }
  if (block != kNone) take(block);
  return block;
}

void Segments::release_segment(std::uint32_t i) {
  assert(!blocks_[i].used && whole_segment(i));
  take(i);
  reserved_ -= blocks_[i].size;
  spare_.push_back(i);
}

void Segments::release_all() {
  for (FreeBlocks& free : free_)
    for (const std::uint32_t i : free.all()) {  // a copy: unmapping changes the lists
      if (expandable_)
        unmap_pages(i);
      else if (whole_segment(i))
        release_segment(i);
    }
}

/// Returns the pages that the free block covers as a whole. What is before the first and behind the last of
/// them stays a free block, because its page is shared with a block in use.
void Segments::unmap_pages(std::uint32_t i) {
  const std::uint64_t page = page_size(blocks_[i].pool);
  const std::uint64_t base = blocks_[i].address / kAddressSpace * kAddressSpace;
  const std::uint64_t begin = base + multiple(blocks_[i].address - base, page);
  const std::uint64_t end = base + (blocks_[i].address + blocks_[i].size - base) / page * page;
  if (begin >= end) return;
  take(i);
  if (const std::uint64_t before = begin - blocks_[i].address) {
    const std::uint32_t front = i;
    i = cut(front, before);
    add_free(front);
  }
  if (blocks_[i].address + blocks_[i].size > end) split(i, end - blocks_[i].address);
  reserved_ -= blocks_[i].size;
  blocks_[i].mapped = false;
  i = merged(i);
  std::vector<std::uint32_t>& unmapped = unmapped_[blocks_[i].pool];
  const auto at = std::ranges::upper_bound(unmapped, blocks_[i].address, {},
                                           [&](std::uint32_t u) { return blocks_[u].address; });
  unmapped.insert(at, i);
}

}  // namespace trainhost::frameworks
