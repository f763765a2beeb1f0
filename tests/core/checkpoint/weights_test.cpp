// WeightSource: single files, sharded ones and directories (rule 18), what a model requires (rule 19),
// non-finite values (rule 20), pickles (rule 24), and every 16-bit float against a simple
// reference decoder.
#include <bit>
#include <cmath>
#include <limits>

#include "core/checkpoint/dtypes.hpp"
#include "core/checkpoint/safetensors.hpp"
#include "tests/core/checkpoint/fixtures.hpp"

using namespace trainhost;
using namespace trainhost::checkpoint;
using namespace trainhost::test;

namespace {

/// Sign, exponent and mantissa by the definition, in double.
double decode_float(unsigned bits, int exponent_bits, int mantissa_bits) {
  int bias = (1 << (exponent_bits - 1)) - 1, top = (1 << exponent_bits) - 1;
  int e = static_cast<int>(bits >> mantissa_bits) & top;
  double m = static_cast<double>(bits & ((1u << mantissa_bits) - 1)) / std::pow(2.0, mantissa_bits);
  double sign = bits >> (exponent_bits + mantissa_bits) & 1 ? -1.0 : 1.0;
  if (e == top)
    return m == 0 ? sign * std::numeric_limits<double>::infinity() : std::numeric_limits<double>::quiet_NaN();
  return e == 0 ? sign * m * std::pow(2.0, 1 - bias) : sign * (1 + m) * std::pow(2.0, e - bias);
}

template <class T>
std::string bytes_of_values(const std::vector<T>& v) {
  return {reinterpret_cast<const char*>(v.data()), v.size() * sizeof(T)};
}

/// One file of 1-D tensors of the same type.
template <class T>
std::string file_of(const std::string& dtype,
                    const std::vector<std::pair<std::string, std::vector<T>>>& tensors) {
  std::string header = "{", data;
  for (const auto& [name, v] : tensors) {
    std::string begin = std::to_string(data.size());
    data += bytes_of_values(v);
    header += (header.size() > 1 ? "," : "") + entry(name, "\"" + dtype + "\"",
                                                     "[" + std::to_string(v.size()) + "]",
                                                     "[" + begin + "," + std::to_string(data.size()) + "]");
  }
  return safetensors(header + "}") + data;
}

std::vector<float> load(WeightSource& w, const TensorInfo& t, std::size_t piece) {
  std::vector<float> scratch(piece), out;
  w.stream(t, scratch, [&](std::uint64_t first, std::span<const float> v) {
    BOOST_TEST(first == out.size());
    out.insert(out.end(), v.begin(), v.end());
  });
  return out;
}

bool same_bits(float a, float b) {
  return std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b);
}

struct Dir {
  TempDir dir;
  fs::path file = dir / "model.safetensors", index = dir / "model.safetensors.index.json";
  int files = 0;

  std::string error() {
    ++files;
    return message_of([&] { WeightSource w(dir.path()); });
  }
  std::string error_of_index(const std::string& text) {
    put(index, text);
    return error();
  }
};

}  // namespace

BOOST_FIXTURE_TEST_SUITE(checkpoint_weights, Dir)

BOOST_AUTO_TEST_CASE(every_16_bit_float_is_converted_exactly) {
  for (unsigned b = 0; b < 65536; ++b) {
    double f16 = decode_float(b, 5, 10), bf16 = decode_float(b, 8, 7);
    float a = f32_from_f16(static_cast<std::uint16_t>(b)), c = f32_from_bf16(static_cast<std::uint16_t>(b));
    bool right = (std::isnan(f16) ? std::isnan(a) : same_bits(a, static_cast<float>(f16))) &&
                 (std::isnan(bf16) ? std::isnan(c) : same_bits(c, static_cast<float>(bf16)));
    BOOST_TEST(right, "bits " << b << ": " << f16 << " became " << a << ", " << bf16 << " became " << c);
  }
}

