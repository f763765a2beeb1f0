// Data, models and adapters that cannot be fine-tuned, as a user meets them: one message that names the file
// and what to do, exit code 2, and no file left behind. Each record that is broken by itself:
// tests/core/records.
#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <cstring>
#include <functional>
#include <nlohmann/json.hpp>

#include "tests/support/chat_model.hpp"

using namespace trainhost::test;
namespace fs = std::filesystem;
using json = nlohmann::json;

namespace {

struct Fixture {
  TemporaryDirectory tmp;
  fs::path model = write_chat_model(tmp, "small"), data = tmp.write("chat.jsonl", chats(20));

  Outcome finetune(const fs::path& folder, const fs::path& file, const std::vector<std::string>& more = {}) {
    std::vector<std::string> words = {"finetune",    folder.string(),
                                      file.string(), "--backend=cpu",
                                      "--set",       "output.dir=" + (tmp / "runs/out").string()};
    words.insert(words.end(), more.begin(), more.end());
    return run_program(words);
  }

  void refused(const fs::path& folder, const fs::path& file, const std::vector<std::string>& says,
               const std::vector<std::string>& more = {"--lora"}) {
    const Outcome r = finetune(folder, file, more);
    BOOST_TEST(r.code == 2, says.front() << ": exit " << r.code << "\n" << r.err);
    for (const std::string& text : says)
      BOOST_TEST(has(r.err, text), "expected '" << text << "', got: " << r.err);
    BOOST_TEST(!fs::exists(tmp / "runs"), says.front());
  }

  void refused_data(const std::string& name, const std::string& content,
                    const std::vector<std::string>& says) {
    refused(model, tmp.write("bad/" + name, content), says);
  }

  /// A copy of the model in which `change` does something to the folder.
  void refused_model(const std::function<void(const fs::path&)>& change, const std::vector<std::string>& says,
                     const std::vector<std::string>& more = {"--lora"}) {
    fs::remove_all(tmp / "changed");
    fs::copy(model, tmp / "changed");
    change(tmp / "changed");
    refused(tmp / "changed", data, says, more);
  }
};

const std::string kChat =
    R"({"messages":[{"role":"user","content":"hi"},{"role":"assistant","content":"ho"}]})"
    "\n";

/// Moves every second tensor of model.safetensors into another file, and writes an index.
void divide_into_shards(const fs::path& folder) {
  const std::string bytes = read_file(folder / "model.safetensors");
  std::uint64_t size = 0;
  std::memcpy(&size, bytes.data(), sizeof size);
  const json header = json::parse(bytes.substr(8, size));
  json headers[2], index;
  std::string parts[2];
  int i = 0;
  for (const auto& [name, tensor] : header.items()) {
    if (name == "__metadata__") continue;
    const std::size_t begin = tensor["data_offsets"][0], end = tensor["data_offsets"][1];
    const int shard = i++ % 2;
    json moved = tensor;
    moved["data_offsets"] = {parts[shard].size(), parts[shard].size() + end - begin};
    headers[shard][name] = moved;
    parts[shard] += bytes.substr(8 + size + begin, end - begin);
    index["weight_map"][name] = shard ? "model-2.safetensors" : "model-1.safetensors";
  }
  for (int shard = 0; shard < 2; ++shard) {
    const std::string text = headers[shard].dump();
    const std::uint64_t n = text.size();
    std::ofstream(folder / (shard ? "model-2.safetensors" : "model-1.safetensors"), std::ios::binary)
        << std::string(reinterpret_cast<const char*>(&n), sizeof n) << text << parts[shard];
  }
  std::ofstream(folder / "model.safetensors.index.json") << index.dump();
  fs::remove(folder / "model.safetensors");
}

void write_file(const fs::path& file, std::string_view content) {
  std::ofstream(file, std::ios::binary).write(content.data(), static_cast<std::streamsize>(content.size()));
}

/// The last four bytes of a file: an f32 value of its last tensor.
void end_with(const fs::path& file, float value) {
  std::string bytes = read_file(file);
  std::memcpy(bytes.data() + bytes.size() - sizeof value, &value, sizeof value);
  write_file(file, bytes);
}

}  // namespace

BOOST_FIXTURE_TEST_SUITE(bad_finetune_input, Fixture)

