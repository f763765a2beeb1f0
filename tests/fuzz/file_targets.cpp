// Readers of files that a user gets from others, or that a crash may have damaged: weights, indexes, configs,
// token files, tokenizers, manifests of checkpoints, metrics. See targets.hpp.
#include "tests/fuzz/file_targets.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <span>
#include <vector>

#include "core/checkpoint/checkpoint_manifest.hpp"
#include "core/checkpoint/safetensors.hpp"
#include "core/checkpoint/shard_index.hpp"
#include "core/checkpoint/xxh3.hpp"
#include "core/data/dataset.hpp"
#include "core/framework_files/python_tokens.hpp"
#include "core/framework_files/read_files.hpp"
#include "core/records/choice_record.hpp"
#include "core/records/record_reader.hpp"
#include "core/runfile/adapter_config.hpp"
#include "core/runfile/run_config.hpp"
#include "core/training/events.hpp"
#include "tests/fuzz/reader_checks.hpp"

namespace trainhost::fuzz {
namespace {

namespace fs = std::filesystem;

const Folder& folder() {
  static const Folder f;
  return f;
}

/// The header of a file of tensors, and all data of the tensors.
void safetensors(std::string_view input) {
  rejected_or([&] {
    const checkpoint::SafetensorsFile file(folder().write("w.safetensors", input));
    std::uint64_t sum = 0;
    std::vector<std::byte> data;
    for (const checkpoint::TensorEntry& t : file.tensors()) {
      require(t.begin <= t.end && t.end <= input.size(), "a tensor is outside the file");
      sum += t.end - t.begin;
      data.resize(t.end - t.begin);
      file.read(t, 0, data);
    }
    require(sum <= input.size(), "tensors overlap");
  });
}

void index(std::string_view input) {
  rejected_or([&] {
    const fs::path path = folder().write("model.safetensors.index.json", input);
    const auto shards = checkpoint::read_index(path);
    require(!shards.empty(), "an index without files");
    for (const auto& [tensor, shard] : shards) {
      require(shard.find('/') == shard.npos && shard != ".." && shard.find('\0') == shard.npos,
              "a shard is outside the folder");
      (void)checkpoint::shard_path(path, shard);
    }
  });
}

/// The text as it is, and sealed: otherwise the seal hides the parser from the mutations.
void checkpoint_manifest(std::string_view input) {
  rejected_or([&] { (void)checkpoint::parse_manifest(input); });
  rejected_or([&] {
    const std::string sealed =
        std::string(input) + ",\n \"seal\": \"" + checkpoint::xxh3_hex(input) + "\"\n}\n";
    const checkpoint::Manifest m = checkpoint::parse_manifest(sealed);
    for (const checkpoint::FileRecord& f : m.files)
      require(!f.name.empty() && f.name.find('/') == f.name.npos && f.name != "..", "a name is a path");
    (void)checkpoint::parse_manifest(checkpoint::manifest_text(m));
  });
}

/// The first byte chooses the type of ids, the rest is a .bin file; every id is read.
void token_file(std::string_view input) {
  rejected_or([&] {
    const unsigned choice = input.empty() ? 0 : static_cast<unsigned char>(input[0]);
    data::OpenOptions o;
    o.train = {folder().write("tokens.bin", input.substr(std::min<std::size_t>(1, input.size())))};
    o.dtype = choice % 3 == 0 ? "" : choice % 3 == 1 ? "uint16" : "uint32";
    o.vocab = choice & 4 ? 70'000 : 300;
    o.seq_len = 4;
    const data::Source source = data::open_source(o);
    std::vector<std::int32_t> ids(source.train->size());
    require(ids.size() <= input.size(), "more ids than bytes");
    source.train->read(0, ids);
    for (std::int32_t id : ids)
      require(id >= 0 && static_cast<std::uint64_t>(id) < o.vocab, "an id is outside the vocabulary");
  });
}

/// A resumed run cuts metrics.jsonl: what remains is a prefix of whole lines, and a second cut changes
/// nothing.
void metrics(std::string_view input) {
  rejected_or([&] {
    const fs::path path = folder().write("metrics.jsonl", input);
    const auto content = [&] {
      std::ifstream in(path, std::ios::binary);
      return std::string(std::istreambuf_iterator<char>(in), {});
    };
    training::truncate_metrics(path, 3);
    const std::string kept = content();
    require(input.starts_with(kept) && (kept.empty() || kept.ends_with('\n')),
            "more than whole lines remains");
    training::truncate_metrics(path, 3);
    require(content() == kept, "a second cut changes the file");
  });
}

void tokenizer(std::string_view input) {
  rejected_or([&] {
    const auto t =
        data::make_tokenizer(folder().write(input.starts_with('{') ? "t.json" : "t.model", input).string());
    const std::string text = "ab a\xc3\xa4\n<s> aab 12  b";
    std::vector<std::int32_t> ids = t->encode(text, tokenizer::Names::kSpecial);
    for (std::int32_t id : ids)
      require(id >= 0 && static_cast<std::uint64_t>(id) < t->vocab(), "an id is outside the vocabulary");
    t->decode(ids);
    if (!input.starts_with('{')) return;
    std::vector<std::int32_t> joined;
    const std::string long_text = std::string(100, 'a') + " " + text + std::string(100, 'b');
    const std::size_t used = t->encode_next(long_text, tokenizer::Names::kText, true, false, joined);
    t->encode_next(std::string_view(long_text).substr(used), tokenizer::Names::kText, used == 0, true,
                   joined);
    require(joined == t->encode(long_text), "a text in two pieces has other ids");
  });
}

/// Every rendering is UTF-8; a template may refuse a record.
void require_renderings(const records::Record& r) {
  for (const std::string& name : records::chat_template_names()) {
    const records::ChatTemplate chat = records::chat_template(name);
    std::string text;
    try {
      for (const records::Part& p : records::render(r, &chat, records::LossOn::kCompletions)) text += p.text;
    } catch (const records::RecordError&) {
      continue;
    }
    require(valid_utf8(text), "a rendering is not UTF-8");
    require(r.kind != records::RecordKind::kText || text == r.text, "a text is changed");
  }
}

/// The first byte chooses the format, the rest is the file. Reading ends, with the same records when the file
/// arrives in small pieces, and every accepted record can be rendered by every chat template. The same file
/// is read as questions with choices.
void record_file(std::string_view input) {
  const unsigned choice = input.empty() ? 0 : static_cast<unsigned char>(input[0]);
  input.remove_prefix(std::min<std::size_t>(1, input.size()));
  const auto format = static_cast<records::RecordFormat>(choice % 3);
  std::string all[2];
  for (const std::size_t piece : {std::size_t{1} << 20, std::size_t{1 + choice / 3 % 7}}) {
    std::string& read = all[piece < 8];
    const auto bytes = [rest = input, piece](std::span<char> out) mutable {
      const std::size_t n = std::min({out.size(), rest.size(), piece});
      std::copy_n(rest.begin(), n, out.begin());
      rest.remove_prefix(n);
      return n;
    };
    const auto reader = records::open_records(bytes, format, "data.jsonl");
    records::RecordCounts counts;
    records::read_records(*reader, {}, records::OnError::kSkip, counts,
                          [&](const records::Record& r, const Where& where) {
                            read += std::to_string(where.line) + ' ' + r.text + r.completion + r.input;
                            for (const records::Message& m : r.messages) read += m.role + m.content;
                            require_renderings(r);
                          });
    require(counts.read + counts.broken <= input.size() + 1, "more records than bytes");
    for (const std::string& line : counts.first_broken)
      require(line.starts_with("data.jsonl:") && valid_utf8(line), "a broken record without its place");
    read += std::to_string(counts.read) + ' ' + counts.message();
    const auto questions = records::open_records(bytes, format, "data.jsonl");
    records::RecordCounts question_counts;
    records::read_objects(
        *questions, records::OnError::kSkip, question_counts,
        [&](const JsonValue& object) {
          const records::ChoiceRecord r = records::choice_record_of(object, {});
          require(r.choices.size() > 1 && r.answer < r.choices.size(), "a question without its answer");
        },
        [](const Where&) {});
    read += ' ' + question_counts.message();
  }
  require(all[0] == all[1], "a file in small pieces has other records");
}

void model_config(std::string_view input) {
  rejected_or([&] {
    const ModelSpec m = runfile::parse_model_config(std::string(input), "config.json");
    require(m.layers <= 65'536 && m.vocab <= INT32_MAX, "a dimension is out of range");
  });
}

void adapter_config(std::string_view input) {
  rejected_or([&] {
    const runfile::AdapterConfig c =
        runfile::read_adapter_config(folder().write("adapter_config.json", input));
    require(c.rank >= 1 && c.rank <= 65536 && c.alpha > 0 && c.alpha <= 1e6, "a factor is out of range");
    require(c.dropout >= 0 && c.dropout < 1, "a probability is out of range");
    const AdapterSize size = c.size_of("model.layers.10.self_attn.q_proj");
    require(size.rank <= 65536 && (size.rank == 0 || size.alpha > 0), "a size of a matrix is out of range");
    for (const std::string& module : c.modules_to_save) require(!module.empty(), "a module without a name");
  });
}

using Texts = std::vector<std::string>;

std::string number_of(std::uint64_t n) { return {reinterpret_cast<const char*>(&n), sizeof n}; }

Texts safetensors_seeds() {
  Texts out;
  for (
      const char* header :
      {R"({"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]}})",
       R"({"a":{"dtype":"BF16","shape":[4],"data_offsets":[0,8]},"b":{"dtype":"I8","shape":[],"data_offsets":[8,9]}})",
       R"({"a":{"dtype":"F64","shape":[0,7],"data_offsets":[0,0]},"b":{"dtype":"F16","shape":[1,1,2],"data_offsets":[0,4]}})"}) {
    const std::string text(header);
    const std::size_t bytes = text.find("24]") != text.npos ? 24 : text.find("9]") != text.npos ? 9 : 4;
    out.push_back(number_of(text.size()) + text + std::string(bytes, '\1'));
  }
  return out;
}