BOOST_AUTO_TEST_CASE(a_tensor_streams_the_same_in_pieces_of_any_size) {
  std::vector<std::uint16_t> halves;
  std::vector<float> floats;
  std::vector<double> doubles;
  for (int i = 0; i < 1201; ++i) {
    halves.push_back(
        static_cast<std::uint16_t>(i * 21));  // below 0x7C00 as f16, below 0x7F80 as bf16: finite
    floats.push_back(static_cast<float>(i) * 0.37f - 9);
    doubles.push_back(i * 1e-3 + 1.0 / (i + 1));
  }
  TensorInfo t = info("w", 1201);
  for (std::size_t piece : {1, 7, 64, 511, 512, 513, 1201, 5000}) {
    put(file, file_of<std::uint16_t>("F16", {{"w", halves}}));
    WeightSource f16(file);
    auto a = load(f16, t, piece);
    put(file, file_of<std::uint16_t>("BF16", {{"w", halves}}));
    WeightSource bf16(file);
    auto b = load(bf16, t, piece);
    put(file, file_of<float>("F32", {{"w", floats}}));
    WeightSource f32(file);
    auto c = load(f32, t, piece);
    put(file, file_of<double>("F64", {{"w", doubles}}));
    WeightSource f64(file);
    auto d = load(f64, t, piece);
    BOOST_REQUIRE(a.size() == 1201 && b.size() == 1201 && c.size() == 1201 && d.size() == 1201);
    for (std::size_t i = 0; i < 1201; ++i)
      BOOST_REQUIRE((same_bits(a[i], static_cast<float>(decode_float(halves[i], 5, 10))) &&
                     same_bits(b[i], static_cast<float>(decode_float(halves[i], 8, 7))) &&
                     same_bits(c[i], floats[i]) && same_bits(d[i], static_cast<float>(doubles[i]))));
  }
}

BOOST_AUTO_TEST_CASE(rule_18_a_sharded_model_reads_like_a_single_file) {
  put(dir / "a-1.safetensors", file_of<float>("F32", {{"x", {1, 2}}, {"y", {3}}}));
  put(dir / "a-2.safetensors", file_of<float>("F32", {{"z", {4, 5, 6}}}));
  put(index,
      R"({"metadata":{"total_size":24.0,"deep":[{"a":null}]},"weight_map":{"x":"a-1.safetensors","y":"a-1.safetensors","z":"a-2.safetensors"}})");
  for (const fs::path& p : {dir.path(), index}) {
    WeightSource w(p);
    w.require({info("x", 2), info("y", 1), info("z", 3)}, false);
    BOOST_TEST(w.files().size() == 2u);
    BOOST_TEST(load(w, info("z", 3), 2) == (std::vector<float>{4, 5, 6}), boost::test_tools::per_element());
  }
}

BOOST_AUTO_TEST_CASE(rule_18_an_index_never_refers_to_files_outside_its_directory) {
  put(dir / "ok.safetensors", file_of<float>("F32", {{"x", {1}}}));
  TempDir outside;
  put(outside / "o.safetensors", file_of<float>("F32", {{"x", {1}}}));
  fs::create_symlink(outside / "o.safetensors", dir / "link.safetensors");
  fs::create_symlink(dir / "ok.safetensors", dir / "inner.safetensors");
  fs::create_directory(dir / "sub");
  fs::create_symlink(outside.path(), dir / "away");
  const std::string out = (outside / "o.safetensors").string();
  for (const std::string& name : {std::string("../o.safetensors"),
                                  std::string("/etc/passwd"),
                                  out,
                                  std::string("sub/../ok.safetensors"),
                                  std::string("./ok.safetensors"),
                                  std::string("away/o.safetensors"),
                                  std::string("link.safetensors"),
                                  std::string(".."),
                                  std::string("."),
                                  std::string(""),
                                  std::string("ok.bin"),
                                  std::string("ok.pt"),
                                  std::string("ok"),
                                  std::string("ok.safetensors.json"),
                                  std::string(".safetensors"),
                                  std::string(".hidden.safetensors"),
                                  std::string("absent.safetensors"),
                                  std::string("sub"),
                                  std::string("a\\u0000.safetensors"),
                                  std::string("a\\n.safetensors"),
                                  std::string(300, 'a') + ".safetensors",
                                  std::string("..\\/ok.safetensors")})
    BOOST_TEST(says(error_of_index("{\"weight_map\":{\"x\":\"" + name + "\"}}"), "rule 18"), name);
  BOOST_TEST(says(error_of_index(R"({"weight_map":{"x":"absent.safetensors"}})"),
                  "the shard absent.safetensors: No such file or directory"));
  BOOST_TEST(says(error_of_index(R"({"weight_map":{}})"), "weight_map lists no tensor"));
  BOOST_TEST(says(error_of_index(R"({"weight_map":{"x":"ok.pt"}})"), "'ok.pt' is that of a pickle"));
  BOOST_TEST(
      says(error_of_index(R"({"weight_map":{"x":"a\n.safetensors"}})"), "contains a control character"));
  BOOST_TEST(
      says(error_of_index(R"({"weight_map":{"x":"a\u007f.safetensors"}})"), "contains a control character"));
  BOOST_TEST(error_of_index(R"({"weight_map":{"x":"ok.safetensors"}})") == "");
  BOOST_TEST(error_of_index(R"({"weight_map":{"x":"inner.safetensors"}})") ==
             "");  // a link within the directory
}

