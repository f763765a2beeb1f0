// Mistakes in run files and on the command line with the expected message and exit code. "@" is the folder of
// the run file. A changed message must be changed here too. Texts that are no TOML: syntax_errors_test.cpp.
#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <functional>

#include "core/base/error.hpp"
#include "core/runfile/run_config.hpp"
#include "tests/core/runfile/folder.hpp"

using namespace trainhost;
using namespace trainhost::runfile;
using trainhost::testing::Folder;

namespace {

struct Mistake {
  std::string toml;
  std::vector<Override> overrides;
  std::string message;
};

// clang-format off
const Mistake kInRunFiles[] = {
    {"[train]\nmicro_bach = 8\n", {},
     "run.toml:2:1: unknown key 'train.micro_bach'; did you mean 'train.micro_batch'?"},
    {"[trian]\nsteps = 8\n", {},
     "run.toml:1:2: unknown table 'trian'; did you mean 'train'?"},
    {"micro_batch = 8\n", {},
     "run.toml:1:1: unknown key 'micro_batch'; did you mean 'train.micro_batch'?"},
    {"[train]\nseq_len = 8\n", {},
     "run.toml:2:1: unknown key 'train.seq_len'; did you mean 'data.seq_len'?"},
    {"[train]\nzzzzzz = 8\n", {},
     "run.toml:2:1: unknown key 'train.zzzzzz'"},
    {"[train.extra]\nzzzzzz = 8\n", {},
     "run.toml:1:8: unknown table 'train.extra'"},
    {"train = 5\n", {},
     "run.toml:1:9: train = 5: expected the table [train], got a whole number"},
    {"[[train]]\nsteps = 5\n", {},
     "run.toml:1:1: train = [1 item]: expected the table [train], got a list"},
    {"[train]\nsteps = [1]\n", {},
     "run.toml:2:9: train.steps = [1 item]: expected a whole number from 1, got a list"},
    {"[train]\nmicro_batch = \"8\"\n", {},
     "run.toml:2:15: train.micro_batch = \"8\": expected a whole number from 1 to 1048576, got a string (write 8)"},
    {"[train]\nmicro_batch = \"eight\"\n", {},
     "run.toml:2:15: train.micro_batch = \"eight\": expected a whole number from 1 to 1048576, got a string"},
    {"", {{"data.seq_len", "4k"}},
     "--set data.seq_len = \"4k\": expected a whole number from 1 to 16777216, got a string (write 4096, or 4000)"},
    {"", {{"data.seq_len", "1M"}},
     "--set data.seq_len = \"1M\": expected a whole number from 1 to 16777216, got a string (write 1048576, or 1000000)"},
    {"", {{"data.seq_len", "16,384"}},
     "--set data.seq_len = \"16,384\": expected a whole number from 1 to 16777216, got a string (write 16384)"},
    {"[data]\nseq_len = \"4 096\"\n", {},
     "run.toml:2:11: data.seq_len = \"4 096\": expected a whole number from 1 to 16777216, got a string (write 4096)"},
    {"", {{"data.seq_len", "9999M"}},  // outside of the limits
     "--set data.seq_len = \"9999M\": expected a whole number from 1 to 16777216, got a string"},
    {"", {{"data.seq_len", "4GiB"}},
     "--set data.seq_len = \"4GiB\": expected a whole number from 1 to 16777216, got a string"},
    {"", {{"parallel.expert", "3"}, {"model.preset", "llama-3-8b"}},
     "--set parallel.expert = 3, but llama-3-8b has no experts; use 1"},
    {"[train]\nmicro_batch = 8.5\n", {},
     "run.toml:2:15: train.micro_batch = 8.5: expected a whole number from 1 to 1048576, got a number with fraction or exponent"},
    {"[train]\nmicro_batch = 0\n", {},
     "run.toml:2:15: train.micro_batch = 0: expected a whole number from 1 to 1048576"},
    {"[model]\nnum_hidden_layers = 4097\n", {},
     "run.toml:2:21: model.num_hidden_layers = 4097: expected a whole number from 1 to 4096"},
    {"[train]\nmicro_batch = -1\n", {},
     "run.toml:2:15: train.micro_batch = -1: expected a whole number from 1 to 1048576"},
    {"", {{"train.micro_batch", "99999999999999999999"}},
     "--set train.micro_batch = 99999999999999999999: expected a whole number from 1 to 1048576"},
    {"", {{"train.micro_batch", "-99999999999999999999"}},
     "--set train.micro_batch = -99999999999999999999: expected a whole number from 1 to 1048576"},
    {"", {{"memory.device", "cpu", "--device"}},
     "--device: memory.device = \"cpu\": unknown device; use --backend=cpu for this machine's CPU, or did you mean 'xeon-8480'? (`trainhost devices` lists the known devices; memory.budget or --budget=SIZE plans for any other)"},
    {"[lora]\ntargets = [\"query\"]\n", {},
     "run.toml:2:11: lora.targets: unknown matrix 'query'; did you mean 'q_proj'? (expected \"all-linear\", or one or more of q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj, down_proj, lm_head, embed_tokens, or patterns as \"layers.0.*\")"},
    {"[lora]\ntargets = \"q_proj, v_proj\"\n", {},
     "run.toml:2:11: lora.targets = \"q_proj, v_proj\": several matrices are a list of strings (write targets = [\"q_proj\", \"v_proj\"])"},
    {"[plan]\nframework = \"pytorch\"\nfp8_recipe = \"tensorwise\"\n", {},
     "run.toml:3:14: plan.fp8_recipe is a setting of megatron, but plan.framework is pytorch (leave it out, or plan with --for megatron)"},
    {"[plan]\nframework = \"megatron\"\nfp8_weights = true\n", {},
     "run.toml:3:15: plan.fp8_weights is a setting of products in 8 bits, but plan.fp8_recipe is not given (example: plan.fp8_recipe = \"tensorwise\")"},
    {"[plan]\nframework = \"megatron\"\nfp8_recipe = \"tensorwise\"\nfp8_weights = true\n", {},
     "run.toml:4:15: plan.fp8_weights without the distributed optimizer: Megatron-LM refuses --fp8-param-gather without --use-distributed-optimizer (set parallel.zero = 1)"},
    {"[plan]\nframework = \"megatron\"\nfp8_recipe = \"nvfp4\"\nfp8_weights = true\n", {},
     "run.toml:4:15: plan.fp8_weights with plan.fp8_recipe = \"nvfp4\": weights in 4 bits are not described (leave plan.fp8_weights out)"},
    {"[plan]\nframework = \"megatron\"\nfp8_recipe = \"mxfp8\"\namax_history = 8\n", {},
     "run.toml:4:16: plan.amax_history with plan.fp8_recipe = \"mxfp8\": only delayed scaling has a history (leave it out)"},
    {"[plan]\nframework = \"megatron\"\nfp8_recipe = \"delayed\"\nbf16_last_layers = 1\n", {},
     "run.toml:4:20: plan.bf16_last_layers with plan.fp8_recipe = \"delayed\": Megatron Core has no layers in bf16 with it (set plan.fp8_recipe to \"tensorwise\", or leave it out)"},
    {"[plan]\nframework = \"megatron\"\nfp8_recipe = \"tensorwise\"\n", {{"memory.device", "a100-80gb"}},
     "run.toml:3:14: plan.fp8_recipe = \"tensorwise\" on a100-80gb: Transformer Engine has it for compute capability 8.9 or higher (L4, RTX 4090, H100 or newer) (leave it out, or set memory.device to another device)"},
    {"[plan]\nframework = \"megatron\"\nfp8_recipe = \"mxfp8\"\n", {{"memory.device", "h100-80gb"}},
     "run.toml:3:14: plan.fp8_recipe = \"mxfp8\" on h100-80gb: Transformer Engine has it for compute capability 10.x (B200, GB200) (set plan.fp8_recipe to \"tensorwise\", or memory.device to another device)"},
    {"[plan]\nframework = \"megatron\"\nfp8_recipe = \"mxfp8\"\n", {{"memory.device", "rtx-5090"}},
     "run.toml:3:14: plan.fp8_recipe = \"mxfp8\" on rtx-5090: Transformer Engine has it for compute capability 10.x (B200, GB200) (set plan.fp8_recipe to \"tensorwise\", or memory.device to another device)"},
    {"[plan]\nframework = \"megatron\"\nfp8_recipe = \"blockwise\"\n", {{"memory.device", "mi300x-192gb"}},
     "run.toml:3:14: plan.fp8_recipe = \"blockwise\" on mi300x-192gb: Transformer Engine has it for compute capability 9.0 or higher (H100 or newer) (leave it out, or set memory.device to another device)"},
    {"[plan]\nmode = \"inference\"\n[lora]\nrank = 8\n", {},
     "run.toml:2:8: plan.mode = \"inference\" and [lora] cannot be combined: inference trains no adapters (remove one of them; merged adapters need no extra memory)"},
    {"[parallel]\npipeline = 2\ninterleave = 3\n[model]\nnum_hidden_layers = 8\n", {},
     "run.toml:3:14: parallel.interleave = 3 with parallel.pipeline = 2: 8 layers are not divisible by 6 virtual stages (set parallel.interleave = 2)"},
    {"[parallel]\npipeline = 3\ninterleave = 2\n[model]\nnum_hidden_layers = 8\n", {},
     "run.toml:3:14: parallel.interleave = 2 with parallel.pipeline = 3: 8 layers are not divisible by 6 virtual stages (set parallel.interleave = 1: 8 layers cannot be divided among 3 ranks)"},
    {"[train]\nrecompute = \"full\"\nrecompute_every = 5\n", {},
     "run.toml:3:19: train.recompute_every = 5 is more than the 4 layers of the model (set train.recompute_every = 4 to recompute all layers together)"},
    {"[parallel]\ndata = 1048576\ntensor = 1048576\npipeline = 1048576\ncontext = 128\n[data]\nseq_len = 128\n", {},
     "run.toml:2:8: parallel.data = 1048576 x parallel.tensor = 1048576 x parallel.pipeline = 1048576 x parallel.context = 128: the number of ranks exceeds 63 bits (reduce parallel.data)"},
    {"[train]\nsteps = 1000000000000\ngrad_accum = 1048576\n", {},
     "run.toml:2:9: train.micro_batch = 4 x data.seq_len = 128 x train.grad_accum = 1048576 x train.steps = 1000000000000: the number of tokens in the run exceeds 63 bits (reduce train.steps)"},
    {"[train]\nmicro_batch = 2000000\n", {},
     "run.toml:2:15: train.micro_batch = 2000000: expected a whole number from 1 to 1048576"},
    {"[train]\nsteps = 1e3\n", {},
     "run.toml:2:9: train.steps = 1000: expected a whole number from 1, got a number with fraction or exponent (write 1000)"},
    {"[train]\nseed = -5\n", {},
     "run.toml:2:8: train.seed = -5: expected a whole number from 0"},
    {"[train]\nsteps = 99999999999999999999\n", {},
     "run.toml:2:29: not valid TOML: 99999999999999999999 does not fit in 64 bits (write a number of at most 18 digits)"},
    {"[train]\nprecision = \"fp23\"\n", {},
     "run.toml:2:13: train.precision = \"fp23\": expected one of fp32, tf32, bf16, fp16, fp8; did you mean 'fp32'?"},
    {"[train]\nprecision = 32\n", {},
     "run.toml:2:13: train.precision = 32: expected one of fp32, tf32, bf16, fp16, fp8, got a whole number"},
    {"[train]\nrecompute = true\n", {},
     "run.toml:2:13: train.recompute = true: expected one of none, selective, full, auto, got true or false"},
    {"[train]\nrecompute = \"selectiv\"\n", {},
     "run.toml:2:13: train.recompute = \"selectiv\": expected one of none, selective, full, auto; did you mean 'selective'?"},
    {"[optimizer]\nname = \"adam\"\n", {},
     "run.toml:2:8: optimizer.name = \"adam\": expected one of adamw, sgd, sgd-momentum, adafactor, lion, muon, adamw-8bit; did you mean 'adamw'?"},
    {"[optimizer]\nlr = \"fast\"\n", {},
     "run.toml:2:6: optimizer.lr = \"fast\": expected a number from 0 to 100, got a string"},
    {"[optimizer]\nlr = -1.0\n", {},
     "run.toml:2:6: optimizer.lr = -1: expected a number from 0 to 100"},
    {"[optimizer]\nlr = nan\n", {},
     "run.toml:2:6: optimizer.lr = nan: expected a number from 0 to 100"},
    {"[optimizer]\nlr = inf\n", {},
     "run.toml:2:6: optimizer.lr = inf: expected a number from 0 to 100"},
    {"[optimizer]\nbetas = [0.9]\n", {},
     "run.toml:2:9: optimizer.betas = [1 item]: expected a list of two numbers, each in [0, 1)"},
    {"[optimizer]\nbetas = 0.9\n", {},
     "run.toml:2:9: optimizer.betas = 0.9: expected a list of two numbers, each in [0, 1), got a number with fraction or exponent"},
    {"[optimizer]\nbetas = [0.9, 1.0]\n", {},
     "run.toml:2:15: optimizer.betas = 1: expected a list of two numbers, each in [0, 1)"},
    {"[optimizer]\nbetas = [0.9, \"x\"]\n", {},
     "run.toml:2:15: optimizer.betas = \"x\": expected a list of two numbers, each in [0, 1), got a string"},
    {"[optimizer]\neps = 0.0\n", {},
     "run.toml:2:7: optimizer.eps = 0: expected a number above 0, at most 1"},
    {"[optimizer]\nschedule = \"cosin\"\n", {},
     "run.toml:2:12: optimizer.schedule = \"cosin\": expected one of constant, cosine, linear, wsd; did you mean 'cosine'?"},
    {"[optimizer]\nlr = 1e-3\nmin_lr = 2e-3\n", {},
     "run.toml:3:10: optimizer.min_lr = 0.002 is greater than optimizer.lr = 0.001 (min_lr is the learning rate at the end of the schedule)"},
    {"[train]\nsteps = 10\n[optimizer]\nwarmup_steps = 11\n", {},
     "run.toml:4:16: optimizer.warmup_steps = 11 is more than train.steps = 10"},
    {"[optimizer]\ngrad_clip = -1.0\n", {},
     "run.toml:2:13: optimizer.grad_clip = -1: expected a number from 0"},
    {"[optimizer]\nlearning_rate = 0.1\n", {},
     "run.toml:2:1: unknown key 'optimizer.learning_rate'; did you mean 'optimizer.lr'?"},
    {"[memory]\nbudget = \"24 parsecs\"\n", {},
     "run.toml:2:10: memory.budget = \"24 parsecs\": expected a size with unit such as \"512MiB\", \"80GB\" or \"4096B\""},
    {"[memory]\nbudget = \"24G\"\n", {},
     "run.toml:2:10: memory.budget = \"24G\": expected a size with unit such as \"512MiB\", \"80GB\" or \"4096B\"; did you mean \"24GiB\"?"},
    {"[train]\nmicro_batch = 1e9\n", {},
     "run.toml:2:15: train.micro_batch = 1000000000: expected a whole number from 1 to 1048576, got a number with fraction or exponent"},
    {"[memory]\nbudget = 0\n", {},
     "run.toml:2:10: memory.budget = 0: expected a size with unit such as \"512MiB\", \"80GB\" or \"4096B\""},
    {"[memory]\nbudget = 24\n", {},
     "run.toml:2:10: memory.budget = 24: a size needs a unit (for example \"24GiB\", or \"24B\" for bytes)"},
    {"", {{"memory.budget", "24", "--budget"}},
     "--budget: memory.budget = 24: a size needs a unit (for example \"24GiB\", or \"24B\" for bytes)"},
    {"[memory]\nbudget = true\n", {},
     "run.toml:2:10: memory.budget = true: expected a size with unit such as \"512MiB\", \"80GB\" or \"4096B\", got true or false"},
    {"[memory]\nbudget = -5\n", {},
     "run.toml:2:10: memory.budget = -5: expected a size with unit such as \"512MiB\", \"80GB\" or \"4096B\""},
    {"[memory]\ndevice = \"h100-80g\"\n", {},
     "run.toml:2:10: memory.device = \"h100-80g\": unknown device; did you mean 'h100-80gb'? (`trainhost devices` lists the known devices; memory.budget or --budget=SIZE plans for any other)"},
    {"[memory]\ndevice = \"h200\"\n", {},
     "run.toml:2:10: memory.device = \"h200\": unknown device; did you mean 'h200-141gb'? (`trainhost devices` lists the known devices; memory.budget or --budget=SIZE plans for any other)"},
    {"[memory]\nestimator = []\n", {},
     "run.toml:2:13: memory.estimator = []: expected a string or a list of strings, at least one (leave the key out for its default)"},
    {"[memory]\nestimator = [\"auto\", \"llama\"]\n", {},
     "run.toml:2:13: memory.estimator: 'auto' cannot be combined with other estimators"},
    {"[memory.estimators]\nlama = \"llama\"\n", {},
     "run.toml:2:8: memory.estimators: unknown model family 'lama'; did you mean 'llama'? (\"*\" is for every family without a line of its own)"},
    {"[memory.estimators]\nllama = 3\n", {},
     "run.toml:2:9: memory.estimators.llama = 3: expected a string or a list of strings, got a whole number"},
    {"[memory]\nestimator = \"llama\"\n[memory.estimators]\nllama = \"llama\"\n", {},
     "run.toml:2:13: memory.estimator and [memory.estimators] are both given (in the table, \"*\" is for every family without a line of its own)"},
    {"[memory.estimators]\nllama = [\"all\", \"llama\"]\n", {},
     "run.toml:2:9: memory.estimators.llama: 'all' cannot be combined with other estimators"},
    {"[data]\ntrain = \"inptu.txt\"\n", {},
     "run.toml:2:9: data.train: '@/inptu.txt' does not exist; did you mean 'input.txt'?"},
    {"[data]\ntrain = \"missing/x.txt\"\n", {},
     "run.toml:2:9: data.train: '@/missing/x.txt' does not exist"},
    {"[data]\ntrain = \"emty/x\"\n", {},
     "run.toml:2:9: data.train: '@/emty/x' does not exist; did you mean '@/empty'?"},
    {"[data]\ntrain = \"*.csv\"\n", {},
     "run.toml:2:9: data.train: no file matches '@/*.csv'"},
    {"[data]\ntrain = \"empty\"\n", {},
     "run.toml:2:9: data.train: '@/empty' is a folder: expected a file, a list or a glob (use 'empty/*.txt' for the text files in it)"},
    {"[data]\ntrain = \"\"\n", {},
     "run.toml:2:9: data.train is empty: expected a string or a list of strings (remove the key to use its default)"},
    {"[data]\ntrain = 5\n", {},
     "run.toml:2:9: data.train = 5: expected a string or a list of strings, got a whole number"},
    {"[data]\ntrain = [\"input.txt\", 5]\n", {},
     "run.toml:2:23: data.train = 5: expected a string or a list of strings, got a whole number"},
    {"[data]\nvalid = \"valid.txt\"\n", {},
     "run.toml:2:9: data.valid requires data.train: the built-in text has its own validation text"},
    {"[data]\ntrain = \"input.txt\"\nvalid = \"valid.txt\"\nvalid_fraction = 0.1\n", {},
     "run.toml:4:18: data.valid and data.valid_fraction cannot be combined: both define the validation text (remove one of them)"},
    {"[data]\nvalid_fraction = 0.1\n", {},
     "run.toml:2:18: data.valid_fraction requires data.train: the built-in text has its own validation text"},
    {"[data]\non_error = \"skp\"\n", {},
     "run.toml:2:12: data.on_error = \"skp\": expected one of stop, skip; did you mean 'skip'?"},
    {"[data.keys]\ntxt = \"body\"\n", {}, "run.toml:2:1: unknown key 'data.keys.txt'; did you mean 'data.keys.text'?"},
    {"[data]\ntrain = \"input.txt\"\nvalid_fraction = 1.5\n", {},
     "run.toml:3:18: data.valid_fraction = 1.5: expected a number from 0 to 0.9"},
    {"[data]\ntokenizer = \"bpe.model\"\n", {},
     "run.toml:2:13: data.tokenizer requires data.train: the built-in text is tokenized by bytes"},
    {"[data]\ntrain = \"input.txt\"\ntokenizer = \"bpe.model\"\n", {},
     "run.toml:3:13: data.tokenizer: '@/bpe.model' does not exist"},
    {"[data]\ntrain = \"input.txt\"\ntokenizer = \"auto\"\n", {},
     "run.toml:3:13: data.tokenizer = \"auto\" requires model.config or model.weights, whose folder has the tokenizer (set data.tokenizer to the path of a tokenizer.json or a SentencePiece .model)"},
    {"[data]\norder = \"random\"\n", {},
     "run.toml:2:9: data.order = \"random\": expected one of shuffled, sequential"},
    {"[data]\ndtype = \"uint8\"\n", {},
     "run.toml:2:9: data.dtype = \"uint8\": expected one of uint16, uint32; did you mean 'uint16'?"},
    {"[data]\ntrain = \"input.txt\"\ndtype = \"uint32\"\n", {},
     "run.toml:3:9: data.dtype applies only to .bin token files, and data.train has none"},
    {"[data]\nweights = [1, 0]\n", {},
     "run.toml:2:15: data.weights = 0: expected a list of numbers, each above 0, at most 1000000"},
    {"[data]\nweights = 2\n", {},
     "run.toml:2:11: data.weights = 2: expected a list of numbers, each above 0, at most 1000000, got a whole number"},
    {"[data]\ntrain = [\"a.txt\"]\nweights = [1, 2]\n", {},
     "run.toml:3:11: data.weights has 2 numbers, but data.train has 1 entry (one weight for each entry of data.train; a glob is one entry)"},
    {"[data]\nseq_len = 0\n", {},
     "run.toml:2:11: data.seq_len = 0: expected a whole number from 1 to 16777216"},
    {"[data]\nseq_len = 16777216\n[train]\nmicro_batch = 1048576\n", {},
     "run.toml:4:15: train.micro_batch x data.seq_len = 17592186044416 tokens is too large: expected at most 2147483647"},
    {"[model]\nconfig = \"config.jsn\"\n", {},
     "run.toml:2:10: model.config: '@/config.jsn' does not exist; did you mean 'config.json'?"},
    {"[model]\nconfig = \"config.json\"\npreset = \"llama-7b\"\n", {},
     "run.toml:3:10: model.config and model.preset cannot be combined: each of them defines the whole model (remove one of them)"},
    {"[model]\nconfig = \"config.json\"\nhidden_size = 64\n", {},
     "run.toml:3:15: model.config and model.hidden_size cannot be combined: the config file defines all fields (remove one of them)"},
    {"[model]\npreset = \"llama-7b\"\nhidden_size = 64\n", {},
     "run.toml:3:15: model.preset and model.hidden_size cannot be combined: the preset defines all fields (remove one of them)"},
    {"[model]\npreset = \"lama-7b\"\n", {},
     "run.toml:2:10: model.preset = \"lama-7b\": unknown model; did you mean 'llama-7b'? (`trainhost models` lists the built-in models)"},
    {"[model]\nhidden_size = 100\n", {},
     "run.toml:2:15: model.hidden_size = 100 is not a multiple of num_attention_heads = 3 (set head_dim, or choose a multiple)"},
    {"[model]\nnum_attention_heads = 4\nnum_key_value_heads = 3\n", {},
     "run.toml:2:23: model.num_attention_heads = 4 is not a multiple of num_key_value_heads = 3 (each KV head serves the same number of query heads)"},
    {"[model]\nhead_dim = 33\n", {},
     "run.toml:2:12: model.head_dim = 33 is odd: rotary embeddings rotate pairs of dimensions (set head_dim to an even number)"},
    {"[model]\nmodel_type = \"gemma\"\n", {},
     "run.toml:2:14: model.model_type = \"gemma\": expected one of llama, mistral, qwen2, qwen3"},
    {"[model]\nhidden_act = \"gelu\"\n", {},
     "run.toml:2:14: model.hidden_act = \"gelu\": expected one of silu, swish"},
    {"[model]\nrope_scaling = { rope_type = \"yarn\", factor = 4.0 }\n", {},
     "run.toml:2:30: model.rope_scaling.rope_type = \"yarn\": expected one of default, linear, llama3"},
    {"[model]\nrope_scaling = { rope_type = \"linear\" }\n", {},
     "run.toml:2:30: model.rope_scaling.factor is missing: rope scaling linear requires it"},
    {"[model]\nrope_scaling = \"linear\"\n", {},
     "run.toml:2:16: model.rope_scaling = \"linear\": expected the table [model.rope_scaling], got a string"},
    {"[model]\nrope_scaling = { rope_type = \"linear\", factro = 4.0 }\n", {},
     "run.toml:2:40: unknown key 'model.rope_scaling.factro'; did you mean 'model.rope_scaling.factor'?"},
    {"[model]\nsliding_window = 8\n", {},
     "run.toml:2:18: model.sliding_window is not a field of llama (use model_type = \"mistral\" for a sliding window)"},
    {"[model]\nmodel_type = \"mistral\"\nattention_bias = true\n", {},
     "run.toml:3:18: model.attention_bias = true: mistral has no biases"},
    {"[model]\nmodel_type = \"qwen2\"\nuse_sliding_window = true\n", {},
     "run.toml:3:22: model.use_sliding_window = true: sliding_window is missing (set sliding_window to the window in tokens)"},
    {"[model]\nn_layer = 8\n", {},
     "run.toml:2:1: unknown key 'model.n_layer'; did you mean 'model.num_hidden_layers'?"},
    {"[model]\nweights = \"model.safetensor\"\n", {},
     "run.toml:2:11: model.weights: '@/model.safetensor' does not exist; did you mean 'model.safetensors'?"},
    {"[model]\nweights = \"pytorch_model.bin\"\n", {},
     "run.toml:2:11: model.weights: '@/pytorch_model.bin' is a pickle file, which can execute code when it is read (convert it to safetensors first)"},
    {"[model]\nweights = \"empty\"\n", {},
     "run.toml:2:11: model.weights: '@/empty' contains neither model.safetensors nor model.safetensors.index.json (copy or download the weights)"},
    {"[model]\nweights = \"notes.md\"\n", {},
     "run.toml:2:11: model.weights: '@/notes.md' is not a .safetensors file or a .safetensors.index.json"},
    {"[model]\nvocab_size = 4294967296\n", {},
     "run.toml:2:14: model.vocab_size = 4294967296: expected a whole number from 1 to 2147483647"},
    {"[model]\nhidden_size = 2147483646\nintermediate_size = 2147483646\n", {},
     "run.toml:2:15: a product of dimensions is too large: it does not fit in 63 bits; the largest numbers in it are model.hidden_size = 2147483646, model.intermediate_size = 2147483646 (the largest size is 9223372036854775807)"},
    {"[train]\nglobal_batch = 9\n[parallel]\ndata = 2\n", {},
     "run.toml:2:16: train.global_batch = 9 is not a multiple of parallel.data x train.micro_batch = 2 x 4 (set train.global_batch = 8)"},
    {"[train]\nglobal_batch = 4\nmicro_batch = 4\n[parallel]\ndata = 2\n", {},
     "run.toml:2:16: train.global_batch = 4 has fewer micro-batches of 4 sequences than there are ranks, 2 (set train.global_batch = 8, a smaller train.micro_batch, or fewer ranks)"},
    {"[train]\nglobal_batch = 8\ngrad_accum = 2\n", {},
     "run.toml:3:14: train.global_batch and train.grad_accum are both given (remove one of them)"},
    {"[parallel]\nzero = 4\n", {},
     "run.toml:2:8: parallel.zero = 4: expected a whole number from 0 to 3"},
    {"[parallel]\ndata = 0\n", {},
     "run.toml:2:8: parallel.data = 0: expected a whole number from 1 to 1048576"},
    {"[parallel]\ntensor = 2\n", {},
     "run.toml:2:10: parallel.tensor = 2 needs 2 processes, but this one was started alone (mpirun -n 2 trainhost ...; or set parallel.tensor = 1)"},
    {"[parallel]\nzero = 1\n", {},
     "run.toml:2:8: parallel.zero = 1 divides state among ranks, but there is one process (start several, with mpirun -n 2 trainhost ..., or set it to 0)"},
    {"[lora]\nrank = 0\n", {},
     "run.toml:2:8: lora.rank = 0: expected a whole number from 1 to 65536"},
    {"[lora]\ntargets = [\"q_prj\"]\n", {},
     "run.toml:2:11: lora.targets: unknown matrix 'q_prj'; did you mean 'q_proj'? (expected \"all-linear\", or one or more of q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj, down_proj, lm_head, embed_tokens, or patterns as \"layers.0.*\")"},
    {"[lora]\ntargets = [\"lm_hea*\"]\n", {},
     "run.toml:2:11: 'lm_hea*' in lora.targets matches no matrix of the layers (name the others: \"lm_head\", \"embed_tokens\")"},
    {"[plan]\nframework = \"transformers\"\n[lora]\ntargets = [\"lm_head\"]\nrank_pattern = [\"lm_head = 4\"]\n", {},
     "run.toml:5:16: the adapter of lm_head has rank 4, but --for transformers plans it with that of the run only, 8 (remove its rank, or plan with --for trainhost)"},
    {"[lora]\nbase = \"int8\"\n", {},
     "run.toml:2:8: lora.base = \"int8\" can be planned, but not trained: adapters are trained over weights in the type of train.precision or in NF4 (remove the key, or use `trainhost plan`)"},
    {"[model]\npreset = \"qwen2.5-0.5b\"\n[plan]\nframework = \"transformers\"\nint8_outliers = 897\n[lora]\nbase = \"int8\"\n", {},
     "run.toml:5:17: plan.int8_outliers = 897: the narrowest input of a product has 896 columns (give 0 to 896)"},
    {"[lora]\nrslora = 1\n", {},
     "run.toml:2:10: lora.rslora = 1: expected true or false, got a whole number"},
    {"[output]\nkeep = 0\n", {},
     "run.toml:2:8: output.keep = 0: expected a whole number from 1 to 1000000"},
    {"[output]\ndir = 5\n", {},
     "run.toml:2:7: output.dir = 5: expected a string, got a whole number"},
    {"[plugins]\npath = [\"plugns\"]\n", {},
     "run.toml:2:8: plugins.path: '@/plugns' does not exist"},
    {"[plugins]\nallow = [\"x\"]\n", {},
     "run.toml:2:9: plugins.allow: 'x' is not a SHA-256 digest (expected 64 hex digits, as printed by `sha256sum FILE`)"},
    {"[plugins]\norder = [\"cpu\", \"auto\"]\n", {},
     "run.toml:2:9: plugins.order: 'auto' is not a backend name (list each backend once, for example [\"cuda\", \"cpu\"])"},
    {"[plugins]\norder = [\"cpu\", \"cpu\"]\n", {},
     "run.toml:2:9: plugins.order: 'cpu' is listed twice (list each backend once, for example [\"cuda\", \"cpu\"])"},
    {"[plugins]\npath = \"input.txt\"\n", {},
     "run.toml:2:8: plugins.path: '@/input.txt' is not a folder"},
    {"[plugin]\ncuda = 5\n", {},
     "run.toml:2:8: plugin.cuda = 5: expected a table of plugin options, got a whole number (write the options below [plugin.cuda])"},
    {"[plugin.cuda]\nmode = [1]\n", {},
     "run.toml:2:8: plugin.cuda.mode = [1 item]: expected a string, a number, true or false, got a list"},
    {"[plugin.cuda.deep]\nmode = 1\n", {},
     "run.toml:1:1: plugin.cuda.deep = {...}: expected a string, a number, true or false, got a table"},
    {"\"train.steps\" = 5\n", {},
     "run.toml:1:1: unknown key 'train.steps' (a key contains only letters, digits, '_' and '-')"},
    {"[train]\n\"st eps\" = 5\n", {},
     "run.toml:2:1: unknown key 'train.st eps' (a key contains only letters, digits, '_' and '-')"},
    {"[train]\nsteps = 5\nsteps = 6\n", {},
     "run.toml:3:1: not valid TOML: train.steps is set twice, first in line 2 (remove one of the two lines)"},
    {"[train]\nsteps = \n", {},
     "run.toml:2:9: not valid TOML: steps has no value (write a value after '=', or remove steps)"},
    {"[train\nsteps = 1\n", {},
     "run.toml:1:7: not valid TOML: the table header has no ] (write the table header alone in its line: [train])"},
    {"[train]\nsteps = 1\n[.]\n[output]\n", {},
     "run.toml:3: not valid TOML (look for an unfinished key, table header or value)"},
    {"[train]\nsteps = 1\n[", {},
     "run.toml:3:2: not valid TOML: the file ends within a value or a table header (finish it, or copy the file again)"},
    // The most common mistakes in TOML itself.
    {"[data]\ntrain = \"a.txt\n[train]\nsteps = 5\n", {},
     "run.toml:2:9: not valid TOML: the string that begins here is not closed (end it with \" in the same line)"},
    {"[data]\ntrain = 'a.txt", {},
     "run.toml:2:9: not valid TOML: the string that begins here is not closed (end it with ' in the same line)"},
    {"[data]\ntrain = \"\"\"a.txt\n[train]\nsteps = 5\n", {},
     "run.toml:2:9: not valid TOML: the string that begins here is not closed (end it with \"\"\")"},
    {"[data]\ntrain = [\"a.txt\", \"b.txt]\n", {},
     "run.toml:2:19: not valid TOML: the string that begins here is not closed (end it with \" in the same line)"},
    {"[data]\ntrain = don't.txt\n", {},
     "run.toml:2:9: not valid TOML: a string without quotes (write strings in quotes: train = \"don't.txt\")"},
    {"[data]\ntrain = /data/a.txt\n", {},
     "run.toml:2:9: not valid TOML: a string without quotes (write strings in quotes: train = \"/data/a.txt\")"},
    {"[lora]\ntargets = [q_proj, v_proj]\n", {},
     "run.toml:2:12: not valid TOML: an item of the list is no value in TOML (write strings in quotes: targets = [\"A\", \"B\"])"},
    {"[train]\nsteps 100\n", {},
     "run.toml:2:7: not valid TOML: no '=' behind the key 'steps' (write '=' between key and value: steps = VALUE)"},
    {"[train]\nsteps = 5\n[data]\nseq_len = 8\n[train]\nseed = 1\n", {},
     "run.toml:5:1: not valid TOML: the table [train] is defined twice, first in line 1 (move the keys of both tables [train] into one)"},
    {"train.steps = 5\n[train]\nseed = 1\n", {},
     "run.toml:2:1: not valid TOML: line 1 has defined the table [train] already, by a dotted key (move that line below [train], without 'train.')"},
    {"train.steps = 5\ntrain.steps = 6\n", {},
     "run.toml:2:1: not valid TOML: train.steps is set twice, first in line 1 (remove one of the two lines)"},
    {"train = 5\n[train]\nseed = 1\n", {},
     "run.toml:2:1: not valid TOML: train has a value in line 1, and is no table (remove one of the two lines)"},
    {"[model]\ntie_word_embeddings = True\n", {},
     "run.toml:2:23: not valid TOML: 'True' is no value in TOML (write true or false)"},
    {"[model]\nrope_scaling = { rope_type = \"linear\", factor = 4.0, }\n", {},
     "run.toml:2:54: not valid TOML: a ',' without an entry behind it in { } (remove the comma)"},
    {"[data]\ntrain = \"C:\\data\\a.txt\"\n", {},
     "run.toml:2:13: not valid TOML: a backslash in double quotes begins an escape sequence, and this one is unknown (use single quotes: train = 'C:\\data\\a.txt'; or write \\\\ for each backslash)"},
    {"[data]\ntrain = \"C:\\Users\\a.txt\"\n", {},
     "run.toml:2:14: not valid TOML: a backslash in double quotes begins an escape sequence, and this one is unknown (use single quotes: train = 'C:\\Users\\a.txt'; or write \\\\ for each backslash)"},
    {"[data]\ntrain = [\"a.txt\", \"C:\\Users\\a.txt\"]\n", {},
     "run.toml:2:24: not valid TOML: a backslash in double quotes begins an escape sequence, and this one is unknown (use single quotes: 'C:\\Users\\a.txt'; or write \\\\ for each backslash)"},
    {"[data]\ntrain = [\n  \"C:\\Users\\a.txt\",\n]\n", {},
     "run.toml:3:8: not valid TOML: a backslash in double quotes begins an escape sequence, and this one is unknown (use single quotes: 'C:\\Users\\a.txt'; or write \\\\ for each backslash)"},
    {"[data]\ntrain = \"C:\\Users\\a.txt\"  # mine\n", {},
     "run.toml:2:14: not valid TOML: a backslash in double quotes begins an escape sequence, and this one is unknown (use single quotes: train = 'C:\\Users\\a.txt'; or write \\\\ for each backslash)"},
    {"[data]\ntrain = \xE2\x80\x9C" "a.txt\xE2\x80\x9D\n", {},
     "run.toml:2:9: a typographic quotation mark is no quote in TOML (write \" or ')"},
    {"\xFF\xFE[\0t\0", {},
     "run.toml:1:1: the file is UTF-16 (save it as UTF-8)"},
    {"\xEF\xBB\xBF[train]\r\n\tsteps\t=\t0\r\n", {},
     "run.toml:2:10: train.steps = 0: expected a whole number from 1"},
    {"[train]\nsteps = 1979-05-27\n", {},
     "run.toml:2:9: train.steps = a date or time: expected a whole number from 1, got a date or time"},
    {"[train]\nst\xC3\xA9ps = 5\n", {},
     "run.toml:2:3: only ASCII is allowed outside strings and comments (enclose the text in quotes)"},
    {"[train]\n# \xFF\nsteps = 5\n", {},
     "run.toml:2: the file is not valid UTF-8 (save it as UTF-8)"},
    {"[data]\ntrain = \"a\\u0000b\"\n", {},
     "run.toml:2:9: data.train contains a NUL character"},
    {"[data]\nbatch_size = 4\n", {},
     "run.toml:2:1: unknown key 'data.batch_size'; did you mean 'train.micro_batch'?"},
    {"[model]\nnum_attention_heads = 5\n", {},
     "run.toml:2:23: model.num_attention_heads = 5 does not divide hidden_size = 96 (set head_dim, or choose a multiple)"},
    {"[[model.rope_scaling]]\nfactor = 4\n", {},
     "run.toml:1:1: model.rope_scaling = [1 item]: expected the table [model.rope_scaling], got a list"},
    {"[lora]\ndora = 1\n", {},
     "run.toml:2:8: lora.dora = 1: expected true or false, got a whole number"},
    {"[model]\npath = \"qwen2.5-0.5b\"\n", {},
     "run.toml:2:8: 'qwen2.5-0.5b' is a preset, which has no weights to train further, and no folder here (give the folder of the model as Hugging Face has it (config.json, *.safetensors, tokenizer); `trainhost plan --model=qwen2.5-0.5b --lora` plans its memory, `trainhost train --model=qwen2.5-0.5b --set data.train=FILE` trains it from random weights)"},
    {"", {{"model.path", "Gemma-2-9B", "MODEL"}},
     "MODEL: 'Gemma-2-9B' is a preset, which has no weights to train further, and no folder here (give the folder of the model as Hugging Face has it (config.json, *.safetensors, tokenizer); `trainhost plan --model=gemma-2-9b --lora` plans its memory)"},
    {"[plan]\nmode = \"inference\"\n", {},
     "run.toml:2:8: plan.mode = \"inference\" can be planned, but not trained (remove the key, or use `trainhost plan`)"},
    {"[plan]\nmode = \"inference\"\ngradients = \"bf16\"\n", {},
     "run.toml:3:13: plan.gradients requires plan.mode = \"train\" (remove the key)"},
    {"[plan]\nattention = \"materialised\"\n", {},
     "run.toml:2:13: plan.attention = \"materialised\" can be planned, but not trained (remove the key, or use `trainhost plan`)"},
    {"[parallel]\nsequence = true\ntensor = 2\n", {},
     "run.toml:3:10: parallel.tensor = 2 needs 2 processes, but this one was started alone (mpirun -n 2 trainhost ...; or set parallel.tensor = 1)"},
    {"[lora]\ntargets = [\"zzz\"]\n", {},
     "run.toml:2:11: lora.targets: unknown matrix 'zzz' (expected \"all-linear\", or one or more of q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj, down_proj, lm_head, embed_tokens, or patterns as \"layers.0.*\")"},
    {"[memory]\ndevice = \"gpu\"\n", {},
     "run.toml:2:10: memory.device = \"gpu\": unknown device; use --backend=cuda for this machine's GPU, or name a GPU model such as 'h100-80gb' (`trainhost devices` lists the known devices; memory.budget or --budget=SIZE plans for any other)"},
    {"[plugins]\norder = [\"\"]\n", {},
     "run.toml:2:9: plugins.order is empty: expected a string or a list of strings (remove the key to use its default)"},
    {"[plugin.cuda]\nmode = 1979-05-27\n", {},
     "run.toml:2:8: plugin.cuda.mode = a date or time: expected a string, a number, true or false, got a date or time"},
    {"[model]\nweights = \"config.json\"\n", {},
     "run.toml:2:11: model.weights: '@/config.json' is not a .safetensors file or a .safetensors.index.json"},
    {"[data]\ntrain = \"sub/[\"\n", {},
     "run.toml:2:9: data.train: no file matches '@/sub/['"},
};
/// A syntax error with the remedy at the end of its message.
const Mistake kInOverrides[] = {
    {"", {{"train.micro_bach","8"}},
     "--set train.micro_bach: unknown key 'train.micro_bach'; did you mean 'train.micro_batch'?"},
    {"", {{"micro_batch","8"}},
     "--set micro_batch: unknown key 'micro_batch'; did you mean 'train.micro_batch'?"},
    {"", {{"train","8"}},
     "--set train: 'train' is a table: set one of its keys (example: --set train.micro_batch=8)"},
    {"", {{"","8"}},
     "--set: the key is missing (example: --set train.micro_batch=8)"},
    {"", {{"train.micro_batch","eight"}},
     "--set train.micro_batch = \"eight\": expected a whole number from 1 to 1048576, got a string"},
    {"", {{"train.micro_batch","0"}},
     "--set train.micro_batch = 0: expected a whole number from 1 to 1048576"},
    {"", {{"train.micro_batch",""}},
     "--set train.micro_batch = \"\": expected a whole number from 1 to 1048576, got a string"},
    {"", {{"train.micro_batch","8\n[lora]"}},
     "--set train.micro_batch = \"8\\x0a[lora]\": expected a whole number from 1 to 1048576, got a string"},
    {"", {{"train.precision","fp64"}},
     "--set train.precision = \"fp64\": expected one of fp32, tf32, bf16, fp16, fp8"},
    {"", {{"optimizer.lr","1e-3"},{"optimizer.min_lr","1"}},
     "--set optimizer.min_lr = 1 is greater than optimizer.lr = 0.001 (min_lr is the learning rate at the end of the schedule)"},
    {"", {{"model.preset","llama-8b"}},
     "--set model.preset = \"llama-8b\": unknown model; did you mean 'llama-3-8b'? (`trainhost models` lists the built-in models)"},
    {"", {{"output.dir",""}},
     "--set output.dir: output.dir is empty: expected a string (remove the key to use its default)"},
    {"", {{"plugin.cuda","x"}},
     "--set plugin.cuda = \"x\": expected a table of plugin options, got a string (write the options below [plugin.cuda])"},
    {"", {{"model.rope_scaling","linear"}},
     "--set model.rope_scaling: 'model.rope_scaling' is a table: set one of its keys (example: --set train.micro_batch=8)"},
};
// clang-format on

/// The message of the error that `f` throws, marked if its exit code is not 2.
std::string rejection(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& e) {
    return (e.code() == Exit::kUsage ? "" : "wrong exit code: ") + e.full();
  }
  return "accepted";
}