BOOST_AUTO_TEST_CASE(broken_records_are_listed_by_line_at_most_ten) {
  std::string lines = kChat + "{\"messages\":[{\"role\":\"user\"\n" + kChat + "{\"messages\":[]}\n";
  refused_data("two.jsonl", lines,
               {"2 broken records:", "two.jsonl:2:28: expected ',' or '}'",
                "two.jsonl:4:13: 'messages' is empty\n(correct them", "--set data.on_error=skip"});
  const Outcome shown = run_program(
      {"data", "show", (tmp / "bad/two.jsonl").string(), "--model", model.string(), "--count", "9"});
  BOOST_TEST(shown.code == 0, shown.err);
  BOOST_TEST(has(shown.err, "left out: 2 broken records:\n"), shown.err);
  BOOST_TEST(has(shown.err, "two.jsonl:4:13: 'messages' is empty"), shown.err);
  for (int i = 0; i < 20; ++i) lines += "{\"messages\":5}\n";
  refused_data("many.jsonl", lines,
               {"22 broken records:", "many.jsonl:5:13: 'messages' is a number",
                "; also lines 6, 7, 8, 9, 10, 11, 12, 13, 14 and 10 more"});
  const Outcome listed = finetune(model, tmp / "bad/many.jsonl", {"--lora"});
  BOOST_TEST(std::ranges::count(listed.err, '\n') < 8, listed.err);  // equal messages share a line

  const Outcome skipped = finetune(model, tmp / "bad/many.jsonl", {"--lora", "--set", "data.on_error=skip"});
  BOOST_TEST(skipped.code == 0, skipped.err);
  BOOST_TEST(has(skipped.err, "22 broken records left out"), skipped.err);
  BOOST_TEST(has(skipped.err, "2 documents"), skipped.err);
  const std::string name = "data many.jsonl: ";  // reported once
  BOOST_TEST(skipped.err.find(name) == skipped.err.rfind(name), skipped.err);
}

BOOST_AUTO_TEST_CASE(a_file_without_usable_records_is_refused) {
  refused_data("empty.jsonl", "", {"empty.jsonl' has no record"});
  refused_data("blank.jsonl", "\n\n  \n", {"blank.jsonl' has no record"});
  refused_data("keys.jsonl", "{\"foo\": 1}\n",
               {"keys.jsonl:1:1: the record has 'foo'; expected one of 'messages'"});
  refused_data(
      "turns.jsonl", R"({"messages":[{"role":"assistant","content":"x"},{"role":"user","content":"y"}]})",
      {"turns.jsonl:1:13: message 1 of 2: role 'assistant' begins the conversation; expected 'user'"});
  refused_data("types.jsonl",
               "{\"messages\":[{\"role\":5,\"content\":\"hi\"}]}\n{\"messages\":[\"hi\"]}\n[1]\n",
               {"types.jsonl:1:22: 'role' is a number", "types.jsonl:2:14: a message is a text",
                "types.jsonl:3:1: the record is a list"});
  refused_data("utf8.jsonl", "{\"text\": \"\xff\"}\n{\"text\": \"\\ud800\"}\n",
               {"utf8.jsonl:1:11: not valid UTF-8", "utf8.jsonl:2:11: unpaired surrogate"});
}

BOOST_AUTO_TEST_CASE(a_file_that_is_no_text_is_named_as_what_it_is) {
  refused_data("packed.jsonl", "\x1f\x8b\x08\x04more",
               {"packed.jsonl' is compressed by gzip", "decompress it first"});
  refused_data("c.jsonl.gz", "\x1f\x8b\x08\x04more", {"c.jsonl.gz' is compressed", "decompress it first"});
  refused_data("wide.jsonl", std::string("\xff\xfe{\0", 4), {"wide.jsonl' is UTF-16", "iconv -f UTF-16"});
  fs::create_directories(tmp / "folder.jsonl");
  tmp.write("folder.jsonl/a.jsonl", kChat);
  refused(model, tmp / "folder.jsonl", {"is a folder", "folder.jsonl/*.jsonl' for the .jsonl files in it"});
  refused(model, tmp / "chatt.jsonl", {"chatt.jsonl' does not exist; did you mean 'chat.jsonl'?"});
}

BOOST_AUTO_TEST_CASE(line_ends_of_windows_and_a_byte_order_mark_are_read) {
  std::string lines = "\xef\xbb\xbf" + kChat + kChat;
  lines.replace(lines.find('\n'), 1, "\r\n");
  const Outcome r = finetune(model, tmp.write("windows.jsonl", lines), {"--lora"});
  BOOST_TEST(r.code == 0, r.err);
  BOOST_TEST(has(r.err, "2 documents"), r.err);
}

