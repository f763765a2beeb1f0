// Written data are read back: the writer, tensor files and model directories (rule 23). Failing system calls:
// faults_test.cpp.
#include <cmath>
#include <limits>
#include <random>

#include "core/checkpoint/dtypes.hpp"
#include "core/checkpoint/safetensors.hpp"
#include "core/checkpoint/store.hpp"
#include "core/checkpoint/tensor_files.hpp"
#include "core/checkpoint/xxh3.hpp"
#include "tests/core/checkpoint/fixtures.hpp"

using namespace trainhost;
using namespace trainhost::checkpoint;
using namespace trainhost::test;

namespace {

TensorEntry declared(const std::string& name, const std::string& dtype, std::vector<std::uint64_t> shape) {
  TensorEntry e;
  e.name = name;
  e.dtype = dtype;
  e.shape = std::move(shape);
  return e;
}

std::vector<std::byte> noise(std::size_t n, std::mt19937& random) {
  std::vector<std::byte> v(n);
  for (auto& b : v) b = static_cast<std::byte>(random());
  return v;
}

std::size_t entries_in(const fs::path& dir) {
  return static_cast<std::size_t>(std::distance(fs::directory_iterator(dir), fs::directory_iterator()));
}

/// Every tensor filled with its own number, in pieces of `piece` elements.
TensorSource numbered(const std::vector<TensorInfo>& tensors, std::size_t piece) {
  return [tensors, piece](const TensorSink& sink) {
    for (std::size_t i = 0; i < tensors.size(); ++i)
      for (std::uint64_t first = 0; first < tensors[i].elements(); first += piece)
        sink(tensors[i].name, first,
             std::vector<float>(std::min<std::uint64_t>(piece, tensors[i].elements() - first),
                                static_cast<float>(i)));
  };
}

struct OutputDir {
  TempDir dir;
  fs::path file = dir / "model.safetensors";
};

}  // namespace

BOOST_FIXTURE_TEST_SUITE(checkpoint_writer, OutputDir)