struct Files : Folder {
  Files() {
    for (const char* name : {"input.txt", "valid.txt", "tokens.bin", "model.safetensors", "pytorch_model.bin",
                             "empty/x", "notes.md"})
      write(name, "x");
    write("config.json", testing::small_config());
  }
  std::string message_of(const Mistake& m) const {
    return relative(
        rejection([&] { reject_unsupported(parse_run(m.toml, "run.toml", path(), m.overrides)); }));
  }
};

}  // namespace

BOOST_FIXTURE_TEST_SUITE(mistakes, Files)

BOOST_AUTO_TEST_CASE(every_mistake_in_a_run_file_is_reported_with_its_position) {
  for (const Mistake& m : kInRunFiles)
    BOOST_TEST(message_of(m) == m.message,
               m.toml << "\n  actual:   " << message_of(m) << "\n  expected: " << m.message);
}

BOOST_AUTO_TEST_CASE(check_reports_each_of_these_mistakes) {
  for (const Mistake& m : kInRunFiles) {
    const std::string first =
        relative(rejection([&] { parse_run(m.toml, "run.toml", path(), m.overrides); }));
    const std::vector<RunFileError> errors = check_run(m.toml, "run.toml", {}, path(), m.overrides).errors;
    BOOST_TEST((first == "accepted") == errors.empty(), m.toml);
    BOOST_TEST((errors.empty() ||
                std::ranges::any_of(
                    errors, [&](const RunFileError& e) { return relative(e.error.full()) == first; })),
               m.toml << "\n  missing: " << first);
  }
}

