// See tensor_parts_file.hpp. A rank knows the length of its header only after the last tensor, so the data
// begin after the longest possible one, and the header is written last, padded with spaces as the format
// allows.
#include "core/checkpoint/tensor_parts_file.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <charconv>
#include <cstring>

#include "core/base/checked.hpp"
#include "core/base/directory.hpp"
#include "core/base/json_value.hpp"
#include "core/base/text.hpp"
#include "core/checkpoint/dtypes.hpp"
#include "core/checkpoint/durable.hpp"
#include "core/checkpoint/safetensors.hpp"
#include "core/checkpoint/safetensors_header.hpp"
#include "core/checkpoint/xxh3.hpp"

namespace trainhost::checkpoint {
namespace fs = std::filesystem;
namespace {

constexpr std::size_t kRankFileBuffer = 256 << 10;
constexpr std::uint64_t kRankFileAlignment = 64;
constexpr std::string_view kExtension = ".safetensors";

/// Reads a text from its beginning: each call removes a given word or a whole number.
struct Scanner {
  std::string_view text;
  bool take(std::string_view word) {
    if (!text.starts_with(word)) return false;
    text.remove_prefix(word.size());
    return true;
  }
  bool take(std::uint64_t& number) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error != std::errc()) return false;
    text.remove_prefix(static_cast<std::size_t>(end - text.data()));
    return true;
  }
};

/// Whether [first, first + count) is within [0, all). Without a sum that could overflow.
bool within(std::uint64_t first, std::uint64_t count, std::uint64_t all) {
  return first <= all && count <= all - first;
}

struct Written {
  const TensorInfo* whole;
  TensorPart part;
  std::uint64_t first, count;
};

std::string header_text(const std::vector<Written>& all, std::uint64_t bytes, const fs::path& file) {
  std::string metadata = "\"format\":\"pt\"", tensors;
  std::uint64_t at = 0;
  for (const Written& w : all) {
    const std::string name = json_string(w.whole->name);
    metadata += fmt::format(",{}:{}", name, json_string(text_of({w.whole->rank, w.part, w.first})));
    const std::uint64_t end = at + w.count * sizeof(float);
    tensors += fmt::format(",{}:{{\"dtype\":\"F32\",\"shape\":[{}],\"data_offsets\":[{},{}]}}", name, w.count,
                           at, end);
    at = end;
  }
  std::string text = "{\"__metadata__\":{" + metadata + "}" + tensors + "}";
  assert(text.size() + 8 <= bytes);
  text.resize(bytes - 8, ' ');
  parse_header(text, at, file.string());  // the reader's rules
  return text;
}

/// Bytes of the longest header, a multiple of kRankFileAlignment.
std::uint64_t most_header_bytes(const std::vector<TensorInfo>& tensors) {
  constexpr std::uint64_t kNumbers = 20 * 12 + 100;  // of a tensor: digits and words
  std::uint64_t bytes = 64;
  for (const TensorInfo& t : tensors) bytes += 2 * json_string(t.name).size() + kNumbers;
  return align_up(bytes, kRankFileAlignment);
}

class RankFile {
 public:
  RankFile(fs::path target, const std::vector<TensorInfo>& tensors)
      : target_(std::move(target)), header_bytes_(most_header_bytes(tensors)), fd_(create_new(target_)) {
    buffer_.reserve(kRankFileBuffer);
    at_ = header_bytes_;
  }

  void take(const TensorInfo& whole, const TensorPart& part, std::uint64_t first,
            std::span<const float> values) {
    if (values.empty()) return;
    const bool next = !all_.empty() && all_.back().whole->name == whole.name;
    if (next ? first != all_.back().first + all_.back().count
             : !within(first, values.size(), part.elements()))
      throw run_error(fmt::format("{}: got '{}' from element {}, which does not follow the piece before it",
                                  escaped(target_.string(), 4096), escaped(whole.name), first));
    if (const NonFinite bad = count_nonfinite(values); bad.count > 0)
      throw run_error(
          fmt::format("{} is not written: tensor '{}' has a value that is NaN or infinite at element {} "
                      "of the part of this rank",
                      escaped(target_.string(), 4096), escaped(whole.name), first + bad.first),
          "the state before is in the last checkpoint; try a smaller optimizer.lr");
    if (next)
      all_.back().count += values.size();
    else
      all_.push_back({&whole, part, first, values.size()});
    std::span<const std::byte> data = std::as_bytes(values);
    while (!data.empty()) {
      const std::span<const std::byte> piece =
          data.first(std::min(data.size(), kRankFileBuffer - buffer_.size()));
      buffer_.insert(buffer_.end(), piece.begin(), piece.end());
      if (buffer_.size() == kRankFileBuffer) flush();
      data = data.subspan(piece.size());
    }
  }

  FileRecord finish() {
    flush();
    const std::string header = header_text(all_, header_bytes_, target_);
    const std::uint64_t n = header.size();
    std::string front(8, '\0');
    std::memcpy(front.data(), &n, 8);
    front += header;
    write_at(fd_.get(), 0, std::as_bytes(std::span(front)), target_);
    sync_and_close(std::move(fd_), target_);
    return read_back(front);
  }

 private:
  void flush() {
    written_.update(buffer_);
    write_at(fd_.get(), at_, buffer_, target_);
    at_ += buffer_.size();
    buffer_.clear();
  }