Texts checkpoint_manifest_seeds() {
  checkpoint::Manifest m;
  m.serial = 3, m.meta.step = 7, m.meta.kernel_set = "SkylakeX", m.meta.extra = {{"run", "a = 1\nb = 2\n"}};
  m.files.push_back({"weights.safetensors", 100, std::string(32, 'a'), {{"model.a", std::string(32, 'b')}}});
  std::string text = checkpoint::manifest_text(m);
  return {text.substr(0, text.rfind(",\n \"seal\"")), R"({"format": 1, "files": [{"name": "x"}])", text};
}

Texts token_file_seeds() {
  std::string llmc(1024, '\0');
  const auto put = [&](std::size_t at, std::uint32_t v) {
    llmc.replace(at, 4, reinterpret_cast<const char*>(&v), 4);
  };
  put(0, 20240520), put(4, 1), put(8, 20);
  return {std::string("\0", 1) + std::string("a\0b\0c\0d\0e\0f\0g\0h\0i\0j\0", 20),
          "\1" + llmc + std::string(40, '\1'), "\2" + std::string(64, '\0')};
}

Texts metrics_seeds() {
  std::string text = "{\"event\":\"start\",\"resumed_from\":0,\"plan\":{\"a\":[1]}}\n";
  for (int step = 1; step <= 6; ++step)
    text += "{\"event\":\"step\",\"step\":" + std::to_string(step) + ",\"loss\":1.5}\n";
  return {text, text + "{\"event\":\"done\",\"steps\":6}\n", text.substr(0, 70),
          "{\"event\":[1],\"step\":\"x\"}\n"};
}

