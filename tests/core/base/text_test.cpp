// core/base/text: nearest names, parsing and formatting of sizes, escaping.
#include <boost/test/unit_test.hpp>

#include "core/base/plural.hpp"
#include "core/base/text.hpp"

using namespace trainhost;

BOOST_AUTO_TEST_SUITE(text)

BOOST_AUTO_TEST_CASE(a_typing_mistake_finds_the_intended_name) {
  const std::vector<std::string> names{"micro_batch", "grad_accum", "steps",
                                       "seed",        "h100-80gb",  "h100-pcie-80gb"};
  const auto found = [&](const char* word) { return nearest(word, names).value_or("-"); };
  BOOST_TEST(found("micro_bach") == "micro_batch");
  BOOST_TEST(found("micor_batch") == "micro_batch");
  BOOST_TEST(found("step") == "steps");
  BOOST_TEST(found("sede") == "seed");       // neighbours swapped: one edit
  BOOST_TEST(found("h100") == "h100-80gb");  // cut short
  BOOST_TEST(found("learning") == "-");
  BOOST_TEST(found("") == "-");
  BOOST_TEST(found("x") == "-");
  BOOST_TEST(found(std::string(100000, 's').c_str()) == "-");
  BOOST_TEST(did_you_mean("stepz", names) == "; did you mean 'steps'?");
  BOOST_TEST(did_you_mean("qqqqqq", names) == "");
}

BOOST_AUTO_TEST_CASE(case_and_separators_do_not_count) {
  const std::vector<std::string> names{"grad_accum", "adamw-8bit", "llama-3.1-8b", "llama-3-8b",
                                       "llama_3-8b"};
  const auto found = [&](const char* word) { return nearest(word, names).value_or("-"); };
  BOOST_TEST(found("gradAccum") == "grad_accum");
  BOOST_TEST(found("AdamW8bit") == "adamw-8bit");
  BOOST_TEST(found("Llama 3.1 8B") == "llama-3.1-8b");
  BOOST_TEST(found("llama_3_8b") == "llama_3-8b");  // of those that differ in nothing else the most similar
  BOOST_TEST(found("--") == "-");
}

BOOST_AUTO_TEST_CASE(names_of_other_frameworks_find_ours) {
  const auto found = [](const char* word, const std::vector<std::string>& names) {
    return nearest(word, names).value_or("-");
  };
  const std::vector<std::string> precisions{"fp32", "tf32", "bf16", "fp16", "fp8"};
  BOOST_TEST(found("bfloat16", precisions) == "bf16");
  BOOST_TEST(found("half", precisions) == "fp16");
  BOOST_TEST(found("float32", precisions) == "fp32");
  const std::vector<std::string> optimizers{"adamw", "sgd", "sgd-momentum", "adamw-8bit"};
  BOOST_TEST(found("adamw_torch_fused", optimizers) == "adamw");
  BOOST_TEST(found("paged_adamw_8bit", optimizers) == "adamw-8bit");
  BOOST_TEST(found("cosine_with_restarts", {"constant", "cosine", "linear"}) == "cosine");
  BOOST_TEST(found("disk", {"none", "cpu", "nvme"}) == "nvme");
  BOOST_TEST(found("torch", {"megatron", "pytorch"}) == "pytorch");
}

BOOST_AUTO_TEST_CASE(words_above_128_bytes_are_not_compared) {
  const auto found = [](std::size_t word, std::size_t candidate) {
    const std::vector<std::string> names{'a' + std::string(candidate - 1, 's')};
    return nearest('b' + std::string(word - 1, 's'), names).has_value();
  };
  BOOST_TEST(found(128, 128));
  BOOST_TEST(!found(129, 128));
  BOOST_TEST(!found(128, 129));
}

BOOST_AUTO_TEST_CASE(a_number_is_no_misspelling_of_another_one) {
  const std::vector<std::string> versions = {"0.0", "0.1", "0.2"};
  BOOST_TEST(!nearest("0.9", versions).has_value());
  BOOST_TEST(nearest("0_1", versions).value() == "0.1");
  BOOST_TEST(nearest("v0.1", versions).value() == "0.1");
}

BOOST_AUTO_TEST_CASE(ties_go_to_the_first_candidate) {
  BOOST_TEST(nearest("bat", std::vector<std::string>{"cat", "hat"}).value() == "cat");
  BOOST_TEST(!nearest("b", std::vector<std::string>{"c"}).has_value());  // nothing in common
}

BOOST_AUTO_TEST_CASE(sizes_are_read_in_decimal_and_binary_units) {
  const auto size = [](const char* s) { return parse_size(s).value_or(0); };
  BOOST_TEST(size("4096") == 4096u);
  BOOST_TEST(size("512MiB") == 512u << 20);
  BOOST_TEST(size("80GB") == 80000000000u);
  BOOST_TEST(size("2e9") == 2000000000u);
  BOOST_TEST(size("1.5 TiB") == 3ull << 39);
  BOOST_TEST(size(" 24 gib ") == 24ull << 30);
  BOOST_TEST(size("7B") == 7u);
  BOOST_TEST(size("9223372036854775807") == static_cast<std::uint64_t>(INT64_MAX));
}

