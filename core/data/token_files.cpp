// Format detection, checked reading and writing of token files; see token_files.hpp. Every id is compared
// with the vocabulary size when it is read: an invalid id must never reach an embedding lookup. No class here
// keeps ids in memory; a batch is read from the file when it is needed.
#include "core/data/token_files.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cassert>
#include <cstring>

#include "core/base/checked.hpp"
#include "core/base/error.hpp"
#include "core/base/text.hpp"

namespace trainhost::data {
namespace {

static_assert(std::endian::native == std::endian::little, "token files are little-endian");

/// Ids of one file. Thread-safe, because InputFile::read() is a positioned read and no member changes.
class FileTokens final : public Tokens {
 public:
  FileTokens(InputFile file, const TokenFormat& format, std::uint64_t vocab)
      : file_(std::move(file)), format_(format), vocab_(vocab) {}

  std::uint64_t size() const override { return format_.count; }
  std::uint64_t held_bytes() const override { return 0; }

  /// `first` counts ids, not bytes. 8192 bytes on the stack are at most 4096 ids of 16 bit: one system call
  /// per sample of common lengths, and no allocation.
  void read(std::uint64_t first, std::span<std::int32_t> out) const override {
    assert(out.size() <= size() && first <= size() - out.size());
    std::array<std::byte, 8192> bytes;
    while (!out.empty()) {
      const std::size_t n = std::min(out.size(), bytes.size() / format_.width);
      const std::span<std::byte> raw(bytes.data(), n * format_.width);
      file_.read(format_.first_byte + first * format_.width, raw);
      if (format_.width == 1)
        widen<std::uint8_t>(raw, first, out.first(n));
      else if (format_.width == 2)
        widen<std::uint16_t>(raw, first, out.first(n));
      else
        widen<std::uint32_t>(raw, first, out.first(n));
      out = out.subspan(n);
      first += n;
    }
    // After reading: what was written before this point may be in `out`.
    file_.require_unchanged();
  }

 private:
  /// memcpy, since ids in a file are not aligned. Id is unsigned, so a damaged id cannot become a negative
  /// index.
  template <class Id>
  void widen(std::span<const std::byte> raw, std::uint64_t first, std::span<std::int32_t> out) const {
    for (std::size_t i = 0; i < out.size(); ++i) {
      Id id;
      std::memcpy(&id, raw.data() + i * sizeof id, sizeof id);
      if (id >= vocab_) reject_id(id, first + i);
      out[i] = static_cast<std::int32_t>(id);
    }
  }

  /// Both causes look alike: a wrong vocabulary, or a file read with the wrong width. The message names both
  /// keys.
  [[noreturn]] void reject_id(std::uint64_t id, std::uint64_t index) const {
    const bool text = format_.form == TokenForm::kBytes;
    throw usage_error("data file " + in_quotes(file_.path()) + ", byte " +
                          std::to_string(format_.first_byte + index * format_.width) + ": " +
                          (text ? "byte " : "token id ") + std::to_string(id) +
                          " is outside the vocabulary of " + std::to_string(vocab_),
                      text ? "set model.vocab_size = 256, or set data.tokenizer"
                           : "check model.vocab_size and data.dtype (the file is read as " +
                                 std::string(name(format_.form)) + ")");
  }