/// ModelProto of SentencePiece: pieces (field 1), trainer_spec (2), normalizer_spec (3).
Texts tokenizer_seeds() {
  const auto field = [](int number, const std::string& bytes) {
    return std::string(1, static_cast<char>(number << 3 | 2)) + static_cast<char>(bytes.size()) + bytes;
  };
  const auto piece = [&](const std::string& text, char type) {
    return field(1, field(1, text) + std::string("\x15\0\0\x80\xbf", 5) + "\x18" + type);
  };
  const std::string pieces = piece("<unk>", 2) + piece("<s>", 3) + piece("</s>", 3) + piece("a", 1) +
                             piece("b", 1) + piece("\xe2\x96\x81", 1) + piece("ab", 1);
  Texts out;
  for (char type : {'\1', '\2'})
    out.push_back(pieces + field(2, std::string("\x18") + type + "\x20\x07") +
                  field(3, field(1, "identity")));
  const std::string bpe =
      R"j("model":{"type":"BPE","unk_token":"<s>","fuse_unk":true,)j"
      R"j("vocab":{"<s>":0,"a":1,"b":2," ":3,"ab":4,"1":5,"2":6,"<":7},"merges":[["a","b"]]}})j";
  const std::string added =
      R"j("added_tokens":[{"id":0,"content":"<s>","special":true,"lstrip":true,"normalized":false}],)j";
  out.push_back(R"j({"pre_tokenizer":{"type":"Sequence","pretokenizers":[{"type":"Split","pattern":)j"
                R"j({"Regex":"\\p{N}|\\s+(?!\\S)"},"behavior":"Isolated"},{"type":"ByteLevel",)j"
                R"j("add_prefix_space":false}]},"decoder":{"type":"ByteLevel"},)j" +
                added + bpe);
  out.push_back(R"j({"normalizer":{"type":"Sequence","normalizers":[{"type":"NFC"},{"type":"Prepend",)j"
                R"j("prepend":"b"},{"type":"Replace","pattern":{"String":" "},"content":"b"}]},)j"
                R"j("post_processor":{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"<s>"}},)j"
                R"j({"Sequence":{"id":"A"}}],"special_tokens":{"<s>":{"ids":[0]}}},)j" +
                added + bpe);
  out.push_back(R"j({"pre_tokenizer":{"type":"Metaspace","replacement":"_","prepend_scheme":"first"},)j"
                R"j("model":{"type":"Unigram","unk_id":0,"byte_fallback":true,)j"
                R"j("vocab":[["<u>",0],["a",-1.5],["_a",-2],["b",-1e1]]}})j");
  return out;
}

