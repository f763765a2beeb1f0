// Files that several ranks write at the same time: read together they are the tensors; a model that ranks
// write together has the bytes of one that a process writes; the memory of a rank does not grow with its
// tensors.
#include <boost/test/data/monomorphic.hpp>
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>

#include <cmath>
#include <fstream>
#include <numeric>

#include "core/checkpoint/safetensors.hpp"
#include "core/checkpoint/tensor_files.hpp"
#include "core/model/shards.hpp"
#include "core/process/host_info.hpp"
#include "tests/support/files.hpp"

using namespace trainhost;
using namespace trainhost::checkpoint;
using namespace trainhost::test;
namespace fs = std::filesystem;

namespace {

TensorInfo tensor(const char* name, TensorRole role, std::uint64_t rows, std::uint64_t cols = 1) {
  TensorInfo t;
  t.name = name, t.role = role, t.rank = cols > 1 ? 2 : 1, t.dim = {rows, cols};
  return t;
}
/// Divided by rows, by columns, and not at all.
const std::vector<TensorInfo> kTensors = {
    tensor("model.q", TensorRole::kQ, 24, 10), tensor("model.o", TensorRole::kO, 7, 36),
    tensor("model.norm", TensorRole::kFinalNorm, 50), tensor("model.one", TensorRole::kNorm1, 1)};

float value(std::size_t t, std::uint64_t element) { return static_cast<float>(t * 1000 + element) * 0.25f; }

struct Layout {
  std::uint32_t data, tensor;
};
std::ostream& operator<<(std::ostream& o, const Layout& l) { return o << l.data << " x " << l.tensor; }

/// What rank `rank` has to write, in pieces of at most `most` elements.
PartSource part_of_rank(const Layout& l, std::uint32_t rank, std::uint64_t most) {
  return [=](const PartSink& sink) {
    Parallelism p;
    p.data = l.data, p.tensor = l.tensor;
    for (std::size_t t = 0; t < kTensors.size(); ++t) {
      const TensorPart part = part_of_tensor(kTensors[t], p, rank % l.tensor);
      const bool divided = part.elements() < kTensors[t].elements();
      const Shard own = divided ? shard_of(part.elements(), l.data, rank / l.tensor)
                                : shard_of(part.elements(), l.data * l.tensor, rank);
      for (std::uint64_t done = 0; done < own.count; done += most) {
        const std::uint64_t first = own.first + done, n = std::min(most, own.count - done);
        std::vector<float> values(n);
        part.for_runs(first, n, [&](std::uint64_t at, std::uint64_t whole, std::uint64_t run) {
          for (std::uint64_t i = 0; i < run; ++i) values[at - first + i] = value(t, whole + i);
        });
        sink(kTensors[t], part, first, values);
      }
    }
  };
}

TensorSource all_values() {
  return [](const TensorSink& sink) {
    for (std::size_t t = 0; t < kTensors.size(); ++t) {
      std::vector<float> values(kTensors[t].elements());
      for (std::size_t i = 0; i < values.size(); ++i) values[i] = value(t, i);
      sink(kTensors[t].name, 0, values);
    }
  };
}

void write_rank_files(const fs::path& dir, const Layout& l) {
  for (std::uint32_t r = 0; r < l.data * l.tensor; ++r)
    write_rank_file(dir / name_of_rank_file("weights.safetensors", r, l.data * l.tensor), kTensors,
                    part_of_rank(l, r, 13));
}

std::string problem_of(const fs::path& file) {
  try {
    WeightSource source(file);
    return "none";
  } catch (const Error& e) {
    return e.what();
  }
}
bool contains(const std::string& text, const std::string& part) { return text.find(part) != text.npos; }

BOOST_AUTO_TEST_SUITE(rank_files)

const std::vector<Layout> kLayouts = {{2, 1}, {1, 2}, {2, 2}, {3, 2}, {5, 1}};

BOOST_DATA_TEST_CASE(files_of_all_ranks_are_the_tensors, boost::unit_test::data::make(kLayouts), layout) {
  const TemporaryDirectory tmp;
  write_rank_files(tmp.path(), layout);
  for (const fs::path& opened : {tmp / "weights.safetensors", fs::path(tmp.path())}) {
    WeightSource source(opened);
    source.require(kTensors, false);
    std::vector<float> scratch(17);
    for (std::size_t t = 0; t < kTensors.size(); ++t) {
      std::uint64_t next = 0;
      source.stream(kTensors[t], scratch, [&](std::uint64_t first, std::span<const float> values) {
        BOOST_REQUIRE(first == next);
        for (std::size_t i = 0; i < values.size(); ++i) BOOST_REQUIRE(values[i] == value(t, first + i));
        next += values.size();
      });
      BOOST_TEST(next == kTensors[t].elements());
    }
  }
}

BOOST_DATA_TEST_CASE(a_model_of_several_ranks_has_the_bytes_of_one_process,
                     boost::unit_test::data::make(kLayouts) * boost::unit_test::data::make({"F32", "BF16"}),
                     layout, dtype) {
  const TemporaryDirectory tmp;
  ModelFiles files;
  files.dtype = dtype, files.shard_bytes = 900;  // several files
  write_model_dir(tmp / "one", "{}", kTensors, all_values(), {{"note", "x"}}, files);
  const fs::path staged = stage_model_dir(tmp / "model", kTensors, {{"note", "x"}}, files);
  for (std::uint32_t r = 0; r < layout.data * layout.tensor; ++r)
    write_model_part(staged, kTensors, part_of_rank(layout, r, 11), files);
  publish_model_dir(staged, tmp / "model", "{}", kTensors, {{"note", "x"}}, files);
  std::size_t compared = 0;
  for (const auto& e : fs::directory_iterator(tmp / "one")) {
    BOOST_TEST((read_file(e.path()) == read_file(tmp / "model" / e.path().filename())), e.path());
    ++compared;
  }
  BOOST_TEST(compared >= 4u);
  BOOST_TEST(std::distance(fs::directory_iterator(tmp / "model"), {}) == static_cast<long>(compared));
}

BOOST_AUTO_TEST_CASE(files_that_do_not_belong_together_are_refused) {
  const TemporaryDirectory tmp;
  const fs::path all = tmp / "weights.safetensors";
  const auto of = [&](const char* name) { return tmp / name; };
  write_rank_files(tmp.path(), {2, 2});
  fs::rename(of("weights-rank-2-of-4.safetensors"), of("x"));
  BOOST_TEST(contains(problem_of(all), "weights-rank-2-of-4.safetensors is missing"), problem_of(all));
  // Rank 3 in place of rank 2.
  fs::copy_file(of("weights-rank-3-of-4.safetensors"), of("weights-rank-2-of-4.safetensors"));
  BOOST_TEST(contains(problem_of(all), "do not have every element of 'model."), problem_of(all));
  fs::copy_file(of("x"), of("weights-rank-2-of-4.safetensors"), fs::copy_options::overwrite_existing);
  BOOST_TEST(problem_of(all) == "none");
  fs::copy_file(of("x"), of("weights-rank-2-of-5.safetensors"));
  const std::string two = problem_of(all);
  BOOST_TEST((contains(two, "of 4 ranks and of 5 ranks") || contains(two, "of 5 ranks and of 4 ranks")), two);
  fs::remove(of("weights-rank-2-of-5.safetensors"));
  // A file without the places of its vectors.
  write_tensors(of("weights-rank-2-of-4.safetensors"), {tensor("model.q", TensorRole::kQ, 24)},
                [](const TensorSink& sink) { sink("model.q", 0, std::vector<float>(24)); });
  BOOST_TEST(contains(problem_of(all), "do not say where 'model.q' is in its tensor"), problem_of(all));
}

BOOST_AUTO_TEST_CASE(a_text_that_is_no_part_is_refused) {
  BOOST_TEST(parse_stored_part("16x32 rows 0+16 columns 8+8 first 64").has_value());
  BOOST_TEST(parse_stored_part("5 rows 0+5 columns 0+1 first 4").has_value());
  // A vector that is divided like the rows of a matrix.
  const std::string flat = "16x4 flat rows 0+16 columns 2+2 first 0";
  const std::optional<StoredPart> part = parse_stored_part(flat);
  BOOST_REQUIRE(part.has_value());
  BOOST_TEST(part->rank == 1u);
  BOOST_TEST(text_of(*part) == flat);
  for (const char* text :
       {"", "16", "16x32 rows 0+17 columns 8+8 first 0", "16x32 rows 1+16 columns 8+8 first 0",
        "16x32 rows 0+16 columns 8+8 first 128", "16x32 rows 0+16 columns 25+8 first 0",
        "16x32 rows 0+0 columns 8+8 first 0", "16x32 rows 0+16 columns 8+8 first 0 ",
        "18446744073709551615x32 rows 0+16 columns 8+8 first 0", "16x32 rows -1+16 columns 8+8 first 0",
        "16x32 rows 18446744073709551615+16 columns 8+8 first 0",
        "99999999999999999999 rows 0+1 columns 0+1 first 0"})
    BOOST_TEST(!parse_stored_part(text).has_value(), text);
}

BOOST_AUTO_TEST_CASE(a_source_that_is_not_in_order_or_not_finite_is_refused) {
  const TemporaryDirectory tmp;
  const TensorPart whole{24, 10, 0, 24, 0, 10};
  const auto problem = [&](const PartSource& source) -> std::string {
    fs::remove(tmp / "f.safetensors");
    try {
      write_rank_file(tmp / "f.safetensors", kTensors, source);
      return "none";
    } catch (const Error& e) {
      return e.what();
    }
  };
  const std::vector<float> ten(10), nan = {0, NAN};
  BOOST_TEST(contains(problem([&](const PartSink& sink) {
                        sink(kTensors[0], whole, 0, ten), sink(kTensors[0], whole, 20, ten);
                      }),
                      "does not follow the piece before it"));
  BOOST_TEST(contains(problem([&](const PartSink& sink) { sink(kTensors[0], whole, 235, ten); }),
                      "does not follow"));
  BOOST_TEST(contains(problem([&](const PartSink& sink) { sink(kTensors[0], whole, 3, nan); }),
                      "'model.q' has a value that is NaN or infinite at element 4"));
}

// 64 MiB of a rank, in a process whose peak may rise by 4.
BOOST_AUTO_TEST_CASE(the_memory_of_a_rank_does_not_grow_with_its_tensors) {
  const TemporaryDirectory tmp;
  constexpr std::uint64_t kElements = 32u << 20, kPiece = 1 << 16;
  const std::vector<TensorInfo> one = {tensor("model.q", TensorRole::kQ, kElements / 1024, 1024)};
  const std::vector<float> piece(kPiece, 1.0f);
  const PartSource half = [&](const PartSink& sink) {
    const TensorPart part{kElements / 1024, 1024, 0, kElements / 1024, 0, 512};
    for (std::uint64_t first = 0; first < kElements / 2; first += kPiece) sink(one[0], part, first, piece);
  };
  ModelFiles files;
  const fs::path staged = stage_model_dir(tmp / "model", one, {}, files);
  std::ofstream("/proc/self/clear_refs") << "5";  // sets the peak to the present size
  const std::uint64_t before = process_peak_bytes();
  write_rank_file(tmp / name_of_rank_file("weights.safetensors", 0, 2), one, half);
  write_model_part(staged, one, half, files);
  const std::uint64_t grown = process_peak_bytes() - before;
  BOOST_TEST_MESSAGE("peak memory grows by " << grown << " bytes");
  BOOST_TEST(grown < (4u << 20));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
