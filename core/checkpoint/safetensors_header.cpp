// Parses and checks a safetensors header. Memory is bounded by the length of the header: entries are counted
// in the text before they are stored, and no number in the header is used as a size. Rules are numbered as in
// README.md; each is violated by files in tests/core/checkpoint.
#include "core/checkpoint/safetensors_header.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <tuple>

#include "core/base/checked.hpp"
#include "core/base/json_reader.hpp"
#include "core/base/text.hpp"
#include "core/checkpoint/dtypes.hpp"

namespace trainhost::checkpoint {
namespace {

constexpr std::uint64_t kLengthBytes = 8;

/// C0, DEL and C1. C1 characters are two bytes in UTF-8 (C2 80 to C2 9F) and are commands of terminals, which
/// would act on an error message that contains the name.
bool has_control(std::string_view s) {
  for (std::size_t i = 0; i < s.size(); ++i) {
    auto c = static_cast<unsigned char>(s[i]);
    if (c < 0x20 || c == 0x7F) return true;
    if (c == 0xC2 && i + 1 < s.size() && static_cast<unsigned char>(s[i + 1]) < 0xA0)
      return true;  // U+0080..9F
  }
  return false;
}

/// An upper bound of the number of tensors: the text can occur inside strings, too.
std::size_t count_of(std::string_view text, std::string_view what) {
  std::size_t n = 0;
  for (auto at = text.find(what); at != std::string_view::npos; at = text.find(what, at + what.size())) ++n;
  return n;
}

/// Reads tensors in the order of the text, then checks what needs all of them: names and offsets.
class HeaderReader {
 public:
  HeaderReader(std::string_view text, std::uint64_t data_bytes, const std::string& file)
      : json_(text, kMaxHeaderDepth), text_(text), data_bytes_(data_bytes), file_(file) {}

  Header read() {
    // Reserved once: up to 10^6 entries would otherwise be moved 20 times.
    header_.tensors.reserve(std::min<std::size_t>(count_of(text_, "\"data_offsets\""), kMaxTensors));
    json_.open_object();
    std::string name;
    bool has_metadata = false;
    for (;;) {
      std::uint64_t at = json_.at();
      rule_ =
          16;  // a key that is too long violates rule 16; any other error here violates the grammar (rule 5)
      if (!member(name)) break;
      if (name == "__metadata__") {
        if (has_metadata) fail(6, at, "duplicate __metadata__");
        has_metadata = true;
        metadata();
        continue;
      }
      if (has_control(name))
        fail(16, at, fmt::format("the name '{}' contains a control character", escaped(name)));
      if (header_.tensors.size() == kMaxTensors)
        fail(16, at, fmt::format("more than {} tensors", kMaxTensors));
      tensor(std::move(name));
    }
    rule_ = 4;
    json_.finish(' ');
    reject_duplicates();
    reject_gaps();
    return std::move(header_);
  }

  int rule() const { return rule_; }

 private:
  [[noreturn]] void fail(int rule, std::uint64_t at, const std::string& what) {
    reject_file(file_, rule, kLengthBytes + at, what);
  }

  /// The JSON reader has one error type. Its message tells a long key, which is rule 16, from a syntax error.
  bool member(std::string& key) {
    // Members of the outer object only; tensor() and metadata() set the rule themselves.
    try {
      return json_.next_member(key, kMaxNameBytes);
    } catch (const JsonError& f) {
      rule_ = std::string_view(f.what()).starts_with("a string longer") ? 16 : 5;
      throw;
    }
  }

  void metadata() {
    rule_ = 7;
    std::uint64_t start = json_.at();
    json_.open_object();
    std::string key;
    while (json_.next_member(key, kMaxMetadataBytes)) {
      std::uint64_t at = json_.at();
      std::string value = json_.string(kMaxMetadataBytes);
      // Bytes of text, not of values: escapes make a value up to six times shorter than its text.
      if (at - start > kMaxMetadataBytes || json_.at() - start > kMaxMetadataBytes)
        fail(7, start, fmt::format("__metadata__ is longer than {} bytes", kMaxMetadataBytes));
      if (!header_.metadata.emplace(key, std::move(value)).second)
        fail(6, at, fmt::format("duplicate key '{}' in __metadata__", escaped(key)));
    }
  }