/// The first byte is the format: JSON, CSV, TSV.
Texts record_seeds() {
  const std::string turns = R"({"messages": [{"role": "system", "content": "Be brief."},
 {"role": "user", "content": "Hi \u00e4\ud83d\ude00"}, {"role": "assistant", "content": "Ho", "weight": 0}]})";
  std::string line = turns;
  std::erase(line, '\n');
  return {"\x03" + line + "\r\n\n" + line + "\n{\"text\": 1}\n{\"text\": \"a\"}",
          "\x06[" + turns + ",\n" + R"({"conversations": [{"from": "human", "value": "a"},)" +
              R"({"from": "gpt", "value": "b"}]}, {"text": "c, ] \" }"}])",
          "\x09"
          R"({"prompt": "a", "completion": "b"}
{"prompt": [{"role": "user", "content": [{"type": "text", "text": "a"}]}],)"
          R"( "completion": [{"role": "assistant", "content": "b"}]}
{"instruction": "a", "input": "", "output": "b"})",
          "\x01\xef\xbb\xbfinstruction,input,output\r\n\"a \"\"b\"\"\nc\",,d\r\n\ne,f,g\n",
          "\x02prompt\tcompletion\na\tb\n"};
}

Texts model_config_seeds() {
  return {
      R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64, "intermediate_size": 96,
 "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 256, "rms_norm_eps": 1e-05,
 "rope_theta": 10000.0, "rope_scaling": {"rope_type": "linear", "factor": 2.0}, "tie_word_embeddings": true})",
      R"({"model_type": "gpt2", "vocab_size": 50257, "n_embd": 768, "n_layer": 12, "n_head": 12})",
      R"({"model_type": "mixtral", "hidden_size": 64, "num_local_experts": 8, "num_experts_per_tok": 2,
 "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 256})",
      R"({"model_type": "deepseek_v3", "hidden_size": 64, "q_lora_rank": 8, "kv_lora_rank": 8, "vocab_size": 256,
 "num_hidden_layers": 3, "num_attention_heads": 4, "n_routed_experts": 8, "qk_nope_head_dim": 8, "v_head_dim": 8})",
      R"({"model_type": "qwen3_5_moe", "tie_word_embeddings": true, "vision_config": {"depth": 1}, "text_config":
 {"model_type": "qwen3_5_moe_text", "hidden_size": 64, "vocab_size": 256, "num_hidden_layers": 2, "num_attention_heads": 4,
 "num_experts": 4, "num_experts_per_tok": 2, "linear_num_value_heads": 32, "layer_types": ["linear_attention", "full_attention"]}})",
      R"({"model_type": "gemma4_text", "hidden_size": 64, "vocab_size": 256, "num_hidden_layers": 3, "num_attention_heads": 4,
 "intermediate_size": 96, "num_kv_shared_layers": 1, "use_double_wide_mlp": true, "attention_k_eq_v": true,
 "per_layer_config": {"2": {"head_dim": 16, "num_key_value_heads": 2}}, "hidden_size_per_layer_input": 8})",
      R"({"model_type": "nemotron_h", "hidden_size": 64, "vocab_size": 256, "num_attention_heads": 4, "intermediate_size": 96,
 "hybrid_override_pattern": "M-*E", "n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 8,
 "moe_latent_size": 16, "n_groups": 2})",
      R"({"model_type": "granitemoehybrid", "hidden_size": 64, "vocab_size": 256, "num_attention_heads": 4, "num_hidden_layers": 2,
 "num_local_experts": 0, "mamba_n_heads": 8, "layers_block_type": ["mamba", "attention"], "mamba_expand": 2})",
      R"({"model_type": "llama4_text", "hidden_size": 64, "vocab_size": 256, "num_attention_heads": 8, "num_hidden_layers": 4,
 "intermediate_size": 8, "num_local_experts": 4, "num_experts_per_tok": 1, "moe_layers": [1, 3], "no_rope_layers": [1, 0]})",
      R"({"model_type": "ernie4_5_moe", "hidden_size": 64, "vocab_size": 256, "num_attention_heads": 4, "num_hidden_layers": 4,
 "intermediate_size": 96, "moe_num_experts": 4, "moe_k": 2, "moe_layer_end_index": -1})"};
}