// JSON in a .txt file would be trained on as it is, which looks like success.
BOOST_AUTO_TEST_CASE(records_that_are_read_as_text_are_pointed_out) {
  const Outcome r = finetune(model, tmp.write("chat.txt", chats(20)), {"--lora", "--set", "data.seq_len=64"});
  BOOST_TEST(r.code == 0, r.err);
  BOOST_TEST(has(r.err, "chat.txt' begins with a record"), r.err);
  fs::remove_all(tmp / "runs");
  const Outcome text =
      finetune(model, tmp.write("plain.txt", "{ " + chats(20)), {"--lora", "--set", "data.seq_len=64"});
  BOOST_TEST(text.code == 0, text.err);
  BOOST_TEST(!has(text.err, "begins with a record"), text.err);
}

BOOST_AUTO_TEST_CASE(a_tokenizer_that_does_not_belong_to_the_model_is_refused) {
  const auto tokenizer = [](std::vector<std::string> special) {
    return [special](const fs::path& f) {
      write_file(f / "tokenizer.json", byte_level_tokenizer(special).dump());
    };
  };
  refused_model(tokenizer({"<a>", "<b>", "<c>", "<d>", "<|im_start|>", "<|im_end|>"}),
                {"has 262 ids, but model.vocab_size is 260", "use the tokenizer of this model"});
  refused_model(tokenizer({}), {"eos_token '<|im_end|>' of tokenizer_config.json is not in the vocabulary"});
  refused_model([](const fs::path& f) { write_file(f / "tokenizer.json", "{"); },
                {"tokenizer.json', line 1, column 2"});
  refused_model([](const fs::path& f) { fs::remove(f / "tokenizer.json"); }, {"tokenizer_config.json"});
  refused_model(
      [](const fs::path& f) { fs::remove(f / "tokenizer_config.json"); },
      {"conversations need a chat template, and there is none in '", "changed' (set data.chat_template"});
  refused_model(
      [](const fs::path& f) { write_file(f / "tokenizer_config.json", R"({"chat_template": "{{ x }}"})"); },
      {"tokenizer_config.json' is not one of the built-in ones"});
  refused_model(
      [](const fs::path& f) {
        write_file(
            f / "tokenizer_config.json",
            R"({"chat_template": [{"name": "tool_use", "template": "a"}, {"name": "rag", "template": "b"}]})");
      },
      {"chat_template of '",
       "tokenizer_config.json' is a list without the name 'default': it has 'tool_use', 'rag'",
       "set data.chat_template"});
}

BOOST_AUTO_TEST_CASE(signs_of_another_tokenizer_are_reported) {
  const Outcome guess = finetune(model, data, {"--lora", "--steps", "2"});
  BOOST_TEST(guess.code == 0, guess.err);
  BOOST_TEST(has(guess.err, "the first loss is not below 5.56, that of guessing among 260 tokens"),
             guess.err);
  fs::remove_all(tmp / "runs");
  const Outcome longer = finetune(model, data, {"--lora", "--steps", "1", "--set", "data.seq_len=2064"});
  BOOST_TEST(has(longer.err, "data.seq_len = 2,064 is more than the 2,048 positions of the model"),
             longer.err);
  fs::remove_all(tmp / "runs");
  json config = json::parse(read_file(model / "config.json"));
  config["vocab_size"] = 512;
  tmp.write("large.json", config.dump());
  const Outcome r =
      run_program({"train", "--backend=cpu", "--set", "model.config=" + (tmp / "large.json").string(),
                   "--set", "data.train=" + data.string(), "--set", "data.chat_template=chatml", "--set",
                   "data.tokenizer=" + (model / "tokenizer.json").string(), "--steps", "1", "--set",
                   "data.seq_len=48", "--set", "output.dir=" + (tmp / "runs/out").string()});
  BOOST_TEST(r.code == 0, r.err);
  BOOST_TEST(has(r.err, "has 259 ids, and the model 512: it may be the tokenizer of another model"), r.err);
}