  /// Finds errors of memory and of the file system; the disk itself may still have the data in its cache.
  FileRecord read_back(const std::string& front) {
    struct stat info;
    const Fd in = open_regular(target_, info);
    FileRecord record{target_.filename().string(), at_, {}, {}};
    Xxh3 all, data;
    bool same = static_cast<std::uint64_t>(info.st_size) == at_;
    for (std::uint64_t at = 0; same && at < at_;) {
      const std::uint64_t end = at < header_bytes_ ? header_bytes_ : at_;
      buffer_.resize(std::min<std::uint64_t>(kRankFileBuffer, end - at));
      same = read_at(in.get(), at, buffer_, target_);
      all.update(buffer_);
      if (at >= header_bytes_)
        data.update(buffer_);
      else
        same = same && std::memcmp(front.data() + at, buffer_.data(), buffer_.size()) == 0;
      at += buffer_.size();
    }
    if (!same || data.hex() != written_.hex())
      throw run_error(fmt::format("{} is damaged after writing: reading it back gives different data",
                                  escaped(target_.string())));
    record.xxh3 = all.hex();
    return record;
  }

  const fs::path target_;
  const std::uint64_t header_bytes_;
  Fd fd_;
  std::uint64_t at_ = 0;  // byte of the file that follows those written
  std::vector<std::byte> buffer_;
  std::vector<Written> all_;
  Xxh3 written_;  // of the data
};

}  // namespace

std::string name_of_rank_file(std::string_view name, std::uint32_t rank, std::uint32_t ranks) {
  assert(name.ends_with(kExtension));
  name.remove_suffix(kExtension.size());
  return fmt::format("{}-rank-{}-of-{}{}", name, rank, ranks, kExtension);
}

std::vector<fs::path> rank_files_of(const fs::path& file) {
  constexpr std::uint64_t kMostRanks = 1u << 20;
  if (file.extension() != kExtension) return {};
  const std::string stem = file.stem().string() + "-rank-";
  const fs::path dir = file.parent_path();
  std::error_code ec;
  std::uint64_t ranks = 0, found = 0;
  for (const std::string& name : names_in_directory(dir.empty() ? fs::path(".") : dir, ec)) {
    Scanner s{name};
    std::uint64_t rank = 0, of = 0;
    if (!s.take(stem) || !s.take(rank) || !s.take("-of-") || !s.take(of) || s.text != kExtension) continue;
    if (of > kMostRanks || rank >= of || name != name_of_rank_file(file.filename().string(), rank, of))
      continue;
    if (ranks && of != ranks)
      throw usage_error(fmt::format("{} contains {} of {} ranks and of {} ranks", escaped(dir.string(), 4096),
                                    escaped(file.filename().string()), ranks, of));
    ranks = of, ++found;
  }
  std::vector<fs::path> out;
  for (std::uint64_t r = 0; r < ranks; ++r) {
    out.push_back(dir / name_of_rank_file(file.filename().string(), static_cast<std::uint32_t>(r),
                                          static_cast<std::uint32_t>(ranks)));
    if (found < ranks && !fs::exists(out.back(), ec))
      throw usage_error(fmt::format("{} is missing: the {} files of this checkpoint belong together",
                                    escaped(out.back().string(), 4096), ranks));
  }
  return out;
}

std::string text_of(const StoredPart& p) {
  const TensorPart& t = p.part;
  return fmt::format("{}{} rows {}+{} columns {}+{} first {}", t.rows,
                     p.rank == 2  ? fmt::format("x{}", t.cols)
                     : t.cols > 1 ? fmt::format("x{} flat", t.cols)
                                  : "",
                     t.first_row, t.part_rows, t.first_col, t.part_cols, p.first);
}

std::optional<StoredPart> parse_stored_part(std::string_view text) {
  StoredPart p;
  TensorPart& t = p.part;
  Scanner s{text};
  t.cols = 1;
  if (!s.take(t.rows)) return std::nullopt;
  if (s.take("x")) {
    if (!s.take(t.cols)) return std::nullopt;
    p.rank = s.take(" flat") ? 1 : 2;
  }
  if (!s.take(" rows ") || !s.take(t.first_row) || !s.take("+") || !s.take(t.part_rows) ||
      !s.take(" columns ") || !s.take(t.first_col) || !s.take("+") || !s.take(t.part_cols) ||
      !s.take(" first ") || !s.take(p.first) || !s.text.empty())
    return std::nullopt;
  std::uint64_t elements = 0;
  if (__builtin_mul_overflow(t.rows, t.cols, &elements) || elements > (std::uint64_t{1} << 61) ||
      t.part_rows == 0 || t.part_cols == 0 || !within(t.first_row, t.part_rows, t.rows) ||
      !within(t.first_col, t.part_cols, t.cols) || p.first >= t.elements())
    return std::nullopt;
  return p;
}

FileRecord write_rank_file(const fs::path& target, const std::vector<TensorInfo>& tensors,
                           const PartSource& source) {
  RankFile file(target, tensors);
  source([&](const TensorInfo& whole, const TensorPart& part, std::uint64_t first,
             std::span<const float> values) { file.take(whole, part, first, values); });
  return file.finish();
}

}  // namespace trainhost::checkpoint