/// Words are in the order of the text and do not overlap; the job of the script is read or rejected.
void python_script(std::string_view input) {
  namespace py = framework_files::python;
  for (const char* name : {"t.py", "t.ipynb"}) {
    rejected_or([&] {
      const py::Source source = py::read_source(std::string(input), name);
      std::size_t end = 0;
      for (const py::Line& line : py::tokenize(source))
        for (const py::Token& token : line.tokens) {
          require(end <= token.begin && token.begin < token.end && token.end <= source.text.size(),
                  "words overlap");
          require(source.where(token.line, token.column).line > 0, "a word without a line");
          end = token.end;
        }
    });
    rejected_or([&] {
      framework_files::read_files(
          {folder().write(name, input).string()},
          {{"model.preset", "gpt2"}, {"data.seq_len", "8"}, {"train.micro_batch", "1"}});
    });
  }
}

Texts python_script_seeds() {
  return {
      R"~(from unsloth import FastLanguageModel
n = 2 * 1024
model, t = FastLanguageModel.from_pretrained(
  model_name = 'gpt2', max_seq_length = n, load_in_4bit = True)
model = FastLanguageModel.get_peft_model(model, r = 16, target_modules = ["q_proj", 'v_proj',])
trainer = SFTTrainer(model = model, args = SFTConfig(**{'bf16': is_bf16_supported()}))
)~",
      R"~(import argparse
p = argparse.ArgumentParser()
p.add_argument('--n', default=4_096)
args = p.parse_args()
def f(a: int, b=3, *c, **d):
	"""doc"""
	if a and not b: return a
	elif b in [1, 2]:
		x = a; y = b
	else:
		x += 1
	return x, y
x, _ = f(args.n, b=os.environ.get('B', '1'))
@dataclass
class C(object):
  r: int = field(default=8)
for i in range(3): print(f"{i!r:>{n}} {{}}")
model = AutoModelForCausalLM.from_pretrained('gpt2', quantization_config=BitsAndBytesConfig(load_in_4bit=True))
Trainer(model=get_peft_model(model, LoraConfig(r=C.r)), args=TrainingArguments('o', optim='sgd' if x else 'adafactor')))~",
      R"~({"cells": [{"cell_type": "code", "source": ["%pip install x\n", "a = 1\n", "!ls \\\n", "  -l\n"]},
 {"cell_type": "code", "source": "%%bash\n(("}, {"cell_type": "code",
 "source": "SFTTrainer('gpt2', SFTConfig(per_device_train_batch_size=a))"}], "nbformat": 4})~"};
}

