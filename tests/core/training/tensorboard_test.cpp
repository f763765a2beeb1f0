// core/training/tensorboard and event_file: records and checksums, and what a run writes, read by a small
// reader of this file. tests/interop/tensorboard_test.py reads the same with TensorBoard.
#include <boost/test/unit_test.hpp>

#include <bit>
#include <cerrno>
#include <cstring>
#include <map>
#include <set>
#include <vector>

#include "core/training/tensorboard.hpp"
#include "tests/support/files.hpp"
#include "tests/support/mpirun.hpp"
#include "tests/support/small_run.hpp"

using namespace trainhost;
namespace fs = std::filesystem;
using test::TemporaryDirectory;

namespace {

std::uint64_t little_endian(std::string_view bytes) {
  std::uint64_t value = 0;
  for (std::size_t i = bytes.size(); i-- > 0;) value = value << 8 | static_cast<unsigned char>(bytes[i]);
  return value;
}

/// The fields of a protobuf message: number -> values, as bytes.
std::multimap<std::uint64_t, std::string> fields(std::string_view m) {
  std::multimap<std::uint64_t, std::string> all;
  const auto varint = [&] {
    std::uint64_t value = 0;
    for (int shift = 0; !m.empty(); shift += 7) {
      const auto byte = static_cast<unsigned char>(m.front());
      m.remove_prefix(1);
      value |= std::uint64_t{byte & 0x7fu} << shift;
      if (byte < 0x80) break;
    }
    return value;
  };
  while (!m.empty()) {
    const std::uint64_t key = varint();
    std::string value;
    if ((key & 7) == 0) {
      value = std::to_string(varint());
    } else {
      const std::size_t size = (key & 7) == 1 ? 8 : (key & 7) == 5 ? 4 : varint();
      BOOST_REQUIRE(size <= m.size());
      value = m.substr(0, size);
      m.remove_prefix(size);
    }
    all.emplace(key >> 3, value);
  }
  return all;
}
std::string field(std::string_view m, std::uint64_t number) {
  const auto all = fields(m);
  const auto at = all.find(number);
  return at == all.end() ? "" : at->second;
}

/// The messages of a file; checks lengths and checksums.
std::vector<std::string> records(const fs::path& file) {
  std::string bytes = test::read_file(file);
  std::vector<std::string> all;
  for (std::string_view rest = bytes; !rest.empty();) {
    BOOST_REQUIRE(rest.size() >= 16);
    const std::uint64_t size = little_endian(rest.substr(0, 8));
    BOOST_REQUIRE(rest.size() >= size + 16);
    all.emplace_back(rest.substr(12, size));
    BOOST_TEST((training::tf_record(all.back()) == rest.substr(0, size + 16)));
    rest.remove_prefix(size + 16);
  }
  return all;
}

std::vector<fs::path> event_files(const fs::path& folder) {
  std::set<fs::path> sorted;
  for (const auto& f : fs::directory_iterator(folder)) sorted.insert(f.path());
  return {sorted.begin(), sorted.end()};
}

struct Board {
  std::map<std::string, std::map<std::uint64_t, float>> scalars;  // tag -> step -> value
  std::map<std::string, std::string> texts;
  std::set<std::string> tags;
};
/// As TensorBoard reads a folder: a restart removes the steps from its own on.
Board read_board(const fs::path& folder) {
  Board board;
  for (const fs::path& file : event_files(folder))
    for (const std::string& event : records(file)) {
      const std::string at = field(event, 2);
      const std::uint64_t step = at.empty() ? 0 : std::stoull(at);
      if (field(field(event, 7), 1) == "1")
        for (auto& [tag, values] : board.scalars) values.erase(values.lower_bound(step), values.end());
      const std::string summary = field(event, 5);
      for (const auto& [number, value] : fields(summary)) {
        const std::string tag = field(value, 1), scalar = field(value, 2), tensor = field(value, 8);
        board.tags.insert(tag);
        if (!scalar.empty())
          board.scalars[tag][step] = std::bit_cast<float>(static_cast<std::uint32_t>(little_endian(scalar)));
        if (!tensor.empty()) board.texts[tag] = field(tensor, 8);
      }
    }
  return board;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(tensorboard)

// RFC 3720, appendix B.4.
BOOST_AUTO_TEST_CASE(checksums_are_those_of_the_standard) {
  BOOST_TEST(training::crc32c("123456789") == 0xe3069283u);
  BOOST_TEST(training::crc32c(std::string(32, '\0')) == 0x8a9136aau);
  BOOST_TEST(training::crc32c(std::string(32, '\xff')) == 0x62a8ab43u);
}

BOOST_AUTO_TEST_CASE(messages_have_the_bytes_of_the_specification) {
  training::ProtobufMessage inner, m;
  inner.integer(1, 150);
  m.message(3, inner).text(2, "testing").f32(4, 1.0f);
  BOOST_TEST((m.bytes() == std::string("\x1a\x03\x08\x96\x01\x12\x07testing\x25\x00\x00\x80\x3f", 19)));
}

BOOST_AUTO_TEST_CASE(a_later_file_sorts_after_the_earlier_ones) {
  TemporaryDirectory tmp;
  const training::EventFile a(tmp / "tb"), b(tmp / "tb"), c(tmp / "tb");
  BOOST_TEST(a.path().filename().string() < b.path().filename().string());
  BOOST_TEST(b.path().filename().string() < c.path().filename().string());
}

BOOST_AUTO_TEST_CASE(a_folder_that_cannot_be_written_is_one_warning) {
  TemporaryDirectory tmp;
  tmp.write("tb", "a file in place of the folder");
  std::vector<std::string> warnings;
  training::TensorBoard board(tmp / "tb", 0, [&](const std::string& s) { warnings.push_back(s); });
  for (std::uint64_t step = 1; step < 5; ++step) board.validation(step, 1.0);
  BOOST_REQUIRE(warnings.size() == 1u);
  BOOST_TEST(test::has(warnings[0], "the run goes on"));
}

BOOST_AUTO_TEST_CASE(a_full_disk_is_one_warning) {
  TemporaryDirectory tmp;
  std::vector<std::string> warnings;
  training::TensorBoard board(tmp / "tb", 0, [&](const std::string& s) { warnings.push_back(s); });
  auto& write = checkpoint::sys().write;
  const auto real = write;
  write = [](int, const void*, std::size_t) -> ssize_t { return errno = ENOSPC, -1; };
  for (std::uint64_t step = 1; step < 5; ++step) board.validation(step, 1.0);
  write = real;
  board.validation(5, 1.0);
  BOOST_REQUIRE(warnings.size() == 1u);
  BOOST_TEST(test::has(warnings[0], std::strerror(ENOSPC)));
  BOOST_TEST(read_board(tmp / "tb").scalars.empty());
}

BOOST_AUTO_TEST_CASE(a_run_and_its_resumption_are_one_curve) {
  TemporaryDirectory tmp;
  const fs::path run = tmp / "run";
  const std::vector<std::string> more = {"train.eval_every=2", "output.checkpoint_every=3"};
  BOOST_REQUIRE(test::run_program(test::small_run(run, 3, more)).code == 0);
  BOOST_REQUIRE(test::run_program(test::small_run(run, 5, {more[0], more[1], "--resume"})).code == 0);
  BOOST_TEST(event_files(run / "tb").size() == 2u);
  const Board board = read_board(run / "tb");
  const std::vector<test::Step> steps = test::steps_of(run);
  BOOST_REQUIRE(steps.size() == 5u);
  const auto& loss = board.scalars.at("loss/train");
  const auto& norm = board.scalars.at("optimizer/grad_norm");
  BOOST_TEST(loss.size() == 5u);
  for (std::size_t i = 0; i < steps.size(); ++i) {
    BOOST_TEST(loss.at(i + 1) == static_cast<float>(steps[i].loss));
    BOOST_TEST(norm.at(i + 1) == static_cast<float>(steps[i].norm));
  }
  // Layers and the rest together are the gradient norm.
  for (const std::uint64_t step : {1u, 5u}) {
    double squares = 0;
    for (const char* tag : {"grad_norm/layer_0", "grad_norm/layer_1", "grad_norm/outside_layers"})
      squares += std::pow(board.scalars.at(tag).at(step), 2);
    BOOST_TEST(std::sqrt(squares) == steps[step - 1].norm, boost::test_tools::tolerance(1e-6));
  }
  BOOST_TEST(board.scalars.at("loss/validation").count(2) == 1u);
  BOOST_TEST(test::has(board.texts.at("run.toml/text_summary"), "hidden_size = 16"));
  BOOST_TEST(board.tags.count("_hparams_/session_end_info") == 1u);
}

/// Data-parallel ranks with whole gradients and with parts of them, and tensor-parallel ones with parts of
/// tensors.
BOOST_AUTO_TEST_CASE(several_processes_have_the_norms_of_one,
                     *boost::unit_test::precondition(test::has_mpirun)) {
  TemporaryDirectory tmp;
  const std::vector<std::string> model = {"model.num_key_value_heads=2", "model.vocab_size=260"};
  BOOST_REQUIRE(test::run_program(test::small_run(tmp / "1", 2, model)).code == 0);
  const Board one = read_board(tmp / "1/tb");
  const std::vector<std::vector<std::string>> divided = {
      {"parallel.data=2", "parallel.zero=0"}, {"parallel.data=2", "parallel.zero=3"}, {"parallel.tensor=2"}};
  for (const std::vector<std::string>& settings : divided) {
    std::vector<std::string> more = model;
    more.insert(more.end(), settings.begin(), settings.end());
    const fs::path run = tmp / settings.back();
    const test::Outcome r = test::run_program(test::small_run(run, 2, more), test::under_mpirun(2));
    BOOST_REQUIRE_MESSAGE(r.code == 0, r.err);
    const Board board = read_board(run / "tb");
    for (const char* tag : {"grad_norm/layer_0", "grad_norm/layer_1", "grad_norm/outside_layers"})
      for (const std::uint64_t step : {1u, 2u}) {
        BOOST_TEST_INFO(settings.back() << " " << tag << " step " << step);
        BOOST_TEST(board.scalars.at(tag).at(step) == one.scalars.at(tag).at(step),
                   boost::test_tools::tolerance(2e-4f));
      }
  }
}

BOOST_AUTO_TEST_CASE(a_run_without_files_for_tensorboard_has_the_same_weights) {
  TemporaryDirectory tmp;
  BOOST_REQUIRE(test::run_program(test::small_run(tmp / "with", 2)).code == 0);
  BOOST_REQUIRE(test::run_program(test::small_run(tmp / "without", 2, {"output.tensorboard=false"})).code ==
                0);
  BOOST_TEST(fs::exists(tmp / "with/tb"));
  BOOST_TEST(!fs::exists(tmp / "without/tb"));
  BOOST_TEST((test::read_file(tmp / "with/model/model.safetensors") ==
              test::read_file(tmp / "without/model/model.safetensors")));
}

BOOST_AUTO_TEST_SUITE_END()