  InputFile file_;
  TokenFormat format_;
  std::uint64_t vocab_;
};

/// The concatenation of several texts, in the order of the run file. A sample may cross the end of a part.
class JoinedTokens final : public Tokens {
 public:
  explicit JoinedTokens(std::vector<std::unique_ptr<Tokens>> parts) : parts_(std::move(parts)) {
    assert(!parts_.empty());
    for (const auto& p : parts_)
      ends_.push_back(checked_add(ends_.empty() ? 0 : ends_.back(), p->size(), "a text's size"));
  }
  std::uint64_t size() const override { return ends_.back(); }
  std::uint64_t held_bytes() const override {
    std::uint64_t sum = 0;
    for (const auto& p : parts_) sum += p->held_bytes();
    return sum;
  }
  void read(std::uint64_t first, std::span<std::int32_t> out) const override {
    assert(out.size() <= size() && first <= size() - out.size());
    // The first part that ends beyond `first`; parts without tokens are skipped, since they end where they
    // begin.
    std::size_t i =
        static_cast<std::size_t>(std::upper_bound(ends_.begin(), ends_.end(), first) - ends_.begin());
    for (; !out.empty(); ++i) {
      assert(i < parts_.size() && ends_[i] >= first);
      const std::uint64_t begin = i == 0 ? 0 : ends_[i - 1];
      const std::size_t n = static_cast<std::size_t>(std::min<std::uint64_t>(out.size(), ends_[i] - first));
      if (n > 0) parts_[i]->read(first - begin, out.first(n));
      out = out.subspan(n);
      first += n;
    }
  }

 private:
  std::vector<std::unique_ptr<Tokens>> parts_;
  std::vector<std::uint64_t> ends_;  // ends_[i]: number of tokens in parts 0 to i
};

/// Tokens [first, first + count) of another text. Both parts of a split share the ownership of the whole.
class PartTokens final : public Tokens {
 public:
  PartTokens(std::shared_ptr<const Tokens> all, std::uint64_t first, std::uint64_t count)
      : all_(std::move(all)), first_(first), count_(count) {
    assert(first_ <= all_->size() && count_ <= all_->size() - first_);
  }
  std::uint64_t size() const override { return count_; }
  std::uint64_t held_bytes() const override { return first_ == 0 ? all_->held_bytes() : 0; }  // counted once
  void read(std::uint64_t first, std::span<std::int32_t> out) const override {
    assert(out.size() <= count_ && first <= count_ - out.size());
    all_->read(first_ + first, out);
  }