BOOST_AUTO_TEST_CASE(rule_18_index_and_shards_agree_on_every_name) {
  put(dir / "a.safetensors", file_of<float>("F32", {{"x", {1}}, {"y", {1}}}));
  put(dir / "b.safetensors", file_of<float>("F32", {{"z", {1}}}));
  const std::string map = R"("weight_map":{"x":"a.safetensors","y":"a.safetensors"}})";
  for (
      const std::string& text : std::initializer_list<std::string>{
          R"({"weight_map":{"x":"a.safetensors"}})",
          R"({"weight_map":{"x":"a.safetensors","y":"b.safetensors","z":"b.safetensors"}})",
          R"({"weight_map":{"x":"a.safetensors","y":"a.safetensors","z":"b.safetensors","w":"b.safetensors"}})",
          R"({"weight_map":{"x":"a.safetensors","y":"a.safetensors","y":"a.safetensors"}})",
          R"({"weight_map":{"x":"a.safetensors","y":"a.safetensors","\u0078":"a.safetensors"}})",
          R"({"weight_map":{"x":"a.safetensors","y":"a.safetensors"},"weight_map":{}})",
          R"({"weight_map":["a.safetensors"]})",
          R"({"weight_map":{"x":1}})",
          R"({"weight_map":{"x":null}})",
          R"({"weight_map":{"x":["a.safetensors"]}})",
          R"({"weight_map":null})",
          R"({"metadata":{}})",
          "{}",
          "[]",
          "",
          "null",
          R"({"weight_map":{"x":"a.safetensors","y":"a.safetensors"}} x)",
          R"({"weight_map":{"x":"a.safetensors","y":"a.safetensors",}})",
          "{\"metadata\":[[[[[[[[[[[[1]]]]]]]]]]]]," + map,
          R"({"metadata":{"total_size":01},)" + map,
          R"({"metadata":{"total_size":1.},)" + map,
          "\xff{}"})
    BOOST_TEST(says(error_of_index(text), "rule 18"), text);
  for (const char* value : {"nul",  "tru",     "fals",     "nulll", "1e",  "1e+",     "1.e5", "-", "-x",
                            "+1",   "01",      "-01",      ".5",    "NaN", "'a'",     "x",    "",  "[1,]",
                            "[,1]", "{\"a\"}", "{\"a\":}", "{1:2}", "\"a", "\"\\q\"", "[1",   "{"})
    BOOST_TEST(says(error_of_index("{\"metadata\":" + std::string(value) + "," + map), "rule 18"), value);
  for (const char* value :
       {"null", "true", "false", "0", "-0", "-1.5e-7", "1E+2", "\"\"", "[]", "[1,[2]]", "{\"a\":{}}"})
    BOOST_TEST(error_of_index("{\"metadata\":" + std::string(value) + "," + map) == "", value);
  BOOST_TEST(says(error_of_index("{\"metadata\":" + std::string(1'000'000, '[')), "nested deeper"));
  fs::remove(index);
  put(dir / "b.safetensors", file_of<float>("F32", {{"x", {1}}}));  // x is in both shards
  BOOST_TEST(says(error_of_index(R"({"weight_map":{"x":"a.safetensors","y":"a.safetensors"}})"), "") == true);
  BOOST_TEST(says(error_of_index(R"({"weight_map":{"x":"b.safetensors","y":"a.safetensors"}})"), "rule 18"));
}

BOOST_AUTO_TEST_CASE(rule_18_an_index_above_the_limit_is_not_read) {
  put(index, "{");
  fs::resize_file(index, 1ull << 40);  // sparse
  BOOST_TEST(says(error(), "the limit is"));
}

BOOST_AUTO_TEST_CASE(rule_19_every_difference_from_the_model_is_listed) {
  put(file, file_of<float>("F32", {{"a", {1, 2}}, {"b", {1, 2, 3}}, {"extra.1", {1}}, {"extra.2", {1}}}));
  WeightSource w(file);
  std::string m = message_of([&] {
    w.require({info("a", 2), info("b", 1, 3), info("c", 4), info("d", 4)}, false);
  });
  for (const char* part : {"2 missing", "2 not part of the model", "1 with a different shape", "missing: c",
                           "missing: d", "extra.1", "extra.2", "b is [3], expected [1, 3]", "rule 19"})
    BOOST_TEST(says(m, part), part << " in " << m);
  w.require({info("a", 2), info("b", 3), info("extra.1", 1), info("extra.2", 1)}, false);
}

