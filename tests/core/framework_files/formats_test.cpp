// core/framework_files: YAML, JSON, TOML and shell scripts as entries; files that are none of these; damaged
// files.
#include <boost/test/unit_test.hpp>
#include <random>

#include "core/framework_files/arguments_read.hpp"
#include "core/framework_files/yaml_read.hpp"
#include "tests/core/framework_files/settings_of.hpp"

using namespace trainhost;
using namespace trainhost::framework_files;
using runfile::Entry;
using testing::error_of;
using testing::fixture;
using testing::Folder;
using testing::read_text;
using testing::settings;
using testing::value;

namespace {

/// "key=value@LINE:COLUMN;" for each entry, where the position is the value's.
std::string shown(const std::vector<Entry>& entries) {
  std::string out;
  for (const Entry& e : entries)
    out += fmt::format("{}={}@{}:{};", e.key, runfile::written(e.value), e.value.where.line,
                       e.value.where.column);
  return out;
}

std::string whole_text(const std::string& path) {
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), {}};
}

}  // namespace

BOOST_AUTO_TEST_SUITE(framework_files_formats)

BOOST_AUTO_TEST_CASE(yaml_and_json_become_dotted_keys_with_positions) {
  BOOST_TEST(shown(read_yaml("a:\n  b: 1\n  c: [x, 'no']\nd: no\ne: ~\nf: 2e-5\n", "f")) ==
             "a.b=1@2:6;a.c=[2 items]@3:6;d=false@4:4;e=null@5:4;f=2e-05@6:4;");
  BOOST_TEST(shown(read_yaml("{\"a\": {\"b\": true}, \"c\": \"auto\"}", "f")) ==
             "a.b=true@1:13;c=\"auto\"@1:25;");
  // A list of tables has the index in the key.
  BOOST_TEST(shown(read_yaml("d:\n  - path: x\n  - path: y\n", "f")) ==
             "d.0.path=\"x\"@2:11;d.1.path=\"y\"@3:11;");
}