BOOST_AUTO_TEST_CASE(every_mistake_in_an_override_names_the_override) {
  for (const Mistake& m : kInOverrides)
    BOOST_TEST(message_of(m) == m.message,
               m.overrides[0].key << "\n  actual:   " << message_of(m) << "\n  expected: " << m.message);
}

BOOST_AUTO_TEST_CASE(a_missing_or_irregular_run_file_is_named) {
  write("mine.toml", "");
  const auto loaded = [&](const char* name) { return relative(rejection([&] { load_run(path() / name); })); };
  BOOST_TEST(loaded("mime.toml") == "run file: '@/mime.toml' does not exist; did you mean 'mine.toml'?");
  BOOST_TEST(loaded("empty") == "run file: '@/empty' is a folder: expected a file");
  write("big.toml", std::string((1 << 20) + 1, '#'));
  BOOST_TEST(loaded("big.toml") == "run file: '@/big.toml' is larger than 1.00 MiB");
  BOOST_TEST(rejection([] { load_run("/dev/null"); }) == "run file: '/dev/null' is not a regular file");
  const std::string hint =
      "@/train.py:1: a Python script is no run file (plan the job of its calls: trainhost plan --from ";
  write("train.py", "from transformers import SFTTrainer\n");
  BOOST_TEST(loaded("train.py").starts_with(hint), loaded("train.py"));
  const std::vector<RunFileError> checked = check_run(path() / "train.py").errors;
  BOOST_TEST((checked.size() == 1u && relative(checked[0].error.full()).starts_with(hint)));
  write("large.ipynb", std::string((1 << 20) + 1, ' '));
  BOOST_TEST(loaded("large.ipynb").find("a Python notebook is no run file") != std::string::npos);
  write("launch", "#!/usr/bin/env python3\nimport torch\n");
  BOOST_TEST(loaded("launch").find("a Python script is no run file") != std::string::npos);
  // A regular file whose first byte cannot be read.
  BOOST_TEST(rejection([] { load_run("/proc/self/mem"); }) == "run file: '/proc/self/mem' cannot be read");
}