 private:
  std::shared_ptr<const Tokens> all_;
  std::uint64_t first_, count_;
};

/// False if the file has no llm.c header. A file with the magic number but a wrong count is an error and not
/// a raw file: that is what a truncated download looks like.
bool read_llmc_header(const InputFile& file, TokenFormat& format) {
  std::array<std::int32_t, 3> head{};
  if (file.size() < sizeof head) return false;
  file.read(0, std::as_writable_bytes(std::span(head)));
  const auto [magic, version, count] = head;
  if (magic != kLlmcMagic16 && magic != kLlmcMagic32) return false;
  const bool wide = magic == kLlmcMagic32;
  const std::string who = "data file " + in_quotes(file.path());
  if (version != (wide ? 7 : 1))
    throw usage_error(who + " has llm.c's magic number " + std::to_string(magic) + " and version " +
                      std::to_string(version) + "; expected version " + (wide ? "7" : "1"));
  if (file.size() < kLlmcHeaderBytes)
    throw usage_error(who + " has " + format_count(file.size()) +
                      " bytes, fewer than the 1024 of an llm.c header");
  format = {wide ? TokenForm::kLlmcUint32 : TokenForm::kLlmcUint16, wide ? 4u : 2u, kLlmcHeaderBytes, 0};
  // count is a signed 32-bit number of a file; a negative one is rejected below before it is used.
  const std::uint64_t expected =
      kLlmcHeaderBytes + static_cast<std::uint32_t>(count) * std::uint64_t{format.width};
  if (count <= 0 || file.size() != expected)
    throw usage_error(who + ": its header counts " + std::to_string(count) + " tokens, so it should have " +
                      (count <= 0 ? "at least one" : format_count(expected) + " bytes") + ", but it has " +
                      format_count(file.size()) + " bytes");
  format.count = static_cast<std::uint64_t>(count);
  return true;
}

}  // namespace

std::string_view name(TokenForm f) {
  switch (f) {
    case TokenForm::kBytes:
      return "text by bytes";
    case TokenForm::kUint16:
      return "raw uint16";
    case TokenForm::kUint32:
      return "raw uint32";
    case TokenForm::kLlmcUint16:
      return "llm.c uint16";
    case TokenForm::kLlmcUint32:
      return "llm.c uint32";
  }
  return "?";
}

TokenFormat bin_format(const InputFile& file, const std::string& dtype, std::uint64_t vocab) {
  const std::vector<std::string> dtypes{"uint16", "uint32"};
  if (!dtype.empty() && dtype != "uint16" && dtype != "uint32")
    throw usage_error("data.dtype is '" + escaped(dtype) + "'; expected uint16 or uint32" +
                      did_you_mean(dtype, dtypes));
  TokenFormat format;
  if (read_llmc_header(file, format)) {
    const std::string own = format.width == 4 ? "uint32" : "uint16";
    if (!dtype.empty() && dtype != own)
      throw usage_error("data file " + in_quotes(file.path()) + " contains " + own +
                        " ids according to its llm.c header, but data.dtype is " + dtype);
    return format;
  }
  // Raw files state no width. Vocabularies up to 65536 are stored as uint16 by all common tools.
  const bool wide = dtype.empty() ? vocab > 65536 : dtype == "uint32";
  format = {wide ? TokenForm::kUint32 : TokenForm::kUint16, wide ? 4u : 2u, 0, 0};
  if (file.size() % format.width != 0)
    throw usage_error("data file " + in_quotes(file.path()) + " has " + format_count(file.size()) +
                          " bytes, which is not a multiple of the size of " + (wide ? "uint32" : "uint16") +
                          " ids",
                      "set data.dtype; a text file must not end in .bin");
  format.count = file.size() / format.width;
  return format;
}

/// Ids are passed on as int32, so at most 2^31 of them are valid, whatever vocabulary the caller has.
std::unique_ptr<Tokens> file_tokens(InputFile file, const TokenFormat& format, std::uint64_t vocab) {
  return std::make_unique<FileTokens>(std::move(file), format,
                                      std::min<std::uint64_t>(vocab, std::uint64_t{1} << 31));
}

/// The common case of one file needs no search per read.
std::unique_ptr<Tokens> joined(std::vector<std::unique_ptr<Tokens>> parts) {
  if (parts.size() == 1) return std::move(parts.front());
  return std::make_unique<JoinedTokens>(std::move(parts));
}

std::pair<std::unique_ptr<Tokens>, std::unique_ptr<Tokens>> split_last(std::unique_ptr<Tokens> all,
                                                                       std::uint64_t n) {
  const std::shared_ptr<const Tokens> shared = std::move(all);
  assert(n <= shared->size());
  const std::uint64_t head = shared->size() - n;
  return {std::make_unique<PartTokens>(shared, 0, head), std::make_unique<PartTokens>(shared, head, n)};
}

/// The header is written as zeros and filled in by commit(): the count is not known before the end, and an
/// incomplete file has no magic number.
TokenWriter::TokenWriter(const std::filesystem::path& path, bool wide, bool header)
    : file_(path), wide_(wide), header_(header) {
  if (header) file_.append(std::array<std::byte, kLlmcHeaderBytes>{});
}

/// All ids are checked before any is appended, so the file never holds part of a call.
void TokenWriter::append(std::span<const std::int32_t> ids) {
  count_ += ids.size();
  if (wide_) return file_.append(std::as_bytes(ids));
  std::vector<std::uint16_t> narrow(ids.size());
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < 0 || ids[i] > 65535)
      throw usage_error("token id " + std::to_string(ids[i]) + " does not fit uint16", "use dtype uint32");
    narrow[i] = static_cast<std::uint16_t>(ids[i]);
  }
  file_.append(std::as_bytes(std::span(narrow)));
}

/// The count is the last thing written before the file is made durable.
void TokenWriter::commit() {
  if (header_) {
    if (count_ > INT32_MAX)
      throw usage_error("a token file with a header holds at most 2,147,483,647 tokens; this text has " +
                        format_count(count_));
    const std::array<std::int32_t, 3> head{wide_ ? kLlmcMagic32 : kLlmcMagic16, wide_ ? 7 : 1,
                                           static_cast<std::int32_t>(count_)};
    file_.overwrite(0, std::as_bytes(std::span(head)));
  }
  file_.commit();
}

}  // namespace trainhost::data