BOOST_AUTO_TEST_CASE(a_script_without_a_trainer_is_refused_with_a_plan_instead) {
  const std::string script = "model = AutoModelForCausalLM.from_pretrained('meta-llama/Meta-Llama-3-8B')\n";
  const std::string message = error_of("train.py", "import deepspeed\ndeepspeed.initialize()\n" + script);
  BOOST_TEST(message.starts_with("train.py:1: this script makes no trainer"), message);
  BOOST_TEST(message.find("--model=meta-llama/Meta-Llama-3-8B --for=deepspeed ") != std::string::npos,
             message);
  BOOST_TEST(error_of("nb.ipynb", "{}").find("this notebook has no cell of code") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(a_shell_script_is_read_without_being_executed) {
  const std::string script =
      "#!/bin/bash\nTP=4   # ranks\nARGS=\"\n  --tensor-model-parallel-size $TP\n  --bf16\n\"\nARGS+=\" --lr "
      "1e-4\"\n"
      "rm -rf ${NOTHING:-/tmp/x} $(rm y)\ntorchrun --nnodes ${N:-2} pretrain.py $ARGS --seq-length=128 \\\n  "
      "--split 9 1\n";
  std::string keys;
  for (const Entry& e : read_arguments(script, "s")) keys += e.key + "=" + runfile::written(e.value) + ";";
  BOOST_TEST(keys ==
             "tensor-model-parallel-size=4;bf16=true;lr=0.0001;nnodes=2;seq-length=128;split=[2 items];");
}

BOOST_AUTO_TEST_CASE(a_script_computes_with_its_variables) {
  const auto keys = [](const std::string& script) {
    std::string out;
    for (const Entry& e : read_arguments(script, "s")) out += e.key + "=" + runfile::written(e.value) + ";";
    return out;
  };
  const std::string sizes = "export N=4 GPUS=8\nreadonly M=${M:-2}\ndeclare -i W=$(($N*$GPUS))\n";
  BOOST_TEST(
      keys(sizes + "ARGS=(\n --global-batch-size $((W * M))\n --x \"$((W / M - 1))\"\n)\nrun $ARGS\n") ==
      "global-batch-size=64;x=15;");
  BOOST_TEST(keys(sizes + "export ARGS=\"--a $(( (N + M) * 2 % 5 ))\"\nrun $ARGS --b ${K:-$((N*M))}\n") ==
             "a=2;b=8;");
  BOOST_TEST(keys("N=${A:-${B:-3}}\nN=$((N + 1))\nrun --a $N --b ${C:=${N}} --c ${D-7}\n") == "a=4;b=4;c=7;");
  BOOST_TEST(keys("run --a 1 $EXTRA --b $B --c \"$@\" --d 2 ${@:3}\n") == "a=1;b=\"$B\";c=true;d=2;");
  // What is not known stays one value, as it is written.
  BOOST_TEST(keys("run --a $((X * 2)) --b $(nproc --all) --c \"$(( 4 / 0 ))\" --d 1\n") ==
             "a=\"$((X * 2))\";b=\"$(nproc --all)\";c=\"$(( 4 / 0 ))\";d=1;");
  BOOST_TEST(keys("A=$((B)) B=$A\nrun --a $((A))\n") == "a=\"$((A))\";");
}

BOOST_AUTO_TEST_CASE(options_in_a_variable_are_read_once_where_they_are_assigned) {
  const std::string script =
      "MODEL=\" \\\n  --num-layers 2 \\\n  --swiglu \\\n\"\nALL=\"${MODEL} --bf16\"\n"
      "torchrun pretrain.py ${ALL} $MODEL\n";
  std::string keys;
  for (const Entry& e : read_arguments(script, "s")) keys += e.key + "=" + runfile::written(e.value) + ";";
  BOOST_TEST(keys == "num-layers=2;swiglu=true;bf16=true;");
}

BOOST_AUTO_TEST_CASE(branches_of_a_shell_script_are_read_where_their_condition_is_not_false) {
  const auto keys = [](const std::string& script) {
    std::string out;
    for (const Entry& e : read_arguments(script, "s")) out += e.key + "=" + runfile::written(e.value) + ";";
    return out;
  };
  const std::string fp8 =
      "FP8=${FP8:-0}\nif [ \"$FP8\" = \"1\" ]; then\n  ARGS=\"--fp8-format hybrid\"\nelse\n  "
      "ARGS=\"--bf16\"\nfi\n"
      "python a.py $ARGS --num-layers 2\n";
  BOOST_TEST(keys(fp8) == "bf16=true;num-layers=2;");
  BOOST_TEST(keys("FP8=1\n" + fp8) == "fp8-format=\"hybrid\";num-layers=2;");
  const std::string sizes =
      "if [[ $SIZE == 7 ]]; then\n  L=32\nelif [[ $SIZE == \"70\" && $TP -gt 1 ]]; then L=80; X=1\nelse\n  "
      "L=2\nfi\n"
      "ARGS=(\n --num-layers $L\n)\n";
  BOOST_TEST(keys("SIZE=7\n" + sizes) == "num-layers=32;");
  BOOST_TEST(keys("SIZE=70\nTP=8\n" + sizes) == "num-layers=80;");
  BOOST_TEST(keys("SIZE=70\nTP=1\n" + sizes) == "num-layers=2;");
  const std::string either =
      "A=${3:-MOCK}\nif [[ \"$A\" == \"MOCK\" ]] || [[ $B == 1 ]] || [[ -z \"$A\" ]]; then\n "
      "ARGS=\"--x\"\nelse\n "
      "ARGS=\"--y\"\nfi\n";
  BOOST_TEST(keys(either) == "x=true;");
  BOOST_TEST(keys("B=0\n" + std::string(either).replace(2, 9, "data")) == "y=true;");
  // A branch in a branch, and one that a line switches on.
  BOOST_TEST(keys("A=0\nif [ $A -eq 1 ]\nthen\n if [ $A -eq 0 ]; then\n B=--x\n fi\n C=--y\nfi\nrun --z\n") ==
             "z=true;");
  BOOST_TEST(keys("A=0\n[ $A -ne 0 ] && ARGS+=\" --x\"\n[[ -n $A ]] && ARGS+=\" --y\"\nrun $ARGS --z\n") ==
             "y=true;z=true;");
  // What only a run could tell: every branch is read, as without conditions.
  BOOST_TEST(keys("if [ -d \"$DATA\" ]; then\n  ARGS=\"--x\"\nfi\nrun $ARGS --z\n") == "x=true;z=true;");
  BOOST_TEST(keys("if [ \"$1\" = \"a\" ] || true; then\n  ARGS=\"--x\"\nfi\nrun --z\n") == "x=true;z=true;");
  // Words of other texts are no keywords.
  BOOST_TEST(keys("run --a if --b else fi then\n--c\n") == "a=\"if\";b=[3 items];c=true;");
  BOOST_TEST(keys("if [ 1 -eq 2 ]\nrun --a\n") == "a=true;");
}

BOOST_AUTO_TEST_CASE(empty_tables_are_keys_too) {
  BOOST_TEST(shown(read_yaml("a: {}\nb: {c: {}}\n", "f")) == "a=null@1:4;b.c=null@2:8;");
}

BOOST_AUTO_TEST_CASE(text_that_is_not_a_configuration_is_an_error_with_a_position) {
  BOOST_TEST(error_of("a.yaml", "a: [1\nb: 2\n").starts_with("a.yaml:2: this is neither YAML nor JSON: "));
  BOOST_CHECK_EXCEPTION(read_yaml("a: 1\na: 2\n", "f"), Error, [](const Error& e) {
    return std::string(e.what()) == "'a' is given twice, with two values" && e.where().line == 2;
  });
  BOOST_TEST(shown(read_yaml("a: 1\nb: 2\na: 1\n", "f")) == "a=1@1:4;b=2@2:4;");
  BOOST_TEST(error_of("a.yaml", "- 1\n- 2\n") ==
             "a.yaml:1: the file does not contain keys and values (expected YAML or JSON: key: value)");
  BOOST_TEST(error_of("a.yaml", "").starts_with("a.yaml:1: the file is empty (expected the configuration"));
  BOOST_TEST(error_of("a.json", "\n \n").starts_with("a.json:1: the file is empty"));
  BOOST_TEST(error_of("a.yaml", "---\n").starts_with("a.yaml:1: the file does not contain keys and values"));
  BOOST_TEST(error_of("a.toml", "x = = 1\n").starts_with("a.toml:1: "));
  BOOST_TEST(error_of("a.sh", "echo hello\n")
                 .starts_with("a.sh:1: no option of this script is one of a training run that --from knows"));
}

BOOST_AUTO_TEST_CASE(a_file_of_no_known_kind_is_an_error_that_lists_the_kinds) {
  BOOST_TEST(error_of("a.yaml", "colour: blue\n")
                 .starts_with("a.yaml:1: no key of this file tells which framework it is for (name it, for "
                              "example --from=deepspeed:"));
  BOOST_TEST(error_of("run.toml", "[train]\nsteps = 3\n")
                 .starts_with("run.toml:1: this looks like a run file of trainhost (give it without --from: "
                              "trainhost plan "));
  BOOST_CHECK_EXCEPTION(read_files({"deepsped:x.json"}, {}), Error, [](const Error& e) {
    return e.full().starts_with("--from: 'deepsped' is no kind of file; did you mean 'deepspeed'? (kinds: ");
  });
  BOOST_CHECK_EXCEPTION(read_files({"/nowhere/x.json"}, {}), Error, [](const Error& e) {
    return std::string(e.what()).find("/nowhere/x.json") != std::string::npos;
  });
}

BOOST_AUTO_TEST_CASE(the_kind_can_be_named) {
  const Folder folder;
  const std::string path = (folder.path() / "args").string();
  std::ofstream(path) << "batch_size: 4\n";
  // Keys of another kind are a mistake.
  const std::string other = (folder.path() / "ds.json").string();
  std::ofstream(other) << R"({"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": true}})";
  BOOST_CHECK_EXCEPTION(read_files({"torchtune:" + other}, {}), Error, [&](const Error& e) {
    return e.what() == std::string("this looks like a file of deepspeed, and has no key of torchtune") &&
           e.hint() == "give it as --from=deepspeed:" + other + ", or without a kind";
  });
  const auto s = read_files({"torchtune:" + path}, {{"model.preset", "llama-3-8b"}, {"data.seq_len", "128"}});
  BOOST_TEST(testing::by_key(s).at("train.micro_batch") == "4 @1");
}

BOOST_AUTO_TEST_CASE(training_arguments_are_recognized_only_where_no_other_kind_is) {
  const std::vector<runfile::Override> given = {{"model.preset", "gpt2"}, {"data.seq_len", "128"}};
  const auto framework = [&](const std::string& text) {
    return testing::by_key(testing::read_text("a.yaml", text, given)).at("plan.framework");
  };
  const std::string shared =
      "output_dir: x\nlearning_rate: 1e-4\nnum_train_epochs: 1\nbf16: true\n"
      "per_device_train_batch_size: 1\ngradient_accumulation_steps: 1\n";
  BOOST_TEST(framework(shared) == "transformers");
  BOOST_TEST(framework(shared + "finetuning_type: full\n") == "llama-factory");
  BOOST_TEST(framework("learning_rate: 1e-4\n") == "transformers");
  BOOST_TEST(framework(shared + "datasets:\n  - path: a/b\n") == "transformers");
  BOOST_TEST(framework("{\"gradient_accumulation_steps\": 2, \"train_micro_batch_size_per_gpu\": 1}") ==
             "deepspeed");
}

BOOST_AUTO_TEST_CASE(deep_nesting_and_aliases_are_bounded) {
  const std::string deep = "a: " + std::string(200, '{') + std::string(200, '}');
  BOOST_CHECK_THROW(read_yaml(deep, "f"), Error);
  std::string bomb = "a0: &a0 {x: 1, y: 1}\n";
  for (int i = 1; i < 24; ++i) bomb += fmt::format("a{0}: &a{0} {{x: *a{1}, y: *a{1}}}\n", i, i - 1);
  BOOST_CHECK_THROW(read_yaml(bomb, "f"), Error);
}

BOOST_AUTO_TEST_CASE(damaged_files_give_an_error_or_settings_and_nothing_else) {
  std::mt19937 random(7);
  const Folder folder;
  for (const char* name :
       {"training_arguments.json", "deepspeed.json", "accelerate.yaml", "axolotl.yaml", "llama_factory.yaml",
        "llama_factory_v1.yaml", "torchtune.yaml", "litgpt.yaml", "torchtitan.toml", "megatron.sh"}) {
    const std::string whole = whole_text(fixture(name));
    BOOST_REQUIRE(!whole.empty());
    for (int i = 0; i < 150; ++i) {
      std::string text = whole;
      for (unsigned n = 1 + random() % 4; n-- > 0;) {
        const std::size_t at = random() % text.size();
        switch (random() % 3) {
          case 0:
            text[at] = static_cast<char>(random() % 256);
            break;
          case 1:
            text.erase(at, 1 + random() % 20);
            break;
          default:
            text.insert(at, 1, "{}[]:,\"'&*#-$\n\\"[random() % 15]);
        }
        if (text.empty()) break;
      }
      const std::string path = (folder.path() / name).string();
      std::ofstream(path, std::ios::trunc) << text;
      try {
        read_files({path}, {{"model.preset", "llama-3-8b"}, {"data.seq_len", "128"}, {"parallel.data", "4"}});
      } catch (const Error&) {
      }
    }
  }
}

// PyTorch reads it in every run, whichever framework starts it.
BOOST_AUTO_TEST_CASE(settings_of_the_allocator_are_read_from_the_environment) {
  const std::vector<runfile::Override> given = {
      {"model.preset", "gpt2"}, {"data.seq_len", "64"}, {"parallel.data", "1"}};
  const std::string trainer = "python train.py --per_device_train_batch_size 1 --num_train_epochs 1\n",
                    swift = "swift sft --model Qwen/Qwen2.5-0.5B --per_device_train_batch_size 1\n";
  for (const std::string& script :
       {"export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True\n" + trainer,
        "PYTORCH_ALLOC_CONF=\"expandable_segments:True\" " + trainer,
        "PYTORCH_CUDA_ALLOC_CONF='expandable_segments:True' \\\nNPROC_PER_NODE=2 \\\n" + swift})
    BOOST_TEST(value(settings("t.sh", script, given), "plan.allocator") == "expandable_segments:True",
               script);
  BOOST_TEST(value(settings("t.sh", "PYTORCH_CUDA_ALLOC_CONF='' " + trainer, given), "plan.allocator") == "");
  BOOST_TEST(value(settings("t.sh", trainer, given), "plan.allocator") == "");
  const auto unknown = read_text("t.sh", "PYTORCH_CUDA_ALLOC_CONF=$CONF " + trainer, given);
  BOOST_TEST(value(testing::by_key(unknown), "plan.allocator") == "");
  BOOST_TEST(std::ranges::any_of(unknown.keys, [](const runfile::FileKey& k) {
    return k.key == "PYTORCH_CUDA_ALLOC_CONF" && k.use == runfile::KeyUse::kNotModelled;
  }));
  const std::string yaml =
      "model: Qwen/Qwen2.5-0.5B\ntuner_type: full\nENV:\n  PYTORCH_CUDA_ALLOC_CONF: "
      "max_split_size_mb:64\n";
  BOOST_TEST(value(settings("t.yaml", yaml, given), "plan.allocator") == "max_split_size_mb:64");
}

// axolotl and the launcher of LLaMA-Factory set the allocator themselves; --for names of theirs do so without
// a key.
BOOST_AUTO_TEST_CASE(frameworks_that_set_the_allocator_do_so_under_deepspeed_too) {
  const testing::Folder folder;
  const auto write = [&](const char* name, const std::string& text) {
    std::ofstream(folder.path() / name) << text;
    return (folder.path() / name).string();
  };
  write("ds.json", R"({"zero_optimization": {"stage": 2}})");
  const std::string axolotl = write("a.yml",
                                    "base_model: gpt2\nmicro_batch_size: 1\nadapter: lora\nlora_r: 8\n"
                                    "lora_mlp_kernel: true\ndeepspeed: ds.json\n"),
                    factory = write("f.yaml",
                                    "model_name_or_path: gpt2\nfinetuning_type: full\nbf16: true\n"
                                    "deepspeed: ds.json\n");
  const auto of = [&](const std::string& file, const char* ranks) {
    return framework_files::read_files({file}, {{"parallel.data", ranks}});
  };
  BOOST_TEST(value(testing::by_key(of(axolotl, "2")), "plan.allocator") == "expandable_segments:True");
  BOOST_TEST(value(testing::by_key(of(factory, "2")), "plan.allocator") == "expandable_segments:True");
  BOOST_TEST(value(testing::by_key(of(factory, "1")), "plan.allocator") == "");
  // Its kernels for adapters were not compared there.
  BOOST_TEST(value(testing::by_key(of(axolotl, "2")), "plan.adapter_kernels") == "");
  const auto keys = of(axolotl, "2").keys;
  BOOST_TEST(std::ranges::any_of(keys, [](const runfile::FileKey& k) {
    return k.key == "lora_mlp_kernel" && k.use == runfile::KeyUse::kNotModelled;
  }));
}

BOOST_AUTO_TEST_CASE(a_second_value_is_an_error_only_where_the_plan_needs_the_key) {
  const std::vector<runfile::Override> given = {{"model.preset", "gpt2"}, {"data.seq_len", "64"}};
  const std::string text = "per_device_train_batch_size: 1\nbf16: true\nsave_steps: 10\nsave_steps: 20\n";
  BOOST_TEST(error_of("t.yaml", text, given) == "");
  BOOST_TEST(error_of("t.yaml", text + "bf16: false\n", given) ==
             "t.yaml:5: 'bf16' is given twice, with two values (remove one of the two)");
  BOOST_TEST(error_of("t.yaml", text + "bf16: true\n", given) == "");
}

BOOST_AUTO_TEST_SUITE_END()