  /// All three members must occur exactly once, in any order. Sizes are checked when all are known.
  void tensor(std::string name) {
    assert(header_.tensors.size() < kMaxTensors);
    TensorEntry t;
    t.name = std::move(name);
    bool dtype = false, shape = false, offsets = false;
    rule_ = 5;
    std::uint64_t start = json_.at();
    json_.open_object();
    std::string key;
    for (;;) {
      std::uint64_t at = json_.at();
      rule_ = 5;
      if (!json_.next_member(key, kMaxNameBytes)) break;
      bool* seen = key == "dtype"          ? &dtype
                   : key == "shape"        ? &shape
                   : key == "data_offsets" ? &offsets
                                           : nullptr;
      if (!seen)
        fail(5, at, fmt::format("tensor '{}' has the unknown key '{}'", escaped(t.name), escaped(key)));
      if (*seen) fail(6, at, fmt::format("tensor '{}' has a duplicate key '{}'", escaped(t.name), key));
      *seen = true;
      if (seen == &dtype) read_dtype(t);
      if (seen == &shape) read_shape(t);
      if (seen == &offsets) read_offsets(t);
    }
    for (auto [seen, what, rule] :
         {std::tuple{dtype, "dtype", 8}, {shape, "shape", 9}, {offsets, "data_offsets", 12}})
      if (!seen) fail(rule, start, fmt::format("tensor '{}' has no {}", escaped(t.name), what));
    validate_size(t, start);
    header_.tensors.push_back(std::move(t));
  }

  void read_dtype(TensorEntry& t) {
    rule_ = 8;
    std::uint64_t at = json_.at();
    t.dtype = json_.string(64);
    if (dtype_bits(t.dtype) == 0)
      fail(8, at,
           fmt::format("tensor '{}' has the unknown dtype '{}'{}", escaped(t.name), escaped(t.dtype),
                       did_you_mean(t.dtype, dtype_names())));
  }

  void read_shape(TensorEntry& t) {
    rule_ = 9;
    std::uint64_t at = json_.at();
    // On the stack, so that a rank of a million costs nothing before it is rejected.
    std::array<std::uint64_t, kMaxRank> dim;
    std::size_t rank = 0;
    for (json_.open_array(); json_.next_element(); ++rank) {
      if (rank == kMaxRank)
        fail(9, at, fmt::format("tensor '{}' has a rank above {}", escaped(t.name), kMaxRank));
      dim[rank] = json_.integer();
    }
    assert(rank <= kMaxRank);
    t.shape.assign(dim.begin(), dim.begin() + static_cast<std::ptrdiff_t>(rank));
  }

  /// Positions are relative to the data; reject_gaps() converts them to positions in the file.
  void read_offsets(TensorEntry& t) {
    rule_ = 12;
    std::uint64_t at = json_.at();
    std::uint64_t v[2] = {0, 0};
    std::size_t n = 0;
    for (json_.open_array(); json_.next_element(); ++n) {
      if (n == 2) fail(12, at, fmt::format("tensor '{}' has more than two data_offsets", escaped(t.name)));
      v[n] = json_.integer();
    }
    if (n != 2)
      fail(12, at, fmt::format("tensor '{}' has {} data_offsets, expected two", escaped(t.name), n));
    if (v[0] > v[1])
      fail(12, at,
           fmt::format("tensor '{}' ends at {}, before its start at {}", escaped(t.name), v[1], v[0]));
    t.begin = v[0];
    t.end = v[1];
  }

  /// Rules 10 to 13. The products are checked: a header may claim 2^63 elements of 64 bits, and a product
  /// that wraps to a small number would pass rule 13.
  void validate_size(const TensorEntry& t, std::uint64_t at) {
    int rule = 10;
    std::optional<std::uint64_t> bytes;
    try {
      std::uint64_t count = t.elements();
      rule = 11;
      bytes = bytes_of(count, dtype_bits(t.dtype));
    } catch (const Error&) {
      fail(rule, at,
           fmt::format("tensor '{}' is too large: shape [{}] of type {}", escaped(t.name),
                       fmt::join(t.shape, ", "), t.dtype));
    }
    if (!bytes)
      fail(11, at,
           fmt::format("tensor '{}': {} elements of type {} do not fill whole bytes", escaped(t.name),
                       t.elements(), t.dtype));
    assert(t.begin <= t.end);
    if (t.end - t.begin != *bytes)
      fail(13, at,
           fmt::format("tensor '{}': data_offsets [{}, {}] are {} bytes, but shape [{}] of type {} has {}",
                       escaped(t.name), t.begin, t.end, t.end - t.begin, fmt::join(t.shape, ", "), t.dtype,
                       *bytes));
  }

