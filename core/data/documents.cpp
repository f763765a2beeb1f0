// See documents.hpp.
#include "core/data/documents.hpp"

#include <algorithm>
#include <cassert>

#include "core/base/json_value.hpp"
#include "core/base/text.hpp"
#include "core/records/recognize_template.hpp"

namespace trainhost::data {
namespace fs = std::filesystem;
namespace {

constexpr std::uint64_t kMaxConfigBytes = std::uint64_t{64} << 20;  // some have thousands of added tokens

std::string built_in_names() {
  std::string all;
  for (const std::string& n : records::chat_template_names()) all += (all.empty() ? "" : ", ") + n;
  return all;
}

std::string text_of_token(const JsonValue& config, const char* key) {
  const JsonValue* v = config.find(key);
  if (!v) return "";
  return v->is_string() ? v->string : std::string(v->text_of("content"));  // an AddedToken is an object
}

/// "chat_template" is a text, or a list of named ones, of which the default one is used. "" if there is none.
/// Throws if the list has no default one.
std::string jinja_in(const JsonValue& config, const fs::path& file) {
  const JsonValue* v = config.find("chat_template");
  if (!v) return "";
  std::string names;
  for (const JsonValue& named : v->elements) {
    if (named.text_of("name") == "default") return std::string(named.text_of("template"));
    names += (names.empty() ? "" : ", ") + in_quotes(std::string(named.text_of("name")));
  }
  if (!names.empty())
    throw usage_error(
        "chat_template of " + in_quotes(file) + " is a list without the name 'default': it has " + names,
        "set data.chat_template, or --chat-template, to one of " + built_in_names());
  return v->string;
}

/// The chat template of the model in a folder. chat_template.jinja, which newer versions of transformers
/// write, takes precedence over the key of tokenizer_config.json; the texts of the start and end tokens are
/// in the latter.
std::optional<records::ChatTemplate> template_in(const fs::path& folder) {
  std::error_code ec;
  const fs::path config_file = folder / "tokenizer_config.json", jinja_file = folder / "chat_template.jinja";
  JsonValue config = JsonValue::object();
  if (fs::is_regular_file(config_file, ec)) {
    const std::string text = read_whole(config_file, kMaxConfigBytes);
    try {
      config = parse_json(text);
    } catch (const JsonError& e) {
      throw usage_error(e.what(), "", JsonPositions(text, config_file.string()).where(e.at));
    }
  }
  const bool in_file = fs::is_regular_file(jinja_file, ec);
  const fs::path& from = in_file ? jinja_file : config_file;
  const std::string jinja = in_file ? read_whole(jinja_file, kMaxConfigBytes) : jinja_in(config, config_file);
  if (jinja.empty()) return std::nullopt;
  return records::recognize_template(jinja, text_of_token(config, "bos_token"),
                                     text_of_token(config, "eos_token"), from.string());
}

/// Refuses a file whose first bytes say that it is compressed, an archive or UTF-16: its text would be listed
/// as broken records that explain nothing.
void refuse_binary_records(const InputFile& file) {
  struct Format {
    std::string_view begin;
    const char *what, *hint;
  };
  using namespace std::string_view_literals;
  static constexpr const char* kDecompress = "decompress it first";
  static constexpr const char* kUtf16 = "convert it to UTF-8: iconv -f UTF-16 -t UTF-8 FILE > NEW";
  static constexpr Format kFormats[] = {{"\x1f\x8b"sv, "compressed by gzip", kDecompress},
                                        {"\x28\xb5\x2f\xfd"sv, "compressed by zstd", kDecompress},
                                        {"\xfd\x37zXZ"sv, "compressed by xz", kDecompress},
                                        {"PK\x03\x04"sv, "a zip archive", "unpack it first"},
                                        {"PAR1"sv, "a Parquet table", "convert it to JSON Lines"},
                                        {"\xff\xfe"sv, "UTF-16", kUtf16},
                                        {"\xfe\xff"sv, "UTF-16", kUtf16}};
  char first[8] = {};
  const std::size_t n = std::min<std::uint64_t>(sizeof first, file.size());
  file.read(0, std::as_writable_bytes(std::span(first, n)));
  for (const Format& f : kFormats)
    if (std::string_view(first, n).starts_with(f.begin))
      throw usage_error(
          "data file " + in_quotes(file.path()) + " is " + f.what + "; records are read as UTF-8", f.hint);
}

}  // namespace

bool is_record_file(const fs::path& path) { return records::has_records(path.filename().string()); }

void refuse_tables(const fs::path& path) {
  std::string extension = path.extension().string();
  for (char& c : extension) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
  const std::string to = in_quotes(fs::path(path.filename()).replace_extension(".jsonl"));
  const std::string from = in_quotes(path.filename());
  if (extension == ".parquet")
    throw usage_error("data file " + in_quotes(path) + " is a Parquet table, which is not read",
                      "convert it: python3 -c \"import pandas; pandas.read_parquet(" + from + ").to_json(" +
                          to + ", orient='records', lines=True)\"");
  if (extension == ".arrow" || extension == ".feather")
    throw usage_error("data file " + in_quotes(path) + " is an Arrow table, which is not read",
                      "convert it: python3 -c \"import datasets; datasets.Dataset.from_file(" + from +
                          ").to_json(" + to + ")\"");
}

records::ReadBytes reader_of(const InputFile& file, OnRead on_read) {
  return [&file, at = std::uint64_t{0}, on_read = std::move(on_read)](std::span<char> out) mutable {
    const auto n = static_cast<std::size_t>(std::min<std::uint64_t>(out.size(), file.size() - at));
    file.read(at, std::as_writable_bytes(out.first(n)));
    at += n;
    if (on_read) on_read(at);
    return n;
  };
}

DocumentEncoder::DocumentEncoder(const Tokenizer& tokenizer, const RecordOptions& options)
    : tokenizer_(tokenizer), loss_on_(options.loss_on), special_tokens_(options.special_tokens) {
  if (options.chat_template != "auto") {
    template_ = records::chat_template(options.chat_template);
    return;
  }
  for (const fs::path& folder : options.model_folders) {
    if ((template_ = template_in(folder))) return;
    searched_ += (searched_.empty() ? "" : " or ") + in_quotes(folder);
  }
}

std::vector<records::Part> DocumentEncoder::parts(const records::Record& record) {
  if (record.kind == records::RecordKind::kMessages && !template_)
    throw usage_error(
        "conversations need a chat template, and " +
            (searched_.empty() ? "no folder of a model is given" : "there is none in " + searched_),
        "set data.chat_template, or --chat-template, to one of " + built_in_names());
  std::vector<records::Part> joined;
  for (records::Part& p : records::render(record, chat_template(), loss_on_)) {
    if (p.special && !tokenizer_.id_of(p.text)) missing_.insert(p.text), p.special = false;
    if (!joined.empty() && !p.special && !joined.back().special && joined.back().trained == p.trained)
      joined.back().text += p.text;
    else
      joined.push_back(std::move(p));
  }
  return joined;
}

Document DocumentEncoder::encode(const records::Record& record) {
  Document d;
  d.divisible = record.kind == records::RecordKind::kText;
  const auto append = [&](std::span<const std::int32_t> ids, bool trained) {
    d.ids.insert(d.ids.end(), ids.begin(), ids.end());
    d.trained.resize(d.ids.size(), trained);
  };
  const std::vector<records::Part> parts = this->parts(record);
  std::vector<tokenizer::Part> texts;
  for (const records::Part& p : parts)
    texts.push_back({p.text, p.special || (d.divisible && special_tokens_) ? tokenizer::Names::kSpecial
                                                                           : tokenizer::Names::kText});
  const tokenizer::PartIds encoded = tokenizer_.encode_parts(texts);
  // A chat template has the tokens before and after the text itself.
  const bool is_chat = record.kind == records::RecordKind::kMessages;
  if (!is_chat) append(tokenizer_.before(), false);
  // As transformers' return_assistant_tokens_mask: an id is trained if any of its text is.
  const std::size_t offset = d.ids.size();
  append(encoded.ids, false);
  for (std::size_t i = 0, first = 0; i < parts.size(); first = encoded.ends[i++]) {
    const std::size_t end = encoded.text_ends.empty() ? encoded.ends[i] : encoded.text_ends[i];
    if (parts[i].trained && end > first)
      std::fill_n(d.trained.begin() + static_cast<std::ptrdiff_t>(offset + first), end - first,
                  std::uint8_t{1});
  }
  // A model must learn where a document ends, also if the tokenizer's own rule does not mark it.
  std::vector<std::int32_t> after = tokenizer_.after();
  if (const std::optional<std::int32_t> eos = tokenizer_.eos(); after.empty() && eos) after.push_back(*eos);
  if (!is_chat) append(after, true);
  assert(d.ids.size() == d.trained.size());
  return d;
}

void read_record_files(const std::vector<fs::path>& files, const RecordOptions& options,
                       records::RecordCounts& counts,
                       const std::function<void(records::Record&, const Where&)>& take,
                       const OnRead& on_read) {
  std::uint64_t before = 0;  // bytes of the files before
  for (const fs::path& path : files) {
    const InputFile file(path);
    refuse_binary_records(file);
    const auto read = [&](std::uint64_t bytes) {
      if (on_read) on_read(before + bytes);
    };
    const auto reader = records::open_records(reader_of(file, read),
                                              records::format_of(path.filename().string()), path.string());
    records::read_records(*reader, options.keys, options.on_error, counts, take);
    file.require_unchanged();
    before += file.size();
  }
  if (counts.read > 0) return;
  const std::string name = files.size() == 1 ? "data file " + in_quotes(files.front()) + " has"
                                             : std::to_string(files.size()) + " data files have";
  throw usage_error(name + " no record" + (counts.broken ? " that can be used; " + counts.message() : ""));
}

}  // namespace trainhost::data
