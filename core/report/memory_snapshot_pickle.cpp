// A memory snapshot as the file that torch.cuda.memory._dump_snapshot() writes and
// https://pytorch.org/memory_viz opens: a pickle of protocol 2 of {"segments", "device_traces"}, written with
// the few opcodes that its reader in the browser knows. Source: the docstring of
// torch.cuda.memory._snapshot().
#include <cassert>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "core/report/plan_report.hpp"

namespace trainhost::report {
namespace {

class Pickle {
 public:
  Pickle() : bytes_("\x80\x02") {}
  Pickle& text(std::string_view s) {
    bytes_ += 'X';
    little_endian(s.size(), 4);
    bytes_ += s;
    return *this;
  }
  Pickle& number(std::uint64_t n) {
    if (n < 1u << 31) {
      bytes_ += 'J';
      little_endian(n, 4);
    } else {
      assert(n < std::uint64_t{1} << 63);
      bytes_ += "\x8a\x08";  // LONG1 of 8 bytes
      little_endian(n, 8);
    }
    return *this;
  }
  Pickle& flag(bool b) {
    bytes_ += b ? '\x88' : '\x89';
    return *this;
  }
  /// `content` writes keys and values in turn.
  Pickle& dict(const std::function<void()>& content) {
    bytes_ += "}(";
    content();
    bytes_ += 'u';
    return *this;
  }
  /// In parts: the reader in the browser passes the elements of a part as arguments of one call.
  Pickle& list(std::size_t count, const std::function<void(std::size_t)>& element) {
    constexpr std::size_t kPart = 1000;
    bytes_ += ']';
    for (std::size_t begin = 0; begin < count; begin += kPart) {
      bytes_ += '(';
      for (std::size_t i = begin; i < count && i < begin + kPart; ++i) element(i);
      bytes_ += 'e';
    }
    return *this;
  }
  std::string finish() { return std::move(bytes_) + '.'; }

 private:
  void little_endian(std::uint64_t n, int size) {
    for (int i = 0; i < size; ++i) bytes_ += static_cast<char>(n >> (8 * i) & 0xff);
  }
  std::string bytes_;
};

using planning::MemorySnapshot;
using planning::SnapshotBuffer;
using planning::SnapshotEvent;

/// Addresses of a plan count from 0, which the visualiser takes for none.
constexpr std::uint64_t kBase = std::uint64_t{1} << 32;

class Writer {
 public:
  explicit Writer(const MemorySnapshot& s) : s_(s) {}

  std::string write() {
    std::vector<const SnapshotBuffer*> kept;
    for (const SnapshotBuffer& b : s_.buffers)
      if (b.kept) kept.push_back(&b);
    std::ranges::sort(kept, {}, [](const SnapshotBuffer* b) { return b->address; });
    pickle_.dict([&] {
      pickle_.text("segments").list(1, [&](std::size_t) { segment(kept); });
      pickle_.text("device_traces").list(1, [&](std::size_t) {
        pickle_.list(count_events(), [&](std::size_t i) { event(i); });
      });
      pickle_.text("allocator_settings").dict([] {});
    });
    return pickle_.finish();
  }

 private:
  void frames(const SnapshotBuffer* b, const SnapshotEvent* e) {
    const auto frame = [&](std::string_view file, std::string_view name) {
      pickle_.dict(
          [&] { pickle_.text("name").text(name).text("filename").text(file).text("line").number(0); });
    };
    if (!b) {
      pickle_.text("frames").list(0, {});
      return;
    }
    pickle_.text("frames").list(e && !e->operation.empty() ? 2 : 1, [&](std::size_t i) {
      if (i == 0)
        frame(name(b->component), b->name);
      else
        frame(name(e->phase), e->operation);
    });
  }

  void block(std::uint64_t address, std::uint64_t bytes, const SnapshotBuffer* b) {
    pickle_.dict([&] {
      pickle_.text("address").number(kBase + address).text("size").number(bytes).text("requested_size");
      pickle_.number(b ? bytes : 0).text("state").text(b ? "active_allocated" : "inactive");
      frames(b, nullptr);
    });
  }

  /// The arena at the end of the step: what is kept, and gaps.
  void segment(const std::vector<const SnapshotBuffer*>& kept) {
    std::uint64_t active = 0;
    struct Block {
      std::uint64_t address, bytes;
      const SnapshotBuffer* buffer;
    };
    std::vector<Block> blocks;
    std::uint64_t at = 0;
    for (const SnapshotBuffer* b : kept) {
      if (b->address > at) blocks.push_back({at, b->address - at, nullptr});
      blocks.push_back({b->address, b->bytes, b});
      at = b->address + b->bytes;
      active += b->bytes;
    }
    if (at < s_.total_bytes) blocks.push_back({at, s_.total_bytes - at, nullptr});
    pickle_.dict([&] {
      pickle_.text("device")
          .number(0)
          .text("address")
          .number(kBase)
          .text("total_size")
          .number(s_.total_bytes);
      pickle_.text("allocated_size").number(active).text("active_size").number(active);
      pickle_.text("requested_size")
          .number(active)
          .text("stream")
          .number(0)
          .text("segment_type")
          .text("large");
      pickle_.text("segment_pool_id").list(2, [&](std::size_t) { pickle_.number(0); });
      pickle_.text("is_expandable").flag(false);
      frames(nullptr, nullptr);
      pickle_.text("blocks").list(
          blocks.size(), [&](std::size_t i) { block(blocks[i].address, blocks[i].bytes, blocks[i].buffer); });
    });
  }

  /// The segment, one event for an allocation, and two for a free.
  std::size_t count_events() {
    order_.push_back({nullptr, "segment_alloc"});
    for (const SnapshotEvent& e : s_.events)
      if (e.allocation) {
        order_.push_back({&e, "alloc"});
      } else {
        order_.push_back({&e, "free_requested"});
        order_.push_back({&e, "free_completed"});
      }
    return order_.size();
  }

  void event(std::size_t i) {
    const auto& [e, action] = order_[i];
    const SnapshotBuffer* const b = e ? &s_.buffers[e->buffer] : nullptr;
    pickle_.dict([&, e = e, action = action] {
      pickle_.text("action").text(action).text("addr").number(kBase + (b ? b->address : 0));
      pickle_.text("size").number(b ? b->bytes : s_.total_bytes).text("stream").number(0);
      pickle_.text("time_us").number(i);
      // The visualiser colours by category; where there are some, it needs one of this name.
      pickle_.text("category").text(b ? name(b->component) : "unknown");
      frames(b, e);
    });
  }

  const MemorySnapshot& s_;
  Pickle pickle_;
  std::vector<std::pair<const SnapshotEvent*, const char*>> order_;
};

}  // namespace

std::string memory_snapshot_pickle(const planning::MemorySnapshot& s) { return Writer(s).write(); }

}  // namespace trainhost::report