  /// Sorts indices, not entries: at this point the order is that of the text. Rule 6 cannot be checked while
  /// reading without a second copy of all names.
  void reject_duplicates() {
    std::vector<std::uint32_t> order(header_.tensors.size());
    for (std::uint32_t i = 0; i < order.size(); ++i) order[i] = i;
    const auto& t = header_.tensors;
    std::sort(order.begin(), order.end(), [&](auto a, auto b) { return t[a].name < t[b].name; });
    auto twice = std::adjacent_find(order.begin(), order.end(),
                                    [&](auto a, auto b) { return t[a].name == t[b].name; });
    if (twice != order.end())
      reject_file(file_, 6, std::nullopt, fmt::format("duplicate tensor '{}'", escaped(t[*twice].name)));
  }

  /// Checks that the tensors, sorted by offset, fill the data exactly. Invariant: those before `t` fill [0,
  /// at). Equal offsets are possible for tensors without elements; the name makes their order deterministic.
  /// A gap would be bytes that no tensor owns, in which a file could carry hidden data, and an overlap would
  /// let one tensor change another.
  void reject_gaps() {
    auto& all = header_.tensors;
    std::sort(all.begin(), all.end(), [](const TensorEntry& a, const TensorEntry& b) {
      return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
    });
    const std::uint64_t data = kLengthBytes + text_.size();
    std::uint64_t at = 0;
    for (const auto& t : all) {
      if (t.begin != at)
        reject_file(
            file_, 14, data + std::min(t.begin, data_bytes_),
            fmt::format("tensor '{}' starts at byte {} of the data, {} at {}", escaped(t.name), t.begin,
                        t.begin > at ? "after a gap that starts" : "inside the tensor that ends", at));
      assert(at <= t.end);
      at = t.end;
      if (at > data_bytes_)
        reject_file(
            file_, 15, data + data_bytes_,
            fmt::format("tensor '{}' ends at byte {} of the data, but the file has {}: it is truncated",
                        escaped(t.name), at, data_bytes_),
            "copy or download the file again");
    }
    if (at != data_bytes_)
      reject_file(file_, 15, data + at,
                  fmt::format("{} bytes after the last tensor do not belong to a tensor", data_bytes_ - at));
    assert(at == data_bytes_);
    for (auto& t : all) {
      t.begin += data;
      t.end += data;
    }
  }

  JsonReader json_;
  std::string_view text_;
  std::uint64_t data_bytes_;
  const std::string& file_;
  Header header_;
  int rule_ = 5;  // the rule that a JSON error at the current position violates
};

}  // namespace

/// A violated rule is the user's problem (exit code 2): the file is wrong, not the program.
void reject_file(const std::string& file, int rule, std::optional<std::uint64_t> byte,
                 const std::string& what, const std::string& hint) {
  const std::string position = byte ? fmt::format(" (byte {})", *byte) : "";
  throw RejectedFile(rule, fmt::format("{}: {}{}", escaped(file, 4096), what, position), hint);
}

std::uint64_t TensorEntry::elements() const {
  if (std::find(shape.begin(), shape.end(), 0u) != shape.end())
    return 0;  // zero, whatever the other dimensions are
  std::uint64_t n = 1;
  for (std::uint64_t d : shape) n = checked_mul(n, d);
  return n;
}

std::optional<std::uint64_t> bytes_of(std::uint64_t count, std::uint32_t bits) {
  if (bits % 8 == 0) return checked_mul(count, bits / 8);
  std::uint64_t total = checked_mul(count, bits);
  if (total % 8 != 0) return std::nullopt;
  return total / 8;
}

/// `rule` is taken from the reader before the exception leaves it, since the reader ends with the inner
/// block.
Header parse_header(std::string_view text, std::uint64_t data_bytes, const std::string& file) {
  if (!text.starts_with('{')) reject_file(file, 4, kLengthBytes, "the header does not start with '{'");
  int rule = 5;
  try {
    HeaderReader reader(text, data_bytes, file);
    try {
      return reader.read();
    } catch (const JsonError&) {
      rule = reader.rule();
      throw;
    }
  } catch (const JsonError& f) {
    reject_file(file, rule, kLengthBytes + f.at, f.what());
  }
}

}  // namespace trainhost::checkpoint