BOOST_AUTO_TEST_CASE(rule_19_each_missing_extra_or_reshaped_tensor_is_reported) {
  const int kTensors = 24;
  std::vector<TensorInfo> wanted;
  std::vector<std::pair<std::string, std::vector<float>>> all;
  for (int i = 0; i < kTensors; ++i) {
    wanted.push_back(info("model.layers." + std::to_string(i) + ".weight", 3));
    all.emplace_back(wanted.back().name, std::vector<float>{1, 2, 3});
  }
  auto error_with = [&](const auto& tensors) {
    ++files;
    put(file, file_of<float>("F32", tensors));
    return message_of([&] { WeightSource(file).require(wanted, false); });
  };
  BOOST_TEST(error_with(all) == "");
  for (int i = 0; i < kTensors; ++i) {
    auto at = static_cast<std::size_t>(i);
    auto less = all, more = all, other = all, renamed = all;
    less.erase(less.begin() + i);
    more.insert(more.begin() + i, {"model.layers." + std::to_string(100 + i) + ".weight", {1}});
    other[at].second.push_back(4);
    renamed[at].first += "x";
    BOOST_TEST(says(error_with(less), "1 missing\n"));
    BOOST_TEST(says(error_with(more), "1 not part of the model"));
    BOOST_TEST(says(error_with(other), wanted[at].name + " is [4], expected [3]"));
    BOOST_TEST(says(error_with(renamed), "1 missing, 1 not part of the model"));
  }
}

// Older folders of GPTQ have no quantization_config, by which config.json would be refused.
BOOST_AUTO_TEST_CASE(rule_19_matrices_of_gptq_are_recognised) {
  put(file, file_of<float>("F32", {{"q_proj.qweight", {1, 2}}, {"q_proj.scales", {1}}}));
  BOOST_TEST(
      says(message_of([&] { WeightSource(file).require({info("q_proj.weight", 4)}, false); }),
           "the weights are quantized by GPTQ or AWQ (.qweight): use the model that they were made from"));
}

BOOST_AUTO_TEST_CASE(rule_19_a_long_list_is_shortened_but_counted_completely) {
  put(file, file_of<float>("F32", {{"a", {1}}}));
  std::vector<TensorInfo> wanted{info("a", 1)};
  for (int i = 0; i < 900; ++i) wanted.push_back(info("t" + std::to_string(i), 1));
  std::string m = message_of([&] { WeightSource(file).require(wanted, false); });
  BOOST_TEST(says(m, "900 missing"));
  BOOST_TEST(says(m, "and 850 more missing"));
  BOOST_TEST(m.size() < 4000u);
}

BOOST_AUTO_TEST_CASE(rule_19_types_that_cannot_be_weights_are_rejected) {
  for (const char* d : {"I32", "U32"}) {
    put(file, file_of<float>(d, {{"a", {1}}}));
    BOOST_TEST(says(message_of([&] { WeightSource(file).require({info("a", 1)}, false); }),
                    std::string("a is ") + d));
  }
}

BOOST_AUTO_TEST_CASE(a_stored_tied_head_and_derived_buffers_are_ignored_and_reported) {
  const TensorInfo embed = info("model.embed_tokens.weight", 2, 0, TensorRole::kEmbed);
  put(file, file_of<float>("F32", {{embed.name, {1, 2}},
                                   {"lm_head.weight", {1, 2}},
                                   {"model.layers.0.self_attn.rotary_emb.inv_freq", {1}}}));
  WeightSource w(file);
  w.require({embed}, true);
  BOOST_TEST(w.ignored().size() == 2u);
  BOOST_TEST(says(message_of([&] { w.require({embed}, false); }),
                  "lm_head.weight"));  // not tied: it is an extra tensor
  put(file, file_of<float>("F32", {{embed.name, {1, 2}}, {"lm_head.weight", {1, 2, 3}}}));
  BOOST_TEST(says(message_of([&] { WeightSource(file).require({embed}, true); }), "not part of the model"));
}

BOOST_AUTO_TEST_CASE(common_reasons_for_wrong_names_are_in_the_hint) {
  put(file, file_of<float>("F32", {{"layers.0.w", {1}}}));
  BOOST_TEST(says(message_of([&] { WeightSource(file).require({info("model.layers.0.w", 1)}, false); }),
                  "lack the prefix"));
  put(file, file_of<float>("F32", {{"model.norm.weight", {1}}}));
  BOOST_TEST(says(message_of([&] { WeightSource(file).require({info("norm.weight", 1)}, false); }),
                  "additional prefix"));
  put(file, file_of<float>("F32", {{"model.a", {1}}}));
  BOOST_TEST(says(message_of([&] {
                    WeightSource(file).require({info("model.a", 1), info("lm_head.weight", 1)}, false);
                  }),
                  "tie_word_embeddings"));
}

