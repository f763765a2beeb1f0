// A model folder as a user has it: a small LLaMA with random weights, a byte-level tokenizer.json with the
// special tokens of ChatML, and a chat template; and conversations to train it on. For tests of the program.
#pragma once
#include <boost/test/unit_test.hpp>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/support/files.hpp"
#include "tests/support/process.hpp"

namespace trainhost::test {

/// The character by which byte-level BPE writes a byte, as GPT-2 numbers them.
inline std::string byte_level_character(unsigned byte) {
  const auto printable = [](unsigned b) {
    return (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || (b >= 174 && b <= 255);
  };
  unsigned code = byte;
  if (!printable(byte)) {
    code = 256;
    for (unsigned b = 0; b < byte; ++b) code += !printable(b);
  }
  if (code < 0x80) return std::string(1, static_cast<char>(code));
  return {static_cast<char>(0xC0 | code >> 6), static_cast<char>(0x80 | (code & 0x3F))};
}

/// tokenizer.json of 256 bytes, whose ids are their values, and of `special` tokens from id 256.
inline nlohmann::json byte_level_tokenizer(const std::vector<std::string>& special) {
  nlohmann::json vocab, added = nlohmann::json::array();
  for (unsigned b = 0; b < 256; ++b) vocab[byte_level_character(b)] = b;
  for (std::size_t i = 0; i < special.size(); ++i)
    added.push_back({{"id", 256 + i}, {"content", special[i]}, {"special", true}});
  const nlohmann::json bytes = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", true}};
  return {{"version", "1.0"},
          {"added_tokens", added},
          {"normalizer", nullptr},
          {"pre_tokenizer", bytes},
          {"post_processor", nullptr},
          {"decoder", bytes},
          {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", nlohmann::json::array()}}}};
}

inline constexpr const char* kChatMl =
    "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + "
    "'<|im_end|>' + '\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif "
    "%}";

/// Writes the folder `name` in `tmp`: two layers of 32, 260 tokens.
inline std::filesystem::path write_chat_model(const TemporaryDirectory& tmp, const std::string& name) {
  const std::filesystem::path run = tmp / (name + ".run"), folder = tmp / name;
  std::vector<std::string> train = {"train", "-q", "--backend=cpu", "--set", "model.vocab_size=260"};
  for (const std::string& word : small_model_options()) train.push_back(word);
  for (const std::string& setting : {"output.dir=" + run.string(), std::string("train.steps=1")})
    train.insert(train.end(), {"--set", setting});
  const Outcome r = run_program(train);
  BOOST_REQUIRE_MESSAGE(r.code == 0, r.err);
  std::filesystem::rename(run / "model", folder);
  std::filesystem::remove_all(run);
  tmp.write(name + "/generation_config.json", "{}");  // without the context of the short training
  tmp.write(name + "/tokenizer.json",
            byte_level_tokenizer({"<|endoftext|>", "<|im_start|>", "<|im_end|>"}).dump());
  tmp.write(name + "/tokenizer_config.json",
            nlohmann::json({{"eos_token", "<|im_end|>"}, {"chat_template", kChatMl}}).dump());
  return folder;
}

/// Conversations of one question each, as JSON Lines.
inline std::string chats(int count) {
  std::string lines;
  for (int i = 0; i < count; ++i) {
    const int a = i * 7 % 50, b = i * 13 % 50;
    lines +=
        nlohmann::json({{"messages",
                         {{{"role", "user"},
                           {"content", "What is " + std::to_string(a) + " + " + std::to_string(b) + "?"}},
                          {{"role", "assistant"}, {"content", std::to_string(a + b) + "."}}}}})
            .dump() +
        "\n";
  }
  return lines;
}

}  // namespace trainhost::test