BOOST_AUTO_TEST_CASE(an_unknown_model_argument_gets_the_nearest_preset) {
  BOOST_TEST(rejection([] { run_for_model("lama-3-8b"); }) ==
             "--model: 'lama-3-8b' is neither a built-in model nor a config.json; did you mean 'llama-3-8b'? "
             "(`trainhost models` lists the built-in models)");
  BOOST_TEST(
      rejection([] { run_for_model("acme/Acme-7B-it"); }) ==
      "--model: 'acme/Acme-7B-it' is neither a built-in model nor a file here (`hf download acme/Acme-7B-it "
      "config.json --local-dir Acme-7B-it` fetches its sizes for --model=Acme-7B-it/config.json)");
  BOOST_TEST(relative(rejection([&] { run_for_model((path() / "confg.json").string()); })) ==
             "--model: '@/confg.json' does not exist; did you mean 'config.json'?");
  BOOST_TEST(rejection([] {
               run_for_model("llama-7b", {{"model.hidden_size", "8"}});
             }) ==
             "--set model.hidden_size: model.preset and model.hidden_size cannot be combined: the preset "
             "defines all fields (remove one of them)");
}

BOOST_AUTO_TEST_CASE(a_mistake_in_a_config_names_the_config_and_not_the_run_file) {
  write("bad.json", testing::small_config("\"head_dim\": 15"));
  BOOST_TEST(message_of({"[model]\nconfig = \"bad.json\"\n", {}, ""}) ==
             "@/bad.json:9:1: head_dim = 15 is odd: rotary embeddings rotate pairs of dimensions (set "
             "head_dim to an even number)");
}

BOOST_AUTO_TEST_CASE(settings_that_can_only_be_planned_are_rejected_by_training) {
  for (const char* toml : {"[parallel]\npipeline = 4\n", "[lora]\nbase = \"int8\"\n"}) {
    const RunConfig c = parse_run(toml, "run.toml", path());
    BOOST_CHECK_THROW(reject_unsupported(c), Error);
  }
}

BOOST_AUTO_TEST_SUITE_END()