BOOST_AUTO_TEST_CASE(invalid_sizes_are_nullopt) {
  for (const char* s : {"",
                        " ",
                        "GiB",
                        "-1",
                        "1.5",
                        "12 parsecs",
                        "9223372036854775808",
                        "18446744073709551616",
                        "1e30",
                        "inf",
                        "nan",
                        "0x10",
                        "8EiB",
                        "10G",
                        "1 2",
                        "9007199254740993PiB",
                        "+5",
                        "1e",
                        ".",
                        "1e5000",
                        "1e5000GiB"})
    BOOST_TEST(!parse_size(s).has_value(), s);
}

BOOST_AUTO_TEST_CASE(bytes_are_shown_with_three_digits) {
  BOOST_TEST(format_bytes(0) == "0 B");
  BOOST_TEST(format_bytes(1023) == "1023 B");
  BOOST_TEST(format_bytes(1024) == "1.00 KiB");
  BOOST_TEST(format_bytes(8336179) == "7.95 MiB");
  BOOST_TEST(format_bytes((1u << 20) - 1) == "1.00 MiB");
  BOOST_TEST(format_bytes(10239) == "10.0 KiB");
  BOOST_TEST(format_bytes(500ull << 30) == "500 GiB");
  BOOST_TEST(format_bytes(INT64_MAX) == "8.00 EiB");
  BOOST_TEST(format_count(0) == "0");
  BOOST_TEST(format_count(999) == "999");
  BOOST_TEST(format_count(1234567) == "1,234,567");
}

BOOST_AUTO_TEST_CASE(escaping_keeps_text_and_replaces_control_characters) {
  BOOST_TEST(escaped("caf\xC3\xA9 \xE2\x82\xAC") == "caf\xC3\xA9 \xE2\x82\xAC");
  BOOST_TEST(escaped("a\x1b[2Jb\n") == "a\\x1b[2Jb\\x0a");
  BOOST_TEST(escaped("\xE2\x80\xAEtxt") == "\\xe2\\x80\\xaetxt");  // right-to-left override
  BOOST_TEST(escaped("\xC2\x9B"
                     "31m") == "\\xc2\\x9b31m");  // C1 control
  for (const char* turns :
       {"\xE2\x80\x8E", "\xE2\x80\x8F", "\xD8\x9C", "\xE2\x80\xAA", "\xE2\x81\xA6", "\xE2\x81\xA9"})
    BOOST_TEST(escaped(turns).starts_with("\\x"));
  BOOST_TEST(escaped("\xFF\xC3") == "\\xff\\xc3");
  BOOST_TEST(escaped("abcdef", 3) == "abc...");
  BOOST_TEST(escaped(std::string_view("\0x", 2)) == "\\x00x");
}

BOOST_AUTO_TEST_CASE(utf8_validity_follows_the_standard) {
  for (const char* good : {"", "a", "\xC3\xA9", "\xE2\x82\xAC", "\xF0\x9F\x98\x80", "\xF4\x8F\xBF\xBF"})
    BOOST_TEST(valid_utf8(good));
  for (const char* bad : {"\x80", "\xC0\x80", "\xC3", "\xE0\x80\x80", "\xED\xA0\x80", "\xF4\x90\x80\x80",
                          "\xF5\x80\x80\x80", "\xE2\x82"})
    BOOST_TEST(!valid_utf8(bad));
}

BOOST_AUTO_TEST_CASE(the_hash_is_fnv1a) {
  BOOST_TEST(fnv1a("") == 0xcbf29ce484222325u);
  BOOST_TEST(fnv1a("a") == 0xaf63dc4c8601ec8cu);  // published test vector
  BOOST_TEST(fnv1a("foobar") == 0x85944171f73967e8u);
}

BOOST_AUTO_TEST_CASE(a_number_has_its_noun_in_the_singular_or_the_plural) {
  for (const auto& [noun, many] : std::vector<std::pair<const char*, const char*>>{{"step", "2 steps"},
                                                                                   {"entry", "2 entries"},
                                                                                   {"day", "2 days"},
                                                                                   {"batch", "2 batches"},
                                                                                   {"loss", "2 losses"}}) {
    BOOST_TEST(trainhost::plural(1, noun) == std::string("1 ") + noun);
    BOOST_TEST(trainhost::plural(2, noun) == many);
  }
  BOOST_TEST(trainhost::plural(0, "micro-batch") == "0 micro-batches");
  BOOST_TEST(trainhost::plural(1234567, "token") == "1,234,567 tokens");
}

BOOST_AUTO_TEST_SUITE_END()