BOOST_AUTO_TEST_CASE(random_files_of_all_types_and_odd_sizes_round_trip_exactly) {
  std::mt19937 random(7);
  const std::pair<const char*, std::size_t> types[] = {{"F32", 4}, {"BF16", 2}, {"F16", 2}, {"F64", 8},
                                                       {"U8", 1},  {"I64", 8},  {"BOOL", 1}};
  const std::uint64_t dims[] = {0, 1, 2, 7, 33, 97, 1031};
  for (int round = 0; round < 60; ++round) {
    std::vector<TensorEntry> tensors;
    std::vector<std::vector<std::byte>> data;
    for (unsigned i = random() % 12; i-- > 0;) {
      auto [type, size] = types[random() % std::size(types)];
      std::vector<std::uint64_t> shape;
      for (unsigned rank = random() % 3; rank-- > 0;) shape.push_back(dims[random() % std::size(dims)]);
      tensors.push_back(declared("t\"" + std::to_string(i) + "\\é😀/", type, shape));
      data.push_back(noise(tensors.back().elements() * size, random));
    }
    SafetensorsWriter w(file, tensors, {{"format", "pt"}, {"quote", "\"\\\n"}});
    for (const auto& d : data)
      for (std::size_t at = 0, n; at < d.size(); at += n) {
        n = std::min<std::size_t>(d.size() - at, 1 + random() % (round % 2 ? 100 : 400'000));
        w.write(std::span(d).subspan(at, n));
      }
    const std::string hash = w.finish();
    BOOST_TEST(hash == xxh3_hex(read_file(file)));
    SafetensorsFile f(file);
    BOOST_TEST(f.metadata().at("quote") == "\"\\\n");
    BOOST_REQUIRE(f.tensors().size() == tensors.size());
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      auto t = std::find_if(f.tensors().begin(), f.tensors().end(),
                            [&](const auto& e) { return e.name == tensors[i].name; });
      BOOST_REQUIRE((t != f.tensors().end() && t->dtype == tensors[i].dtype && t->shape == tensors[i].shape));
      std::vector<std::byte> out(t->end - t->begin);
      f.read(*t, 0, out);
      BOOST_TEST((out == data[i]));
    }
  }
}

BOOST_AUTO_TEST_CASE(the_hash_is_xxh3_128_in_canonical_form) {
  BOOST_TEST(xxh3_hex("") == "99aa06d3014798d86001c324468d497f");  // the published value for no input, seed 0
  Xxh3 h;
  std::string s(100'000, 'x');
  for (std::size_t at = 0, n = 1; at < s.size(); at += n, n = n * 3 % 1000 + 1)
    h.update(std::as_bytes(std::span(s).subspan(at, std::min(n, s.size() - at))));
  BOOST_TEST(h.hex() == xxh3_hex(s));
}

BOOST_AUTO_TEST_CASE(data_begin_at_a_multiple_of_64) {
  for (std::size_t n = 1; n < 70; ++n) {
    SafetensorsWriter w(file, {declared(std::string(n, 'n'), "U8", {1})}, {});
    w.write(std::vector<std::byte>(1));
    w.finish();
    BOOST_TEST(SafetensorsFile(file).tensors()[0].begin % 64 == 0u);
  }
}

BOOST_AUTO_TEST_CASE(an_unfinished_file_leaves_the_old_file_and_no_temporary_file) {
  put(file, "old");
  {
    SafetensorsWriter w(file, {declared("a", "F32", {4})}, {});
    w.write(std::vector<std::byte>(15));
    BOOST_TEST(says(message_of([&] { w.finish(); }, Exit::kFailed),
                    "1 bytes of the declared tensors were not written"));
    BOOST_TEST(says(message_of([&] { w.write(std::vector<std::byte>(2)); }, Exit::kFailed),
                    "more than the declared"));
    BOOST_TEST(entries_in(dir.path()) == 2u);
  }
  BOOST_TEST(read_file(file) == "old");
  BOOST_TEST(entries_in(dir.path()) == 1u);
}

BOOST_AUTO_TEST_CASE(a_file_that_the_reader_would_reject_is_not_written) {
  for (const TensorEntry& bad :
       {declared("a\n", "F32", {1}), declared("a", "F31", {1}), declared(std::string(5000, 'a'), "F32", {1}),
        declared("a", "F32", {1, 1, 1, 1, 1, 1, 1, 1, 1}), declared("a", "F4", {1})})
    BOOST_TEST(says(message_of([&] { SafetensorsWriter w(file, {bad}, {}); }), "rule"));
  BOOST_TEST(says(message_of([&] {
                    SafetensorsWriter w(file, {declared("a", "U8", {0}), declared("a", "U8", {0})}, {});
                  }),
                  "rule 6"));
  BOOST_TEST(says(message_of([&] {
                    SafetensorsWriter w(file, {declared("a", "F32", {1ull << 40, 1ull << 40})}, {});
                  }),
                  "too large"));
  BOOST_TEST(
      says(message_of([&] { SafetensorsWriter w(file, {declared("\xff", "F32", {1})}, {}); }, Exit::kFailed),
           "UTF-8"));
  BOOST_TEST(entries_in(dir.path()) == 0u);
}

BOOST_AUTO_TEST_CASE(a_header_above_the_limit_of_the_reader_is_not_written) {
  std::vector<TensorEntry> tensors;
  for (int i = 0; i < 24'500; ++i)  // with names of 4,096 bytes: above 10^8 bytes
    tensors.push_back(declared(std::to_string(100'000 + i) + std::string(4090, 'n'), "U8", {0}));
  BOOST_TEST(says(message_of([&] { SafetensorsWriter w(file, tensors, {}); }, Exit::kFailed),
                  "the header exceeds the limit of the format"));
  BOOST_TEST(entries_in(dir.path()) == 0u);
}

BOOST_AUTO_TEST_CASE(a_small_file_is_replaced_atomically) {
  write_file_atomically(dir / "x", "first");
  write_file_atomically(dir / "x", "");
  BOOST_TEST(read_file(dir / "x") == "");
  write_file_atomically(dir / "x", std::string(1'000'000, 'y'));
  BOOST_TEST(read_file(dir / "x").size() == 1'000'000u);
  BOOST_TEST(entries_in(dir.path()) == 1u);
  BOOST_TEST(
      says(message_of([&] { write_file_atomically(dir / "no/x", "y"); }, Exit::kFailed), "No such file"));
}

BOOST_AUTO_TEST_CASE(tensors_must_arrive_in_the_declared_order) {
  const std::vector<TensorInfo> two{info("a", 4), info("b", 2, 3)};
  const std::vector<float> v(6, 1.0f);
  const std::span<const float> all(v);
  for (const TensorSource& bad : std::vector<TensorSource>{
           [&](const TensorSink& s) { s("b", 0, all); },
           [&](const TensorSink& s) { s("a", 1, all.first(3)); },
           [&](const TensorSink& s) { s("a", 0, all); },
           [&](const TensorSink& s) { s("a", 0, all.first(2)), s("a", 0, all.first(2)); },
           [&](const TensorSink& s) { s("a", 0, all.first(4)), s("b", 0, all), s("c", 0, all); },
           [&](const TensorSink& s) { s("a", 0, all.first(4)); },
           [&](const TensorSink& s) { s("b", 0, all), s("a", 0, all.first(4)); },
           [&](const TensorSink& s) { s("a", 0, all.first(4)), s("a", 0, all); },
           [&](const TensorSink& s) { s("a", 0, all.first(2)), s("a", 1, all.first(2)), s("b", 0, all); },
           [&](const TensorSink& s) { s("a", 0, all), s("b", 0, all.first(4)); }, [](const TensorSink&) {}})
    BOOST_TEST(message_of([&] { write_tensors(file, two, bad); }, Exit::kFailed) != "");
  BOOST_TEST(entries_in(dir.path()) == 0u);
  for (std::size_t piece : {1, 3, 100}) {
    write_tensors(file, {info("a", 4), info("none", 0), info("b", 2, 3), info("end", 0)},
                  numbered({info("a", 4), info("none", 0), info("b", 2, 3)}, piece));
    BOOST_TEST(SafetensorsFile(file).tensors().size() == 4u);
  }
}

BOOST_AUTO_TEST_CASE(values_that_could_not_be_loaded_are_not_written) {
  for (float bad :
       {std::nanf(""), std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity()})
    for (std::size_t at : {0, 3, 5}) {
      std::vector<float> v(6, 1.0f);
      v[at] = bad;
      const TensorSource source = [&](const TensorSink& s) {
        s("a", 0, std::vector<float>(4, 1.0f));
        s("b", 0, std::span<const float>(v).first(2)), s("b", 2, std::span<const float>(v).subspan(2));
      };
      const std::string m = message_of(
          [&] {
            write_tensors(file, {info("a", 4), info("b", 2, 3)}, source);
          },
          Exit::kFailed);
      BOOST_TEST(says(m, "tensor 'b' has a value that is NaN or infinite at element " + std::to_string(at)),
                 m);
      BOOST_TEST(entries_in(dir.path()) == 0u);
    }
}

BOOST_AUTO_TEST_CASE(a_model_directory_is_replaced_completely_and_keeps_other_files) {
  const std::vector<TensorInfo> tensors{info("model.a", 4), info("model.b", 2, 3)};
  const fs::path model = dir / "out/model";
  write_model_dir(model, "{\"v\":1}", tensors, numbered(tensors, 2));
  BOOST_TEST(entries_in(model) == 2u);
  put(model / "tokenizer.model", "mine");
  fs::create_directory(model / "notes");
  write_model_dir(model / "", "{\"v\":2}", tensors, numbered(tensors, 9), {{"generation_config.json", "{}"}});
  BOOST_TEST(read_file(model / "config.json") == "{\"v\":2}");
  BOOST_TEST(read_file(model / "tokenizer.model") == "mine");
  BOOST_TEST(fs::is_directory(model / "notes"));
  BOOST_TEST(read_file(model / "generation_config.json") == "{}");
  BOOST_TEST(entries_in(model) == 5u);
  BOOST_TEST(entries_in(dir / "out") == 1u);
  WeightSource w(model);
  w.require(tensors, false);
  BOOST_TEST(w.files()[0].metadata().at("format") == "pt");

  const fs::path leftover = dir / "out/model.tmp.0123456789abcdef",
                 own = dir / "out/model.tmp.fedcba9876543210";
  for (const fs::path& p : {leftover, own}) {  // leftovers of killed runs; one contains a file of the user
    fs::create_directory(p);
    put(p / "config.json", "half");
    put(p / "model.safetensors.tmp.0123456789abcdef", "half");
  }
  put(own / "tokenizer.model", "mine");
  write_model_dir(model, "{\"v\":2}", tensors, numbered(tensors, 9));
  BOOST_TEST(!fs::exists(leftover));
  BOOST_TEST(read_file(own / "tokenizer.model") == "mine");
  BOOST_TEST(entries_in(own) == 1u);
  fs::remove_all(own);

  BOOST_TEST(message_of([&] { write_model_dir(model, "{\"v\":3}", tensors, [](const TensorSink&) {}); },
                        Exit::kFailed) != "");
  BOOST_TEST(read_file(model / "config.json") == "{\"v\":2}");
  BOOST_TEST(entries_in(dir / "out") == 1u);
}

// Tensors of 16, 24 and 4 bytes in BF16 with at most 30 bytes per file: the second one starts a file, and so
// does the third.
BOOST_AUTO_TEST_CASE(a_large_model_is_written_in_several_files_with_an_index) {
  const std::vector<TensorInfo> tensors{info("model.a", 8), info("model.b", 4, 3), info("model.c", 2)};
  const fs::path model = dir / "out/model";
  write_model_dir(model, "{\"v\":1}", tensors, numbered(tensors, 2));
  ModelFiles files;
  files.dtype = "BF16", files.shard_bytes = 30;
  write_model_dir(model, "{\"v\":2}", tensors, numbered(tensors, 3), {}, files);
  BOOST_TEST(entries_in(model) == 4u);  // the single file of the earlier model is gone
  const auto index = nlohmann::json::parse(read_file(model / "model.safetensors.index.json"));
  BOOST_TEST(index["metadata"]["total_size"] == 44);
  BOOST_TEST(index["weight_map"]["model.a"] == "model-00001-of-00002.safetensors");
  BOOST_TEST(index["weight_map"]["model.b"] == "model-00002-of-00002.safetensors");
  BOOST_TEST(index["weight_map"]["model.c"] == "model-00002-of-00002.safetensors");
  const auto values = [&](const fs::path& folder) {
    std::vector<float> out, scratch(3);
    WeightSource w(folder);
    w.require(tensors, false);
    for (const TensorInfo& t : tensors)
      w.stream(t, scratch,
               [&](std::uint64_t, std::span<const float> v) { out.insert(out.end(), v.begin(), v.end()); });
    return out;
  };
  const std::vector<float> in_shards = values(model);
  write_model_dir(model, "{\"v\":3}", tensors, numbered(tensors, 3));
  BOOST_TEST(entries_in(model) == 2u);  // and the several files of that one
  BOOST_TEST(in_shards == values(model),
             boost::test_tools::per_element());  // small whole numbers are exact in bf16
}

// A tensor is never split, so one that is larger than a file may be has a file of its own; one without
// elements takes no part in any limit.
BOOST_AUTO_TEST_CASE(a_tensor_larger_than_a_file_may_be_has_a_file_of_its_own) {
  const std::vector<TensorInfo> tensors{info("model.a", 0), info("model.b", 9), info("model.c", 0),
                                        info("model.d", 3), info("model.e", 0)};
  for (const char* dtype : {"F32", "F16"}) {
    ModelFiles files;
    files.dtype = dtype, files.shard_bytes = 13;
    write_model_dir(dir / "m", "{}", tensors, numbered(tensors, 2), {}, files);
    WeightSource w(dir / "m");
    BOOST_TEST(w.files().size() == 2u);
    w.require(tensors, false);
    std::vector<float> values, scratch(9);
    for (const TensorInfo& t : tensors)
      w.stream(t, scratch, [&](std::uint64_t, std::span<const float> v) {
        values.insert(values.end(), v.begin(), v.end());
      });
    BOOST_TEST(values.size() == 12u);
  }
}

BOOST_AUTO_TEST_CASE(pieces_of_any_size_are_narrowed) {
  const std::vector<TensorInfo> tensors{info("model.a", 40000)};
  ModelFiles files;
  files.dtype = "BF16";
  const auto in_pieces_of = [](std::size_t size) {
    return [size](const TensorSink& sink) {
      std::vector<float> all(40000);
      for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<float>(i % 251);
      sink("model.a", 0, {});
      for (std::size_t at = 0; at < all.size(); at += size)
        sink("model.a", at, std::span(all).subspan(at, std::min(size, all.size() - at)));
    };
  };
  std::string first;
  for (const std::size_t size : {1u, 16384u, 16385u, 40000u}) {
    write_model_dir(dir / "m", "{}", tensors, in_pieces_of(size), {}, files);
    const std::string content = read_file(dir / "m/model.safetensors");
    if (first.empty()) first = content;
    BOOST_TEST((content == first), "pieces of " << size);
  }
}

BOOST_AUTO_TEST_CASE(a_source_that_fails_in_the_second_file_leaves_the_earlier_model) {
  const std::vector<TensorInfo> tensors{info("model.a", 8), info("model.b", 8)};
  ModelFiles files;
  files.dtype = "BF16", files.shard_bytes = 16;
  write_model_dir(dir / "out/m", "{}", tensors, numbered(tensors, 2), {}, files);
  const auto failing = [](const char* second, std::uint64_t first, std::size_t count, float value) {
    return [=](const TensorSink& sink) {
      sink("model.a", 0, std::vector<float>(8, 1));
      sink(second, first, std::vector<float>(count, value));
    };
  };
  const auto message = [&](const TensorSource& source) {
    return message_of([&] { write_model_dir(dir / "out/m", "{}", tensors, source, {}, files); },
                      Exit::kFailed);
  };
  BOOST_TEST(message(failing("model.x", 0, 8, 1)).find("got 'model.x' from element 0") != std::string::npos);
  BOOST_TEST(message(failing("model.b", 1, 7, 1)).find("got 'model.b' from element 1") != std::string::npos);
  BOOST_TEST(message(failing("model.b", 0, 9, 1)).find("got 'model.b' from element 0") != std::string::npos);
  BOOST_TEST(message(failing("model.b", 0, 7, 1)) != "");  // one element is missing
  BOOST_TEST(message(failing("model.b", 0, 8, std::nanf(""))).find("NaN or infinite at element 0") !=
             std::string::npos);
  // Rounded to nearest, it would be infinite in bf16.
  BOOST_TEST(message(failing("model.b", 0, 8, 3.4e38f)).find("too large for BF16") != std::string::npos);
  BOOST_TEST(message([&](const TensorSink& sink) {
               numbered(tensors, 2)(sink);
               sink("model.c", 0, std::vector<float>(1, 1));
             }).find("expected 'nothing'") != std::string::npos);
  BOOST_TEST(entries_in(dir / "out/m") == 4u);
  BOOST_TEST(entries_in(dir / "out") == 1u);
  WeightSource(dir / "out/m").require(tensors, false);
}

BOOST_AUTO_TEST_CASE(a_value_too_large_for_the_type_is_named_and_not_written) {
  const std::vector<TensorInfo> tensors{info("model.a", 4)};
  ModelFiles files;
  files.dtype = "F16";
  const auto source = [](float last) {
    return [last](const TensorSink& sink) { sink("model.a", 0, std::vector<float>{1, 2, 3, last}); };
  };
  write_model_dir(dir / "half", "{}", tensors, source(65519), {}, files);
  const std::string message = message_of(
      [&] { write_model_dir(dir / "half", "{}", tensors, source(65520), {}, files); }, Exit::kFailed);
  BOOST_TEST(
      message.find("the value 65520 of tensor 'model.a' at element 3 is too large for F16") != message.npos,
      message);
  BOOST_TEST(entries_in(dir / "half") == 2u);
}

/// The nearest value of a 16-bit type, by comparing with every one: the even one of two that are equally
/// near.
std::uint16_t nearest_of_all(float value, const std::vector<std::pair<double, std::uint16_t>>& all) {
  const auto above = std::lower_bound(all.begin(), all.end(), std::pair<double, std::uint16_t>{value, 0});
  if (above == all.begin()) return above->second;
  const auto below = above - 1;
  const double up = above->first - value, down = value - below->first;
  return up < down || (up == down && above->second % 2 == 0) ? above->second : below->second;
}

BOOST_AUTO_TEST_CASE(values_are_rounded_to_the_nearest_of_16_bits) {
  for (const bool bf16 : {false, true}) {
    const auto narrow = bf16 ? bf16_from_f32 : f16_from_f32;
    const auto widen = bf16 ? f32_from_bf16 : f32_from_f16;
    std::vector<std::pair<double, std::uint16_t>> positive;
    for (std::uint32_t bits = 0; bits < 0x8000; ++bits)
      if (const float f = widen(static_cast<std::uint16_t>(bits)); std::isfinite(f))
        positive.emplace_back(f, static_cast<std::uint16_t>(bits));
    std::mt19937 random(5);
    const auto check = [&](float value) {
      const std::uint16_t expected = nearest_of_all(value, positive);
      BOOST_REQUIRE_MESSAGE(narrow(value) == expected, value << ": " << narrow(value) << " != " << expected);
      BOOST_REQUIRE(narrow(-value) == (expected | 0x8000));
    };
    for (std::size_t i = 0; i + 1 < positive.size(); ++i) {
      const float low = static_cast<float>(positive[i].first),
                  high = static_cast<float>(positive[i + 1].first);
      BOOST_REQUIRE(narrow(low) == positive[i].second);
      const float middle = low / 2 + high / 2;
      for (const float value : {middle, std::nextafter(middle, low), std::nextafter(middle, high),
                                low + (high - low) * (static_cast<float>(random() % 1000) / 1000)})
        check(value);
    }
    BOOST_TEST(narrow(std::numeric_limits<float>::infinity()) == (bf16 ? 0x7F80 : 0x7C00));
    BOOST_TEST(std::isnan(widen(narrow(std::numeric_limits<float>::quiet_NaN()))));
  }
}

BOOST_AUTO_TEST_SUITE_END()
