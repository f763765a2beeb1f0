// See sequence_file.hpp. Format, little-endian: 16 numbers of 64 bits (magic, version, seq_len, bytes per id,
// then SequenceCounts); then per sequence seq_len + 1 ids and as many bytes of flags.
#include "core/data/sequence_file.hpp"

#include <algorithm>
#include <array>
#include <cassert>
#include <cstring>

#include "core/base/error.hpp"
#include "core/base/text.hpp"

namespace trainhost::data {
namespace {

constexpr std::uint64_t kMagic = 0x3151'4553'5448'4f54;  // "TOHTSEQ1"
constexpr std::uint64_t kVersion = 1;
constexpr std::uint8_t kTrained = 1,
                       kStart = 2;  // the token is a counted target; it begins a document or the padding
constexpr std::size_t kMostOpen = 64, kMostOpenBytes = std::size_t{64} << 20;
using Header = std::array<std::uint64_t, 16>;

Header header_of(std::uint64_t seq_len, std::uint64_t width, const SequenceCounts& c) {
  return {kMagic,      kVersion,  seq_len,   width,       c.sequences,
          c.documents, c.tokens,  c.counted, c.truncated, c.truncated_tokens,
          c.untrained, c.padding, c.broken};
}

SequenceCounts counts_of(const Header& h) {
  return {h[4], h[5], h[6], h[7], h[8], h[9], h[10], h[11], h[12]};
}

class SequenceFile final : public Samples {
 public:
  SequenceFile(InputFile file, const Header& h, std::uint64_t vocab)
      : file_(std::move(file)), slots_(h[2] + 1), width_(h[3]), sequences_(h[4]), vocab_(vocab) {}

  std::uint64_t size() const override { return sequences_; }

  void read(std::uint64_t sample, std::span<std::int32_t> tokens, std::span<std::int32_t> targets,
            std::span<std::int32_t> starts) const override {
    assert(sample < sequences_ && tokens.size() == slots_ - 1 && targets.size() == slots_ - 1);
    assert(starts.empty() || starts.size() == slots_ - 1);
    const std::uint64_t first = sizeof(Header) + sample * slots_ * (width_ + 1);
    std::vector<std::byte> bytes(slots_ * (width_ + 1));
    file_.read(first, bytes);
    file_.require_unchanged();
    const std::byte* flags = bytes.data() + slots_ * width_;
    std::int32_t start = 0;
    for (std::size_t i = 0; i < slots_; ++i) {
      const std::int32_t id = id_at(bytes, i, first);
      const auto flag = static_cast<std::uint8_t>(flags[i]);
      if (i > 0) targets[i - 1] = (flag & kTrained) && !(flag & kStart) ? id : kNotCounted;
      if (i + 1 == slots_) break;
      tokens[i] = id;
      if (flag & kStart) start = static_cast<std::int32_t>(i);
      if (!starts.empty()) starts[i] = start;
    }
  }

 private:
  std::int32_t id_at(const std::vector<std::byte>& bytes, std::size_t i, std::uint64_t first) const {
    std::uint32_t id = 0;  // little-endian, so the upper bytes of a narrow id are 0
    std::memcpy(&id, bytes.data() + i * width_, width_);
    if (id >= vocab_)
      throw usage_error("token id " + std::to_string(id) + " at byte " + std::to_string(first + i * width_) +
                            " of " + in_quotes(file_.path()) + " is outside the vocabulary of " +
                            std::to_string(vocab_),
                        "check model.vocab_size and data.tokenizer");
    return static_cast<std::int32_t>(id);
  }