BOOST_AUTO_TEST_CASE(rule_20_a_non_finite_value_is_found_at_every_position) {
  const TensorInfo t = info("w", 1025);
  for (std::size_t at : {0, 1, 511, 512, 1023, 1024})
    for (float bad : {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
                      std::nanf(""), -std::nanf("7")})
      for (std::size_t piece : {64, 2000}) {
        std::vector<float> v(1025, 1.0f);
        v[at] = bad;
        put(file, file_of<float>("F32", {{"w", v}}));
        WeightSource w(file);
        std::string m = message_of([&] { load(w, t, piece); });
        BOOST_TEST(says(m, "'w' has 1 value"));
        BOOST_TEST(says(m, "element " + std::to_string(at) + " [rule 20]"), m);
      }
  for (std::uint16_t bad : {0x7C00, 0xFC00, 0x7E00, 0x7C01, 0xFFFF}) {
    put(file, file_of<std::uint16_t>("F16", {{"w", std::vector<std::uint16_t>(1025, bad)}}));
    WeightSource w(file);
    BOOST_TEST(says(message_of([&] { load(w, t, 100); }), "1025 values"));
  }
  put(file, file_of<double>("F64", {{"w", std::vector<double>(1025, 1e300)}}));
  WeightSource w(file);
  BOOST_TEST(says(message_of([&] { load(w, t, 100); }), "too large for f32"));
}

BOOST_AUTO_TEST_CASE(rule_21_a_file_that_changes_while_it_is_streamed_is_rejected) {
  put(file, file_of<float>("F32", {{"w", std::vector<float>(100, 1)}}));
  WeightSource w(file);
  std::vector<float> scratch(10);
  std::string m = message_of([&] {
    w.stream(info("w", 100), scratch, [&](std::uint64_t first, auto) {
      if (first == 50) put(file, file_of<float>("F32", {{"w", std::vector<float>(101, 1)}}));
    });
  });
  BOOST_TEST(says(m, "rule 21"), m);
}

BOOST_AUTO_TEST_CASE(rule_24_pickles_are_rejected_by_name) {
  for (const char* ext : {".bin", ".pt", ".pth", ".pkl", ".pickle", ".ckpt", ".BIN", ".Pt"})
    for (const char* stem : {"pytorch_model", "model", "consolidated.00"}) {
      put(dir / (stem + std::string(ext)), safetensors("{}"));
      BOOST_TEST(says(message_of([&] { WeightSource w(dir / (stem + std::string(ext))); }), "rule 24"));
      BOOST_TEST(says(message_of([&] { WeightSource w(dir.path()); }), "save_file"));
      fs::remove(dir / (stem + std::string(ext)));
    }
}

BOOST_AUTO_TEST_CASE(a_directory_without_weights_is_rejected_with_the_expected_names) {
  BOOST_TEST(says(message_of([&] { WeightSource w(dir.path()); }), "model.safetensors.index.json"));
  BOOST_TEST(says(message_of([&] { WeightSource w(dir / "nowhere"); }), "no such file"));
  put(dir / "config.json", "{}");
  BOOST_TEST(says(message_of([&] { WeightSource w(dir / "config.json"); }), "weight_map"));
}

BOOST_AUTO_TEST_CASE(a_missing_tensor_and_an_empty_scratch_buffer_are_errors) {
  put(file, file_of<float>("F32", {{"a", {1}}}));
  WeightSource w(file);
  BOOST_TEST(says(message_of([&] { load(w, info("b", 1), 4); }), "has no tensor 'b'"));
  BOOST_TEST(says(message_of([&] { load(w, info("a", 1), 0); }), "no scratch buffer"));
  BOOST_TEST(says(message_of([&] { load(w, info("a", 9), 4); }), "cannot read bytes"));
}

BOOST_AUTO_TEST_CASE(the_golden_models_open) {
  for (const char* run : {"contract", "gqa-tied", "mha"}) {
    WeightSource w(fs::path(TRAINHOST_SOURCE_DIR) / "tests/golden/runs" / run / "model.safetensors");
    BOOST_TEST(w.files()[0].tensors().size() > 10u);
  }
}

BOOST_AUTO_TEST_SUITE_END()