Texts python_words() {
  return {"(",
          ")",
          "[",
          "]",
          "{",
          "}",
          "=",
          "==",
          ":",
          ",",
          ".",
          "**",
          "*",
          "\n",
          "\n  ",
          "\t",
          "'",
          "\"",
          "\"\"\"",
          "f'{",
          "r'",
          "\\",
          "\\\n",
          "#",
          ";",
          "if ",
          "elif ",
          "else:",
          "for ",
          " in ",
          "def f(",
          "class C:",
          "return ",
          "lambda x: ",
          "not ",
          " and ",
          "None",
          "True",
          "1e9",
          "0x",
          "9223372036854775807",
          "-",
          "//",
          "<<",
          "%",
          "!",
          "%%bash",
          "args.",
          "SFTTrainer(",
          "SFTConfig(",
          "LoraConfig(",
          "from_pretrained(",
          "FastModel.",
          "\xff",
          "\xef\xbb\xbf",
          "\"cells\": [",
          "\"cell_type\": \"code\"",
          "\"source\": \"",
          ":=",
          "with x as ",
          "try:",
          "except:"};
}

Texts adapter_config_seeds() {
  return {
      R"({"peft_type": "LORA", "r": 8, "lora_alpha": 16, "lora_dropout": 0.1, "bias": "none", "use_dora": false,
 "target_modules": ["q_proj", "down_proj"], "modules_to_save": ["embed_tokens"], "base_model_name_or_path": "x",
 "use_rslora": true, "rank_pattern": {}, "init_lora_weights": "gaussian"})",
      R"({"peft_type": "LORA", "r": 65536, "lora_alpha": 1e19, "target_modules": "all-linear"})",
      R"({"peft_type": "LORA", "r": 1, "lora_alpha": 1e308, "layers_to_transform": [1], "target_modules": []})"};
}

}  // namespace

const std::vector<FileTarget>& file_targets() {
  static const std::vector<FileTarget> all = [] {
    std::vector<FileTarget> list = {
        {{"safetensors", "a file of tensors", safetensors}, safetensors_seeds},
        {{"index", "model.safetensors.index.json", index},
         [] {
           return Texts{
               R"({"metadata": {"total_size": 8}, "weight_map": {"a": "m-1.safetensors", "b": "m-2.safetensors"}})"};
         }},
        {{"checkpoint_manifest", "manifest.json of a checkpoint", checkpoint_manifest},
         checkpoint_manifest_seeds},
        {{"token_file", "a .bin file of token ids", token_file}, token_file_seeds},
        {{"metrics", "metrics.jsonl of an interrupted run", metrics}, metrics_seeds},
        {{"tokenizer", "a SentencePiece model or a tokenizer.json", tokenizer}, tokenizer_seeds},
        {{"records", "a file of records: JSON Lines, a JSON array, CSV", record_file}, record_seeds},
        {{"model_config", "config.json of a model", model_config}, model_config_seeds},
    };
    for (const FileTarget& t : run_targets()) list.push_back(t);
    list.push_back({{"python_script", "a script or a notebook that --from reads", python_script},
                    python_script_seeds,
                    python_words});
    list.push_back({{"adapter_config", "adapter_config.json of PEFT", adapter_config}, adapter_config_seeds});
    return list;
  }();
  return all;
}

Texts file_words() {
  return {"{",
          "}",
          "[",
          "]",
          "\"",
          ":",
          ",",
          "null",
          "-1",
          "1e9",
          "\\u0000",
          "\\ud800",
          "\xff",
          "../",
          "/etc/x",
          "\"shape\":[",
          "\"F32\"",
          "\"I64\"",
          "\n",
          "9223372036854775807",
          "18446744073709551615",
          "\"weight_map\":",
          "\"dtype\":",
          "\"data_offsets\":[",
          "\"event\":\"step\"",
          "\"step\":4",
          "\"format\":",
          "\"files\":",
          "\"name\":",
          "\"messages\":[",
          "{\"role\":\"user\",\"content\":\"",
          "{\"role\":\"assistant\",\"content\":\"",
          "\"prompt\":",
          "\"completion\":",
          "\"text\":\"",
          "\r",
          "\"\"",
          "\xef\xbb\xbf"};
}

}  // namespace trainhost::fuzz