  InputFile file_;
  std::size_t slots_, width_;
  std::uint64_t sequences_, vocab_;
};

}  // namespace

SequenceWriter::SequenceWriter(const std::filesystem::path& path, std::uint32_t seq_len, bool wide,
                               bool packing)
    : file_(path),
      slots_(std::size_t{seq_len} + 1),
      most_open_(std::clamp<std::size_t>(kMostOpenBytes / (slots_ * 5), 1, kMostOpen)),
      wide_(wide),
      packing_(packing) {
  // Filled in by commit(): an incomplete file has no magic number.
  const Header empty{};
  file_.append(std::as_bytes(std::span(empty)));
}

/// The first token of a document is never a target. A document that is truncated, or a piece of a text, may
/// have no counted target; training on it would compute nothing.
void SequenceWriter::add(const Document& d) {
  assert(d.ids.size() == d.trained.size());
  std::size_t size = d.ids.size();
  if (size > slots_ && !d.divisible) {
    ++counts_.truncated;
    counts_.truncated_tokens += size - slots_;
    size = slots_;
  }
  bool used = false;
  // Pieces overlap by one token: the last target of a piece is the first input of the next one.
  for (std::size_t first = 0; first == 0 || first + 1 < size; first += slots_ - 1) {
    const std::size_t n = std::min(size - first, slots_);
    const auto trained = std::span(d.trained).subspan(first, n);
    if (n < 2 || std::none_of(trained.begin() + 1, trained.end(), [](std::uint8_t t) { return t != 0; }))
      continue;
    place(std::span(d.ids).subspan(first, n), trained);
    used = true;
  }
  counts_.documents += used;
  counts_.untrained += !used;
}

void SequenceWriter::place(std::span<const std::int32_t> ids, std::span<const std::uint8_t> trained) {
  const auto fuller = [](const Sequence& a, const Sequence& b) { return a.ids.size() < b.ids.size(); };
  Sequence* best = nullptr;
  for (Sequence& s : open_)
    if (s.ids.size() + ids.size() <= slots_ && (!best || fuller(*best, s))) best = &s;
  if (!best) {
    if (open_.size() == most_open_) {
      const auto fullest = std::max_element(open_.begin(), open_.end(), fuller);
      write(*fullest);
      open_.erase(fullest);
    }
    best = &open_.emplace_back();
  }
  for (std::size_t i = 0; i < ids.size(); ++i) {
    best->ids.push_back(ids[i]);
    best->flags.push_back(
        static_cast<std::uint8_t>((i == 0 ? kStart : 0) | (i > 0 && trained[i] ? kTrained : 0)));
    counts_.counted += i > 0 && trained[i];
  }
  counts_.tokens += ids.size();
  if (!packing_ || best->ids.size() + 1 >= slots_) {  // a rest of one position has no target
    write(*best);
    open_.erase(open_.begin() + (best - open_.data()));
  }
}

/// Padding has id 0 and counts as a document of its own.
void SequenceWriter::write(Sequence& s) {
  counts_.padding += slots_ - s.ids.size();
  if (s.ids.size() < slots_) {
    s.flags.push_back(kStart);
    s.flags.resize(slots_), s.ids.resize(slots_);
  }
  if (wide_) {
    file_.append(std::as_bytes(std::span(s.ids)));
  } else {
    std::vector<std::uint16_t> narrow(slots_);
    for (std::size_t i = 0; i < slots_; ++i) {
      assert(s.ids[i] >= 0 && s.ids[i] <= 65535);
      narrow[i] = static_cast<std::uint16_t>(s.ids[i]);
    }
    file_.append(std::as_bytes(std::span(narrow)));
  }
  file_.append(std::as_bytes(std::span(s.flags)));
  ++counts_.sequences;
}

SequenceCounts SequenceWriter::commit(std::uint64_t broken) {
  counts_.broken = broken;
  for (Sequence& s : open_) write(s);
  open_.clear();
  const Header header = header_of(slots_ - 1, wide_ ? 4 : 2, counts_);
  file_.overwrite(0, std::as_bytes(std::span(header)));
  file_.commit();
  return counts_;
}

std::unique_ptr<Samples> open_sequences(InputFile file, std::uint32_t seq_len, std::uint64_t vocab,
                                        SequenceCounts& counts) {
  Header h{};
  if (file.size() >= sizeof h) file.read(0, std::as_writable_bytes(std::span(h)));
  const auto fail = [&](const std::string& what) {
    throw usage_error("file " + in_quotes(file.path()) + " " + what,
                      "remove it; it is written from the data when it is missing");
  };
  if (h[0] != kMagic || h[1] != kVersion || (h[3] != 2 && h[3] != 4)) fail("has no sequences of version 1");
  if (h[2] != seq_len) fail("has sequences of " + format_count(h[2]) + " tokens");
  const std::uint64_t bytes = (h[2] + 1) * (h[3] + 1);
  if ((file.size() - sizeof h) % bytes != 0 || (file.size() - sizeof h) / bytes != h[4])
    fail("is incomplete");
  counts = counts_of(h);
  return std::make_unique<SequenceFile>(std::move(file), h, vocab);
}

}  // namespace trainhost::data
