// core/framework_files: scripts and notebooks in Python as settings of a run file. The fixtures resemble the
// notebooks of Unsloth and the scripts of PEFT and TRL.
#include <boost/test/unit_test.hpp>

#include "tests/core/framework_files/settings_of.hpp"

using namespace trainhost;
using framework_files::read_files;
using runfile::KeyUse;
using testing::by_key;
using testing::error_of;
using testing::fate;
using testing::fixture;
using testing::read_text;
using testing::settings;
using testing::Settings;
using testing::value;

namespace {

std::string values_of(const Settings& s) {
  std::string out;
  for (const auto& [key, v] : s) out += key + " = " + v.substr(0, v.find(" @")) + "\n";
  return out;
}

/// A script of TRL with these keywords of SFTConfig, and statements before it.
std::string sft(const std::string& keywords, const std::string& before = "") {
  return before +
         "\ntrainer = SFTTrainer(model='Qwen/Qwen2.5-7B', args=SFTConfig(output_dir='x', max_length=512, " +
         keywords + "))\n";
}

/// A script of Unsloth with these keywords of from_pretrained() and get_peft_model().
std::string unsloth(const std::string& load, const std::string& adapters, const std::string& trainer = "") {
  std::string out =
      "model, tokenizer = FastLanguageModel.from_pretrained('unsloth/Llama-3.2-1B-Instruct', " + load + ")\n";
  if (adapters != "none") out += "model = FastLanguageModel.get_peft_model(model, " + adapters + ")\n";
  return out +
         "trainer = SFTTrainer(model=model, tokenizer=tokenizer, "
         "args=TrainingArguments(per_device_train_batch_size=2, " +
         trainer + "))\n";
}

/// Everything is given on the command line or in YAML.
constexpr const char* kScriptOfTrl =
    R"(from trl import ModelConfig, ScriptArguments, SFTConfig, SFTTrainer, TrlParser


def main(script_args, training_args, model_args):
    training_args.model_init_kwargs = dict(revision=model_args.model_revision, dtype=model_args.dtype)
    dataset = load_dataset(script_args.dataset_name)
    trainer = SFTTrainer(
        model=model_args.model_name_or_path,
        args=training_args,
        train_dataset=dataset[script_args.dataset_train_split],
        quantization_config=get_quantization_config(model_args),
        peft_config=get_peft_config(model_args),
    )
    trainer.train()


if __name__ == "__main__":
    parser = TrlParser((ScriptArguments, SFTConfig, ModelConfig))
    main(*parser.parse_args_and_config())
)";

std::string micro_batch(const std::string& expression, const std::string& before = "") {
  return value(settings("t.py", sft("per_device_train_batch_size=" + expression, before)),
               "train.micro_batch");
}

std::string script_error(const std::string& text) { return error_of("t.py", text); }

}  // namespace

BOOST_AUTO_TEST_SUITE(python_scripts)

BOOST_AUTO_TEST_CASE(a_notebook_of_unsloth_is_a_plan_of_unsloth) {
  const auto s = read_files({fixture("unsloth_conversations.ipynb")}, {});
  BOOST_TEST(values_of(by_key(s)) ==
             values_of({{"plan.framework", "unsloth"},
                        {"model.preset", "llama-3.2-3b"},
                        {"data.seq_len", "2048"},
                        {"train.micro_batch", "2"},
                        {"train.grad_accum", "4"},
                        {"optimizer.name", "adamw-8bit"},
                        {"lora.rank", "16"},
                        {"lora.alpha", "16"},
                        {"lora.dropout", "0"},
                        {"lora.targets",
                         R"(["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"])"},
                        {"lora.base", "nf4"},
                        {"lora.double_quant", "true"}}));
  for (const runfile::FileKey& k : s.keys) {
    BOOST_TEST((k.use != KeyUse::kNotUnderstood), k.key);
    if (k.key == "optim")
      BOOST_TEST(k.where.file.ends_with("unsloth_conversations.ipynb:cell 5"), k.where.file);
    if (k.key == "optim") BOOST_TEST(k.where.line == 18u);
  }
}

