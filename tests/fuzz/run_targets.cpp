// Readers of what runs have written, and of what a browser sends to the page of a run: files of ranks,
// folders of runs, HTTP requests. See targets.hpp.
#include <algorithm>
#include <charconv>
#include <memory>
#include <numeric>
#include <vector>

#include "core/checkpoint/safetensors.hpp"
#include "core/checkpoint/tensor_parts_file.hpp"
#include "core/live/live_request.hpp"
#include "core/report/run_page.hpp"
#include "core/report/terminal.hpp"
#include "tests/fuzz/file_targets.hpp"
#include "tests/fuzz/reader_checks.hpp"

namespace trainhost::fuzz {
namespace {

namespace fs = std::filesystem;
using Texts = std::vector<std::string>;

/// The parts between separators; the last one is the rest.
std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> out;
  for (std::size_t at; (at = text.find(separator)) != text.npos; text.remove_prefix(at + 1))
    out.push_back(text.substr(0, at));
  out.push_back(text);
  return out;
}

TensorInfo tensor(const char* name, std::uint64_t rows, std::uint64_t cols) {
  TensorInfo t;
  t.name = name, t.role = TensorRole::kQ, t.rank = cols > 1 ? 2 : 1, t.dim = {rows, cols};
  return t;
}

std::string safetensors_bytes(std::string_view header, std::uint64_t data_bytes) {
  const std::uint64_t n = header.size();
  std::string bytes(reinterpret_cast<const char*>(&n), sizeof n);
  bytes += header;
  for (std::uint64_t i = 0; i < data_bytes / sizeof(float); ++i) {
    const auto value = static_cast<float>(i);
    bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  return bytes;
}

/// Each line is the file of a rank: bytes of data, then the header; or "@", then the name of another file of
/// the folder. The tensors are a [4, 3] and b [5].
void rank_files(std::string_view input) {
  if (const auto p = checkpoint::parse_stored_part(input)) {
    const auto again = checkpoint::parse_stored_part(checkpoint::text_of(*p));
    require(again && checkpoint::text_of(*again) == checkpoint::text_of(*p), "a part changes when written");
    require(p->first < p->part.elements() && p->part.elements() <= p->part.rows * p->part.cols,
            "a part is outside its tensor");
  }
  const Folder dir;
  std::vector<std::string_view> ranks;
  for (const std::string_view line : split(input, '\n')) {
    if (!line.starts_with('@'))
      ranks.push_back(line);
    else if (line.size() > 1 && line.size() < 200 && line.find_first_of({"/\0", 2}) == line.npos)
      dir.write(std::string(line.substr(1)), "");
  }
  if (ranks.size() > 8) ranks.resize(8);
  for (std::uint32_t r = 0; r < ranks.size(); ++r) {
    std::uint64_t bytes = 0;
    const char* const end = ranks[r].data() + ranks[r].size();
    const std::string_view header(std::from_chars(ranks[r].data(), end, bytes).ptr, end);
    dir.write(
        checkpoint::name_of_rank_file("weights.safetensors", r, static_cast<std::uint32_t>(ranks.size())),
        safetensors_bytes(header, std::min<std::uint64_t>(bytes, 4096)));
  }
  rejected_or([&] {
    checkpoint::WeightSource source(dir.path());
    std::uint64_t stored = 0;
    for (const checkpoint::SafetensorsFile& file : source.files())
      for (const checkpoint::TensorEntry& t : file.tensors()) stored += t.end - t.begin;
    const std::vector<TensorInfo> tensors = {tensor("a", 4, 3), tensor("b", 5, 1)};
    source.require(tensors, false);
    require(stored == 17 * sizeof(float), "a tensor without all its elements, or with more");
    for (const TensorInfo& t : tensors)
      for (const std::size_t piece : {std::size_t{1}, std::size_t{5}, std::size_t{100}}) {
        std::vector<float> scratch(piece);
        std::uint64_t next = 0;
        source.stream(t, scratch, [&](std::uint64_t first, std::span<const float> values) {
          require(first == next, "pieces are not in order");
          next += values.size();
        });
        require(next == t.elements(), "a tensor is not read to its end");
      }
  });
}

constexpr char kNextFile = '\x1c';
constexpr const char* kFilesOfRun[] = {"metrics.jsonl",    "status.json",   "run.toml",
                                       "environment.json", "samples.jsonl", "run.log"};

/// The first byte says how much of metrics.jsonl is there at first; then the files of the folder, separated.
/// A record that follows a growing file says what one says that reads it at once, and no text becomes markup
/// or a command of the terminal.
void run_folder(std::string_view input) {
  const std::size_t share = input.empty() ? 0 : static_cast<unsigned char>(input[0]);
  input.remove_prefix(std::min<std::size_t>(1, input.size()));
  const Folder dir;
  std::vector<std::string_view> files = split(input, kNextFile);
  files.resize(std::size(kFilesOfRun));
  for (std::size_t i = 1; i < files.size(); ++i)
    if (!files[i].empty()) dir.write(kFilesOfRun[i], files[i]);
  const std::string_view metrics = files[0];
  dir.write(kFilesOfRun[0], metrics.substr(0, metrics.size() * share / 255));
  const auto record = [&] {
    report::RunRecords out;
    out.push_back(std::make_unique<report::RunRecord>(dir.path(), 4));
    out.back()->update();
    return out;
  };
  const report::RunRecords grown = record();
  dir.write(kFilesOfRun[0], metrics);
  grown[0]->update();
  report::RunRecords runs = record();
  require(report::run_update(grown, {}) == report::run_update(runs, {}),
          "a growing file is read as another one");
  require(report::compare_json(grown) == report::compare_json(runs), "and compared as another one");
  rejected_or([&] { runs[0]->require_run(); });
  const std::string page = report::run_html(runs, "", true);
  require(valid_utf8(page) && page.find("<attack") == page.npos, "a text is markup");
  runs.push_back(std::make_unique<report::RunRecord>(dir.path() / "none", 4));
  for (const std::string& page_of_two : {report::run_html(runs, ""), report::run_update(runs, {})})
    require(valid_utf8(page_of_two) && page_of_two.find("<attack") == page_of_two.npos,
            "a text of two runs is markup");
  const std::string table = report::compare_table(runs, report::Terminal{});
  require(valid_utf8(table), "the table is not UTF-8");
  for (const char c : table)
    require(c == '\n' || static_cast<unsigned char>(c) >= ' ', "the table has a control character");
}

/// Whether the header names this machine once. Independent of live_request.cpp.
bool names_this_machine(const live::RequestParser::value_type& r) {
  std::string host;
  int hosts = 0;
  for (const auto& field : r)
    if (field.name() == boost::beast::http::field::host) {
      host.assign(field.value().data(), field.value().size());
      ++hosts;
    }
  const std::size_t port = host.find(':', host.starts_with('[') ? std::min(host.find(']'), host.size()) : 0);
  const std::string name = host.substr(0, port);
  return hosts == 1 && (name == "127.0.0.1" || name == "localhost" || name == "[::1]");
}

/// A request, whole and in two pieces, of which the first byte gives the border.
void http_request(std::string_view input) {
  const std::size_t share = input.empty() ? 0 : static_cast<unsigned char>(input[0]);
  input.remove_prefix(std::min<std::size_t>(1, input.size()));
  const auto read = [&](std::size_t first) {
    live::RequestParser parser;
    boost::system::error_code error;
    std::size_t used = 0;
    for (const std::size_t end : {first, input.size()})
      while (!error && !parser.is_done() && used < end) {
        const std::size_t n = parser.put(boost::asio::buffer(input.data() + used, end - used), error);
        used += n;
        if (error == boost::beast::http::error::need_more) error = {};
        if (n == 0) break;
      }
    if (error || !parser.is_done()) return -1;
    const auto& r = parser.get();
    const live::Request asked = live::request_of(r);
    const bool served = asked == live::Request::kPage || asked == live::Request::kEvents;
    require((asked == live::Request::kOtherMachine) == !names_this_machine(r), "served to another machine");
    require(!served || r.method() == boost::beast::http::verb::get, "served to another method");
    require(!served || used <= live::RequestParser::kMostHeaderBytes, "a header of any length is read");
    return static_cast<int>(asked);
  };
  require(read(0) == read(input.size() * share / 255), "a request in two pieces is another one");
}

Texts rank_files_seeds() {
  const auto header = [](const std::string& a, const std::string& b, int of_a, int of_b) {
    const auto entry = [](const char* name, int begin, int end) {
      return ",\"" + std::string(name) + R"(":{"dtype":"F32","shape":[)" + std::to_string(end - begin) +
             R"(],"data_offsets":[)" + std::to_string(4 * begin) + "," + std::to_string(4 * end) + "]}";
    };
    return std::to_string(4 * (of_a + of_b)) + R"({"__metadata__":{"format":"pt")" +
           (of_a ? R"(,"a":")" + a + "\"" : "") + (of_b ? R"(,"b":")" + b + "\"" : "") + "}" +
           (of_a ? entry("a", 0, of_a) : "") + (of_b ? entry("b", of_a, of_a + of_b) : "") + "}";
  };
  return {header("4x3 rows 0+2 columns 0+3 first 0", "5 rows 0+5 columns 0+1 first 0", 6, 3) + "\n" +
              header("4x3 rows 2+2 columns 0+3 first 0", "5 rows 0+5 columns 0+1 first 3", 6, 2),
          header("4x3 rows 0+4 columns 0+1 first 0", "", 4, 0) + "\n" +
              header("4x3 rows 0+4 columns 1+2 first 0", "5 rows 0+5 columns 0+1 first 0", 8, 5),
          header("4x3 rows 0+4 columns 0+3 first 0", "5 rows 0+5 columns 0+1 first 0", 12, 5) +
              "\n@weights-rank-1-of-4.safetensors",
          "16x32 rows 0+16 columns 8+8 first 64", "5 rows 0+5 columns 0+1 first 4"};
}

Texts run_folder_seeds() {
  const std::string plan =
      R"({"model":{"name":"m<attack","family":"llama","parameters":{"total":1000}},"estimates":[{"tiers":[{"tier":"host",)"
      R"("total_bytes":3000,"components":[{"name":"weights","bytes":1000},{"name":"activations","bytes":2000}]}]}],)"
      R"("timeline":[{"moment":"forward","bytes":3000,"components":{"weights":1000}}]})";
  const std::string start =
      R"({"event":"start","steps":6,"backend":"cpu","source":{"name":"<attack"},"plan":)" + plan + "}\n";
  std::string steps;
  for (int s = 1; s <= 6; ++s)
    steps += R"({"event":"step","step":)" + std::to_string(s) +
             R"(,"loss":2.5,"grad_norm":1.5,"lr":0.001,"tokens":100,"ms":10,"tokens_per_s":10000,)"
             R"("memory_bytes":3000})"
             "\n";
  const std::string others = R"({"event":"eval","step":2,"loss":2.5,"tokens":9})"
                             "\n"
                             R"({"event":"checkpoint","step":2})"
                             "\n"
                             R"({"event":"note","text":"<attack"})"
                             "\n";
  const std::string done =
      R"({"event":"done","steps":6,"memory":{"predicted_bytes":3000,"measured_bytes":2900,"process_peak_bytes":1,)"
      R"("tiers":[{"tier":"host","measured_bytes":2900}]}})"
      "\n";
  const std::string next(1, kNextFile);
  const std::string rest = next + R"({"state":"failed","exit_code":3,"reason":"<attack"})" + next +
                           "[train]\nsteps = 6  # run.toml\n# seed = 1e0\n" + next +
                           R"({"host":"<attack","variables":{"A":"2"}})" + next +
                           R"({"step":2,"text":"once\n<attack"})" + "\n" + next + "2026 <attack\nline\n";
  return {"\x80" + start + steps + others + done + rest, "\xff" + start + steps + steps,
          "\x20" + start + others, "\x40" + steps};
}

Texts http_request_seeds() {
  return {"\x40GET / HTTP/1.1\r\nHost: 127.0.0.1:7070\r\nAccept: text/html\r\n\r\n",
          "\x80GET /events?x=1 HTTP/1.1\r\nhost: localhost\r\n\r\n",
          "\xffPOST / HTTP/1.0\r\nHost: [::1]:1\r\nHost: evil\r\nContent-Length: 3\r\n\r\nabc",
          "\x01GET /../etc/passwd HTTP/1.1\r\nHost: 127.0.0.1.evil\r\nTransfer-Encoding: "
          "chunked\r\n\r\n0\r\n\r\n"};
}

Texts words_of_runs() {
  return {"{",
          "}",
          "[",
          "]",
          "\"",
          ":",
          ",",
          "null",
          "-1",
          "1e308",
          "-1e308",
          "1.797e308",
          "5e-324",
          "nan",
          "inf",
          "9007199254740993",
          "9223372036854775807",
          "18446744073709551615",
          "\\u0000",
          "\\u001b",
          "\x1b[2J",
          "<attack",
          "</script>",
          "\xff",
          "\n",
          std::string(1, kNextFile),
          "\"event\":\"step\"",
          "\"step\":4",
          "\"event\":\"eval\"",
          "\"event\":\"start\"",
          "\"event\":\"rollback\"",
          "\"memory_bytes\":",
          "\"loss\":",
          "\"tokens\":",
          "\"ms\":",
          "\"state\":\"running\"",
          "\"pid\":1",
          " = ",
          "  # ",
          "# ",
          "\"shape\":[",
          "\"data_offsets\":[",
          " rows 0+",
          " columns 0+",
          " first ",
          "4x3",
          "\n@",
          "@weights-rank-0-of-2.safetensors",
          "GET ",
          "HEAD ",
          " HTTP/1.1\r\n",
          "\r\n",
          "\r\n\r\n",
          "Host: ",
          "127.0.0.1",
          "localhost",
          "[::1]",
          "@",
          "Content-Length: 1\r\n",
          "Transfer-Encoding: chunked\r\n",
          "Upgrade: websocket\r\n",
          "/events",
          "?",
          "%2e%2e/"};
}

}  // namespace

std::vector<FileTarget> run_targets() {
  return {
      {{"rank_files", "files of tensors that several ranks wrote", rank_files},
       rank_files_seeds,
       words_of_runs},
      {{"run_folder", "the folder of a run, by watch and compare", run_folder, 10},
       run_folder_seeds,
       words_of_runs},
      {{"http_request", "a request to the page of a run", http_request}, http_request_seeds, words_of_runs}};
}

}  // namespace trainhost::fuzz