BOOST_AUTO_TEST_CASE(a_folder_that_is_no_model_is_refused_with_the_way_to_get_one) {
  refused(tmp / "smal", data, {"smal' does not exist; did you mean 'small'?"});
  refused("owner/name-135M", data, {"does not exist", "hf download owner/name-135M --local-dir name-135M"});
  refused(model / "config.json", data, {"config.json' is not a folder"});
  refused_model([](const fs::path& f) { fs::remove(f / "config.json"); },
                {"contains no config.json (a folder in the layout of Hugging Face has"});
  refused_model([](const fs::path& f) { fs::rename(f / "config.json", f / "params.json"); },
                {"contains no config.json (these are the files of Meta's own layout"});
  refused_model([](const fs::path& f) { fs::rename(f / "config.json", f / "model-q4.gguf"); },
                {"contains no config.json (GGUF is not read"});
  refused_model([](const fs::path& f) { fs::remove(f / "model.safetensors"); },
                {"contains neither model.safetensors nor", "download the weights"});
  refused_model(
      [](const fs::path& f) { fs::rename(f / "model.safetensors", f / "pytorch_model.bin"); },
      {"its weights are a pickle: convert them to safetensors: python3 -c", "dtype='auto').save_pretrained"});
  refused(tmp.write("model.gguf", "GGUF"), data,
          {"model.gguf' is not a folder (GGUF is not read: use the folder"});
  refused_model([](const fs::path& f) { fs::rename(f / "model.safetensors", f / "model-1.safetensors"); },
                {"copy model.safetensors.index.json"});
}

BOOST_AUTO_TEST_CASE(weights_that_are_damaged_are_refused_in_every_kind_of_run) {
  const auto shard_missing = [](const fs::path& f) {
    divide_into_shards(f);
    fs::remove(f / "model-2.safetensors");
  };
  refused_model(shard_missing, {"model.safetensors.index.json: the shard model-2.safetensors"});
  const Outcome before_data = finetune(tmp / "changed", data, {"--lora"});
  BOOST_TEST(!has(before_data.err, "documents in"), before_data.err);
  refused_model(
      [](const fs::path& f) {
        divide_into_shards(f);
        fs::resize_file(f / "model-2.safetensors", fs::file_size(f / "model-2.safetensors") - 50);
      },
      {"model-2.safetensors", "it is truncated", "copy or download the file again"});
  refused_model(
      [](const fs::path& f) {
        divide_into_shards(f);
        write_file(f / "model-2.safetensors",
                   "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\n");
      },
      {"model-2.safetensors", "git lfs pull"});
  // In a matrix that QLoRA quantizes while it is loaded.
  const auto with_nan = [](const fs::path& f) {
    divide_into_shards(f);
    const json index = json::parse(read_file(f / "model.safetensors.index.json"));
    end_with(f / index["weight_map"]["model.layers.1.self_attn.v_proj.weight"].get<std::string>(), NAN);
  };
  for (const char* kind : {"--lora", "--qlora", "-v"})
    refused_model(with_nan, {"model-", ".safetensors: tensor 'model.", "has 1 value that is NaN"}, {kind});
  // Before the data is read, which may take long: here it is broken too.
  const fs::path broken = tmp.write("bad/broken.jsonl", "{");
  for (const std::vector<std::string>& more : {std::vector<std::string>{}, {"--set", "data.seq_len=32"}})
    refused(tmp / "changed", broken, {".safetensors: tensor 'model.", "has 1 value that is NaN"}, more);
}

BOOST_AUTO_TEST_CASE(an_adapter_of_another_base_is_refused) {
  BOOST_REQUIRE(finetune(model, data, {"--lora", "--steps", "1"}).code == 0);
  fs::rename(tmp / "runs", tmp / "first");
  const std::string adapter = (tmp / "first/out/adapter").string();
  refused_model([](const fs::path& f) { end_with(f / "model.safetensors", 0.5F); },
                {"the adapter in " + adapter + " was trained on other weights"}, {"--adapter", adapter});
  const fs::path pickled = tmp / "pickled";
  fs::copy(adapter, pickled);
  fs::rename(pickled / "adapter_model.safetensors", pickled / "adapter_model.bin");
  refused(model, data, {"adapter_model.bin", "a pickle is not supported", "'adapter_model.safetensors')"},
          {"--adapter", pickled.string()});
  // --adapter takes the folder of the run too.
  const Outcome further = finetune(model, data, {"--adapter", (tmp / "first/out").string(), "--steps", "1"});
  BOOST_TEST(further.code == 0, further.err);
  const Outcome none = run_program({"merge", model.string(), "-o", (tmp / "merged").string()});
  BOOST_TEST(none.code == 2);
  BOOST_TEST(has(none.err, "small contains no adapter: adapter_config.json and"), none.err);
}

BOOST_AUTO_TEST_SUITE_END()