BOOST_AUTO_TEST_CASE(a_script_of_peft_is_the_job_of_its_calls) {
  const auto s = read_files({fixture("peft_qlora.py")}, {});
  BOOST_TEST(values_of(by_key(s)) == values_of({{"plan.framework", "transformers"},
                                                {"model.preset", "llama-7b"},
                                                {"data.seq_len", "512"},
                                                {"train.precision", "bf16"},
                                                {"train.micro_batch", "4"},
                                                {"train.grad_accum", "4"},
                                                {"train.recompute", "full"},
                                                {"optimizer.name", "adamw-8bit"},
                                                {"plan.allocator", "expandable_segments:True"},
                                                {"plan.checkpoint_reentrant", "false"},
                                                {"plan.cross_entropy", "plain"},
                                                {"plan.optimizer_paged", "true"},
                                                {"lora.rank", "16"},
                                                {"lora.alpha", "32"},
                                                {"lora.dropout", "0.05"},
                                                {"lora.targets", R"(["q_proj", "v_proj"])"},
                                                {"lora.base", "nf4"},
                                                {"lora.double_quant", "true"}}));
  // Values that only the command line of the script could change are listed.
  std::string assumed;
  for (const runfile::FileKey& k : s.keys)
    if (k.use == KeyUse::kUsed && !k.note.empty()) assumed += k.key + " = " + k.value + "\n";
  BOOST_TEST(assumed ==
             "--base-model = \"huggyllama/llama-7b\"\nbatch_size = 4\n--cutoff_len = 512\nmax_length = "
             "512\nquantize = True\n");
}

BOOST_AUTO_TEST_CASE(a_script_that_reads_yaml_needs_it) {
  const testing::Folder folder;
  const std::string script = (folder.path() / "sft.py").string(),
                    yaml = (folder.path() / "sft.yaml").string();
  std::ofstream(script) << kScriptOfTrl;
  BOOST_CHECK_EXCEPTION(read_files({script}, {}), Error, [](const Error& e) {
    return std::string(e.what()) ==
               "training_args: the script does not say what the arguments of the trainer are" &&
           e.where().line == 9 && e.hint().find("--from") != std::string::npos;
  });
  std::ofstream(yaml)
      << "model_name_or_path: Qwen/Qwen2.5-7B\nmax_length: 512\nper_device_train_batch_size: 1\nuse_peft: "
         "true\nlora_r: 8\nload_in_4bit: true\ndtype: bfloat16\n";
  BOOST_TEST(values_of(by_key(read_files({script, yaml}, {}))) == values_of(by_key(read_files({yaml}, {}))));
  BOOST_TEST(values_of(by_key(read_files({yaml, script}, {}))) == values_of(by_key(read_files({yaml}, {}))));
}

// Calls of TRL and the YAML of its own script.
BOOST_AUTO_TEST_CASE(a_script_and_yaml_with_the_same_settings_are_one_plan) {
  const std::string
      call = sft("per_device_train_batch_size=2, gradient_accumulation_steps=4, optim='adamw_torch_fused'"),
      yaml =
          "model_name_or_path: Qwen/Qwen2.5-7B\noutput_dir: x\nmax_length: 512\nper_device_train_batch_size: "
          "2\n"
          "gradient_accumulation_steps: 4\noptim: adamw_torch_fused\n";
  BOOST_TEST(values_of(settings("t.py", call)) == values_of(settings("t.yaml", yaml)));
  const std::string
      plain =
          "model = AutoModelForCausalLM.from_pretrained('Qwen/Qwen2.5-7B')\n"
          "Trainer(model, TrainingArguments('x', bf16=True, gradient_checkpointing=True, "
          "gradient_checkpointing_kwargs={'use_reentrant': False}, per_device_train_batch_size=3))\n",
      json = R"({"model_name_or_path": "Qwen/Qwen2.5-7B", "output_dir": "x", "bf16": true,
 "gradient_checkpointing": true, "gradient_checkpointing_kwargs": {"use_reentrant": false}, "per_device_train_batch_size": 3})";
  const std::vector<runfile::Override> length{{"data.seq_len", "512"}};
  BOOST_TEST(values_of(settings("t.py", plain, length)) == values_of(settings("t.json", json, length)));
}

BOOST_AUTO_TEST_CASE(adapters_of_sft_are_those_of_adapter_config) {
  const Settings s = settings("t.py", sft("bf16=True", "") + "model = 1\n");
  BOOST_TEST(s.count("lora.rank") == 0u);
  const std::string call =
      "config = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_storage=torch.bfloat16)\n"
      "model = AutoModelForCausalLM.from_pretrained('Qwen/Qwen2.5-7B', quantization_config=config, "
      "dtype='bfloat16')\n"
      "peft_config = LoraConfig(r=8, lora_alpha=16, target_modules='all-linear')\n"
      "trainer = SFTTrainer(model=model, args=SFTConfig(max_length=512), peft_config=peft_config)\n";
  const Settings q = settings("t.py", call);
  BOOST_TEST(value(q, "lora.rank") == "8");
  BOOST_TEST(value(q, "lora.targets") == "all-linear");
  BOOST_TEST(value(q, "lora.base") == "nf4");
  BOOST_TEST(value(q, "plan.quant_storage") == "compute");
  // SFTTrainer casts the adapters, and keeps the type of what is not quantized.
  BOOST_TEST(value(q, "plan.gradients") == "bf16");
  BOOST_TEST(value(q, "plan.master") == "none");
  BOOST_TEST(value(q, "train.recompute") == "full");
  // prepare_model_for_kbit_training() casts it to f32.
  const std::string prepared = "model = prepare_model_for_kbit_training(model)\n";
  std::string with = call;
  with.insert(call.find("peft_config"), prepared);
  BOOST_TEST(value(settings("t.py", with), "plan.master") == "");
  BOOST_TEST(
      script_error("model = AutoModelForCausalLM.from_pretrained('Qwen/Qwen2.5-7B', load_in_4bit=True)\n"
                   "SFTTrainer(model=model, args=SFTConfig(max_length=64))\n")
          .find("no adapters are trained") != std::string::npos);
  BOOST_TEST(script_error("model = AutoModelForCausalLM.from_pretrained('gpt2')\nSFTTrainer(model=model, "
                          "peft_config=IA3Config())\n")
                 .find("IA3Config = \"IA3Config\": expected LORA") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(the_model_of_the_trainer_is_planned_and_no_other) {
  const std::string s =
      "name = 'Qwen/Qwen2.5-7B'\nmodel = AutoModelForCausalLM.from_pretrained(name, "
      "torch_dtype=torch.bfloat16)\n"
      "model = torch.compile(model)\nmodel = model.to('cuda')\nmodel, tokenizer = setup_chat_format(model, "
      "tokenizer)\n"
      "trainer = SFTTrainer(model=model, args=TrainingArguments('x', bf16=True), max_seq_length=256)\n"
      "name = 'out'\nmodel = AutoModelForCausalLM.from_pretrained(name)\n";
  BOOST_TEST(value(settings("t.py", s), "model.preset") == "qwen2.5-7b");
  BOOST_TEST((fate("t.py", s, "compile").first == KeyUse::kNotModelled));
  BOOST_TEST(
      value(
          settings(
              "t.py",
              "def load(which):\n  model = AutoModelForCausalLM.from_pretrained(which)\n  return model, 1\n"
              "model, _ = load('Qwen/Qwen2.5-7B')\nSFTTrainer(model=model, args=SFTConfig(max_length=64))\n"),
          "model.preset") == "qwen2.5-7b");
  BOOST_TEST(script_error("SFTTrainer(model=build(), args=SFTConfig())\n")
                 .find("model = `build()` (made by build())") != std::string::npos);
  BOOST_TEST(
      script_error("SFTTrainer(model=os.environ['MODEL'], args=SFTConfig())\n")
          .find(
              "model = `os.environ['MODEL']`: the file does not say what this is (give it: --model=MODEL)") !=
      std::string::npos);
  BOOST_TEST(
      value(settings("t.py",
                     "c = AutoConfig.from_pretrained('gpt2')\nm = AutoModelForCausalLM.from_config(c)\n"
                     "Trainer(model=m, args=TrainingArguments('x'))\n",
                     {{"data.seq_len", "64"}}),
            "model.preset") == "gpt2");
}

BOOST_AUTO_TEST_CASE(constants_are_computed) {
  for (const auto& [expression, result] :
       std::initializer_list<std::pair<const char*, const char*>>{{"4", "4"},
                                                                  {"2 * 8", "16"},
                                                                  {"4_096 // 1024", "4"},
                                                                  {"(1 << 3)", "8"},
                                                                  {"0x10", "16"},
                                                                  {"2**3 - 1", "7"},
                                                                  {"-(-2)", "2"},
                                                                  {"-7 % 4", "1"},
                                                                  {"5 % 9223372036854775807", "5"},
                                                                  {"int('3')", "3"},
                                                                  {"8 if True else 1", "8"},
                                                                  {"None or 5", "5"},
                                                                  {"[1, 2, 6][-1]", "6"},
                                                                  {"{'a': 9}['a']", "9"},
                                                                  {"int(os.environ.get('N', '7'))", "7"}})
    BOOST_TEST(micro_batch(expression) == result, expression);
  BOOST_TEST(micro_batch("n", "n = 2\nn += 1\n") == "3");
  BOOST_TEST(micro_batch("n", "match = 2\nn = match\n") == "2");
  BOOST_TEST(micro_batch("2", "t = 'a\\\r\nb'\r\n") == "2");
  BOOST_TEST(micro_batch("b", "a, b = 1, 6\n") == "6");
  BOOST_TEST(micro_batch("c.n", "class c:\n  n: int = 5\n") == "5");
  BOOST_TEST(micro_batch("c['n']", "c = dict(n=1)\nc['n'] = 4\n") == "4");
  BOOST_TEST(micro_batch("n", "try:\n  n = 2\nexcept ImportError:\n  n = 3\n") == "2");
  BOOST_TEST(
      micro_batch("n", "if False: n = 9\nn = 2\nif __name__ == '__main__':\n  n = 3\nelse:\n  n = 4\n") ==
      "3");
  BOOST_TEST(micro_batch("f()", "def f():\n  return 3\n") == "3");
  // Of a type that has a name in torch.
  BOOST_TEST(
      value(settings("t.py", sft("optim='adafactor', **more", "more = {'bf16': False, 'fp16': True}\n")),
            "train.precision") == "fp16");
}

BOOST_AUTO_TEST_CASE(what_only_running_tells_is_asked_for) {
  const std::string head = "t.py:";
  const auto asks = [&](const std::string& expression, const std::string& before, const std::string& why) {
    const std::string message = script_error(sft("per_device_train_batch_size=" + expression, before));
    BOOST_TEST(
        message.find("per_device_train_batch_size = `" + expression + "`" + why +
                     ": the file does not say what this is (give it: --set train.micro_batch=VALUE)") !=
            std::string::npos,
        message);
  };
  asks("size()", "", "");
  asks("n", "if torch.cuda.is_available():\n  n = 1\n", " (line 2 assigns it under a condition)");
  asks("n", "for n in range(3):\n  pass\n", " (line 1 assigns it in a loop or `with`)");
  asks("args.n", "parser.add_argument('--n', required=True)\n", " (the option --n)");
  asks("l[0]", "l = [1]\nl.append(2)\n", " (line 2 changes it)");
  asks("2 ** 500", "", "");
  asks("1 // 0", "", "");
  asks("n", "n = 1\nfor i in range(3): n *= 2\n", " (line 2 assigns it in a loop or `with`)");
  asks("n", "n = 1\nwhile n < 9:\n  n += 1\n", " (line 3 assigns it in a loop or `with`)");
  asks("n", "match x:\n  case 1:\n    n = 1\n  case _:\n    n = 2\n",
       " (line 5 assigns it under a condition)");
  // A function reads the value at the time of its call.
  const std::string two =
      "n = 1\nn = 2\ndef f():\n  return SFTTrainer(model='gpt2', "
      "args=SFTConfig(per_device_train_batch_size=n))\nf()\n";
  BOOST_TEST(script_error(two).find("`n` (assigned in line 1 and line 2)") != std::string::npos,
             script_error(two));
  // Values without effect on memory need not be known.
  BOOST_TEST(micro_batch("1, learning_rate=f(x), save_steps=args.s") == "1");
  // With the option, the plan is made.
  BOOST_TEST(value(settings("t.py", sft("per_device_train_batch_size=size()"), {{"train.micro_batch", "3"}}),
                   "data.seq_len") == "512");
}

BOOST_AUTO_TEST_CASE(unsloth_has_defaults_of_its_own) {
  const Settings s = settings("t.py", unsloth("", "r=8"));
  BOOST_TEST(value(s, "lora.base") == "nf4");
  BOOST_TEST(value(s, "lora.targets") == "all-linear");
  BOOST_TEST(value(s, "data.seq_len") == "2048");
  BOOST_TEST(value(s, "train.precision") == "");
  BOOST_TEST(value(settings("t.py", unsloth("load_in_4bit=False", "r=8")), "lora.base") == "");
  BOOST_TEST(value(settings("t.py", unsloth("load_in_8bit=True, load_in_4bit=False", "r=8")), "lora.base") ==
             "int8");
  BOOST_TEST(value(settings("t.py", unsloth("dtype=torch.float16", "r=8")), "train.precision") == "fp16");
  BOOST_TEST(value(settings("t.py", unsloth("max_seq_length=4096", "r=8")), "data.seq_len") == "4096");
  BOOST_TEST(value(settings("t.py", unsloth("max_seq_length=512", "use_gradient_checkpointing=False")),
                   "train.recompute") == "none");
  const Settings own = settings("t.py", unsloth("", "use_gradient_checkpointing=True"));
  BOOST_TEST(value(own, "train.recompute") == "full");
  BOOST_TEST(value(own, "plan.offload_activations") == "none");
  BOOST_TEST(value(settings("t.py", unsloth("", "target_modules=['q_proj', 'embed_tokens', 'lm_head']")),
                   "lora.modules_to_save") == R"(["embed_tokens", "lm_head"])");
  BOOST_TEST(value(settings("t.py", unsloth("", "finetune_mlp_modules=False")), "lora.targets") ==
             R"(["q_proj", "k_proj", "v_proj", "o_proj"])");
  const Settings full = settings("t.py", unsloth("full_finetuning=True", "none"));
  BOOST_TEST(full.count("lora.rank") == 0u);
  BOOST_TEST(value(full, "train.precision") == "bf16");
  const std::string none = script_error(unsloth("", "none"));
  BOOST_TEST(none.starts_with("t.py:1: the script loads the weights in 4 or 8 bits"), none);
  BOOST_TEST(none.find("full_finetuning = True") != std::string::npos);
  // Configurations of TRL have other defaults under Unsloth.
  const Settings trl =
      settings("t.py",
               "model, t = FastModel.from_pretrained(model_name='unsloth/gemma-3-270m-it')\n"
               "model = FastModel.get_peft_model(model)\nSFTTrainer(model=model, args=SFTConfig())\n");
  BOOST_TEST(value(trl, "train.micro_batch") == "4");
  BOOST_TEST(value(trl, "train.grad_accum") == "2");
  BOOST_TEST(value(trl, "optimizer.name") == "adamw-8bit");
  BOOST_TEST(
      (fate("t.py", unsloth("fast_inference=True", "r=8"), "fast_inference").first == KeyUse::kNotModelled));
}

BOOST_AUTO_TEST_CASE(other_training_methods_answer_as_yaml_does) {
  const std::string load = "model = AutoModelForCausalLM.from_pretrained('Qwen/Qwen2.5-7B')\n";
  const Settings dpo = settings(
      "t.py", load + "DPOTrainer(model=model, ref_model=None, args=DPOConfig(beta=0.1, max_length=512))\n");
  BOOST_TEST(value(dpo, "plan.method") == "dpo");
  const std::string grpo = load +
                           "GRPOTrainer(model=model, args=GRPOConfig(beta=0.04, max_prompt_length=256, "
                           "max_completion_length=200), reward_funcs=[f])\n";
  BOOST_TEST(value(settings("t.py", grpo), "plan.method") == "");
  BOOST_TEST(value(settings("t.py", grpo), "data.seq_len") == "456");
  BOOST_TEST((fate("t.py", grpo, "GRPOTrainer").first == KeyUse::kNotModelled));
  BOOST_TEST(script_error(load + "KTOTrainer(model=model, args=KTOConfig(max_length=64))\n") == "");
  const std::string two =
      load + "a = SFTTrainer(model=model, args=SFTConfig())\nDPOTrainer(model=model, args=DPOConfig())\n";
  BOOST_TEST(fate("t.py", two, "SFTTrainer").second ==
             "another trainer of the script; planned is that of line 3");
}

BOOST_AUTO_TEST_CASE(pairs_under_unsloth_are_those_of_trl) {
  const std::string model =
      "model, t = FastLanguageModel.from_pretrained('unsloth/Llama-3.2-1B-Instruct', max_seq_length=4096)\n"
      "model = FastLanguageModel.get_peft_model(model, r=8)\n";
  const std::string dpo =
      model + "DPOTrainer(model=model, ref_model=None, beta=0.1, max_length=1024, args=DPOConfig())\n";
  const Settings s = settings("t.py", dpo);
  BOOST_TEST(value(s, "plan.framework") == "transformers");
  BOOST_TEST(value(s, "plan.method") == "dpo");
  BOOST_TEST(value(s, "plan.reference_model") == "");
  BOOST_TEST(value(s, "plan.cross_entropy") == "plain");
  BOOST_TEST(value(s, "data.seq_len") == "1024");
  BOOST_TEST(value(s, "lora.base") == "nf4");
  BOOST_TEST(value(s, "train.recompute") == "full");
  BOOST_TEST(value(s, "plan.offload_activations") == "");
  BOOST_TEST((fate("t.py", dpo, "DPOTrainer").first == KeyUse::kNotModelled));
  const Settings orpo =
      settings("t.py", model + "ORPOTrainer(model=model, args=ORPOConfig(max_length=512))\n");
  BOOST_TEST(value(orpo, "plan.method") == "dpo");
  BOOST_TEST(value(orpo, "plan.reference_model") == "false");
  const std::string kto = model + "KTOTrainer(model=model, args=KTOConfig())\n";
  BOOST_TEST(value(settings("t.py", kto), "plan.framework") == "unsloth");
  BOOST_TEST(fate("t.py", kto, "KTOTrainer").second ==
             "another training method; planned is one training step of SFT");
}

BOOST_AUTO_TEST_CASE(pinned_releases_are_planned) {
  const std::string script = sft("per_device_train_batch_size=2");
  const auto with = [&](const std::string& dependencies) {
    return "# /// script\n# dependencies = [\n" + dependencies + "# ]\n# ///\n" + script;
  };
  const Settings newest = settings("t.py", script);
  BOOST_TEST(value(newest, "plan.framework_version") == "");
  BOOST_TEST(value(newest, "plan.cross_entropy") == "fused");
  BOOST_TEST(value(newest, "train.recompute") == "full");
  const std::string old = with("#   \"transformers==4.46.3\",\n#   'trl[peft] == 0.12.0',\n");
  const Settings s = settings("t.py", old);
  BOOST_TEST(value(s, "plan.framework_version") == "4.46.3");
  BOOST_TEST(value(s, "plan.cross_entropy") == "plain");
  BOOST_TEST(value(s, "train.recompute") == "none");
  BOOST_TEST(value(s, "train.precision") == "fp32");
  BOOST_TEST((fate("t.py", old, "trl").first == KeyUse::kUsed));
  // The defaults of each release of TRL.
  BOOST_TEST(value(settings("t.py", with("# 'trl==0.19.1'\n")), "train.precision") == "bf16");
  BOOST_TEST(value(settings("t.py", with("# 'trl==0.19.1'\n")), "train.recompute") == "none");
  BOOST_TEST(value(settings("t.py", with("# 'trl==0.22'\n")), "train.recompute") == "full");
  BOOST_TEST(value(settings("t.py", with("# 'trl==1.6.0'\n")), "plan.cross_entropy") == "plain");
  BOOST_TEST((fate("t.py", with("# 'trl==1.7.0'\n"), "trl").first == KeyUse::kNotModelled));
  BOOST_TEST(value(settings("t.py", with("# 'trl==1.15.0'\n")), "plan.cross_entropy") == "fused");
  // Options win; other comments and requirements without a release say nothing.
  BOOST_TEST(value(settings("t.py", old, {{"plan.framework_version", "5"}}), "plan.framework_version") == "");
  BOOST_TEST(value(settings("t.py", "# trl==0.12.0\n" + script), "plan.cross_entropy") == "fused");
  BOOST_TEST(value(settings("t.py", with("# 'trl>=0.12.0'\n")), "plan.cross_entropy") == "fused");
  // A notebook: the last of several commands counts, as pip has it.
  const std::string cells =
      R"nb({"cells": [{"cell_type": "code", "source": ["!pip install -q trl==1.15.0\n",)nb"
      R"nb("%pip install trl==0.9.6 \\\n", "  transformers==4.44.*\n"]}, {"cell_type": "code", "source":)nb"
      R"nb("SFTTrainer(model='Qwen/Qwen2.5-7B', args=SFTConfig(max_seq_length=512))"}]})nb";
  const Settings notebook = settings("t.ipynb", cells);
  BOOST_TEST(value(notebook, "plan.framework_version") == "4.44");
  BOOST_TEST(value(notebook, "plan.cross_entropy") == "plain");
  // Unsloth has releases of its own.
  const std::string own = with("# 'transformers==4.46.3'\n") + unsloth("", "r=8");
  BOOST_TEST(value(settings("t.py", own), "plan.framework_version") == "");
}

BOOST_AUTO_TEST_CASE(loops_with_accelerate_are_read) {
  const std::string loop =
      "accelerator = Accelerator(mixed_precision='bf16', gradient_accumulation_steps=4)\n"
      "model = AutoModelForCausalLM.from_pretrained('gpt2')\nloader = DataLoader(data, shuffle=True, "
      "batch_size=8)\n"
      "optimizer = torch.optim.AdamW(model.parameters(), lr=3e-5)\nfor b in loader:\n  "
      "accelerator.backward(model(**b).loss)\n";
  const Settings s = settings("t.py", loop, {{"data.seq_len", "128"}});
  BOOST_TEST(value(s, "train.micro_batch") == "8");
  BOOST_TEST(value(s, "train.grad_accum") == "4");
  BOOST_TEST(value(s, "train.precision") == "bf16");
}

BOOST_AUTO_TEST_CASE(keywords_that_are_not_known_are_listed) {
  const std::string s = sft("per_device_train_batch_sise=2");
  BOOST_TEST((fate("t.py", s, "per_device_train_batch_sise") ==
              std::pair{KeyUse::kNotUnderstood, std::string("did you mean per_device_train_batch_size?")}));
  BOOST_TEST((fate("t.py",
                   "model, t = FastLanguageModel.from_pretrained('gpt2', max_seq_lenght=5)\n"
                   "m = FastLanguageModel.get_peft_model(model)\n",
                   "max_seq_lenght")
                  .second == "did you mean max_seq_length?"));
  const auto keys = read_text("t.py", sft("**more(1)")).keys;
  BOOST_TEST(std::ranges::any_of(keys, [](const runfile::FileKey& k) {
    return k.key == "**more(1)" && k.use == KeyUse::kNotUnderstood;
  }));
}

BOOST_AUTO_TEST_CASE(attributes_that_are_set_afterwards_count) {
  const std::string s =
      "args = SFTConfig(max_length=64, per_device_train_batch_size=1)\nargs.per_device_train_batch_size = 5\n"
      "SFTTrainer(model='gpt2', args=args)\n";
  BOOST_TEST(value(settings("t.py", s), "train.micro_batch") == "5");
  BOOST_TEST(script_error("args = SFTConfig()\nif x:\n  args.gradient_accumulation_steps = "
                          "5\nSFTTrainer(model='gpt2', args=args)\n")
                 .find("gradient_accumulation_steps = `5` (assigned under a condition)") !=
             std::string::npos);
}

BOOST_AUTO_TEST_CASE(bad_input_is_one_clear_error) {
  BOOST_TEST(script_error("import torch\nprint('hello')\n")
                 .starts_with("t.py:1: this script makes no trainer, and no adapters, that --from reads "
                              "(looked for: TrainingArguments"));
  BOOST_TEST(script_error("x = 'open\n") == "t.py:1: the string is not closed (add ' behind it)");
  BOOST_TEST(script_error("\nx = f(1,\n").starts_with("t.py:2: the bracket ( is not closed"));
  BOOST_TEST(script_error("x = (1]\n") == "t.py:1: the bracket ] closes none that is open");
  BOOST_TEST(script_error("x = \"\"\"\n").starts_with("t.py:1: the string is not closed"));
  BOOST_TEST(script_error(std::string(200, '(')) == "t.py:1: brackets are nested more than 100 deep");
  BOOST_TEST(script_error("x = 1" + std::string(2000, '.') + "\n") != "");
  BOOST_TEST(script_error("x = " + std::string(5000, '-') + "1\n") ==
             "t.py:1: expressions are nested more than 400 deep");
  std::string sum = "x = 1";
  for (int i = 0; i < 3000; ++i) sum += "+1";
  BOOST_TEST(script_error(sum + "\n") == "t.py:1: expressions are nested more than 400 deep");
  BOOST_TEST(error_of("t.ipynb", "{\"cells\": [").starts_with("t.ipynb:1: this notebook is not valid JSON"));
  BOOST_TEST(error_of("t.ipynb", R"({"cells": [{"cell_type": "markdown", "source": "x"}]})") ==
             "t.ipynb:1: this notebook has no cell of code (expected a notebook that trains a model)");
  const std::string cells =
      R"~({"cells": [{"cell_type": "code", "source": ["x = 1\n", "y = (\n"]}, {"cell_type": "code", "source": ")"}]})~";
  BOOST_TEST(error_of("t.ipynb", cells).starts_with("t.ipynb:cell 1:2: the bracket ( is not closed"));
  const testing::Folder folder;
  const std::string script = (folder.path() / "t.py").string();
  std::ofstream(script) << sft("bf16=True");
  const auto named = [&](const std::string& kind) {
    try {
      read_files({kind + ":" + script}, {});
      return std::string();
    } catch (const Error& e) {
      return std::string(e.what());
    }
  };
  BOOST_TEST(named("transformers") == "");
  BOOST_TEST(named("unsloth") == "this script has no call of Unsloth");
  BOOST_TEST(named("axolotl") == "a Python script is read as transformers or unsloth, not as axolotl");
}

BOOST_AUTO_TEST_CASE(values_that_double_each_other_end) {
  std::string s = "a0 = 1\n";
  for (int i = 1; i < 60; ++i) s += fmt::format("a{} = a{} + a{}\n", i, i - 1, i - 1);
  BOOST_TEST(
      script_error(sft("per_device_train_batch_size=a59", s)).find("the file does not say what this is") !=
      std::string::npos);
  s = "a0 = '" + std::string(100'000, 'x') + "'\n";
  for (int i = 1; i < 40; ++i) s += fmt::format("a{} = a{} + a{}\n", i, i - 1, i - 1);
  BOOST_TEST(script_error(sft("per_device_train_batch_size=a39", s)).find("does not say") !=
             std::string::npos);
  BOOST_TEST(script_error(sft("per_device_train_batch_size=f(1)", "def f(x):\n  return f(x)\n"))
                 .find("does not say") != std::string::npos);
  BOOST_TEST(script_error(sft("per_device_train_batch_size=x", "def f(x):\n  f(x)\n")).find("does not say") !=
             std::string::npos);
}

BOOST_AUTO_TEST_SUITE_END()
