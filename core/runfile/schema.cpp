// The schema table and its lookups. The defaults in this table define the built-in run. Limits are inclusive.
// They exclude values with which a size or a step count would overflow 63 bits or a formula would divide by
// zero; limits that depend on other keys are in combinations.cpp.
#include "core/runfile/schema.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>

#include "core/base/text.hpp"

namespace trainhost::runfile {
namespace {

// Upper limits: counts of steps, 32-bit dimensions. kTiny means "above 0", kBelowOne "below 1";
// validate_value.cpp prints both so.
constexpr double kMany = 1e12, kBig = 2147483647, kTiny = 1e-300, kBelowOne = 1 - 1e-9;

// Columns: name, type, default as TOML, minimum, maximum, choices, example, documentation. A key with an
// empty default is unset: its effective default depends on other keys and is stated in its documentation. The
// inline model keys have no default here: what is not given comes from the built-in model.
// clang-format off
constexpr Key kKeys[] = {
    {"model.path", Type::kPath, "", 0, 0, "", "\"SmolLM-135M\"", "Hugging Face folder of a model: config.json, weights in safetensors, tokenizer; training goes on from its weights, with the defaults of fine-tuning"},
    {"model.config", Type::kPath, "", 0, 0, "", "\"config.json\"", "path of a Hugging Face config.json, or its text; alternatives: preset, or the fields below"},
    {"model.preset", Type::kText, "", 0, 0, "", "\"llama-3-8b\"", "name of a built-in model; `trainhost models` lists them"},
    {"model.weights", Type::kPath, "", 0, 0, "", "\"model.safetensors\"", "initial weights, a safetensors file or index; default: random weights from train.seed"},
    {"model.adapter", Type::kPath, "", 0, 0, "", "\"runs/SmolLM-135M/adapter\"", "PEFT folder of an adapter that is trained further: adapter_config.json and adapter_model.safetensors; it defines rank, alpha and targets of [lora]; without another key of the model, that of its base_model_name_or_path"},
    {"model.model_type", Type::kChoice, "", 0, 0, "llama|mistral|qwen2|qwen3", "\"llama\"", "llama | mistral | qwen2 | qwen3: family of the model"},
    {"model.vocab_size", Type::kInteger, "", 1, kBig, "", "256", "vocabulary size in tokens"},
    {"model.hidden_size", Type::kInteger, "", 1, kBig, "", "96", "width of the residual stream"},
    {"model.num_hidden_layers", Type::kInteger, "", 1, 4096, "", "4", "number of transformer layers"},
    {"model.num_attention_heads", Type::kInteger, "", 1, kBig, "", "3", "number of query heads"},
    {"model.num_key_value_heads", Type::kInteger, "", 1, kBig, "", "3", "number of key and value heads; default: num_attention_heads"},
    {"model.head_dim", Type::kInteger, "", 1, kBig, "", "32", "width of one head; default: hidden_size / num_attention_heads"},
    {"model.intermediate_size", Type::kInteger, "", 1, kBig, "", "256", "width of the gated MLP"},
    {"model.max_position_embeddings", Type::kInteger, "", 1, kBig, "", "2048", "sequence length that the model is designed for"},
    {"model.tie_word_embeddings", Type::kBool, "", 0, 0, "", "true", "share one matrix between the embedding and the LM head"},
    {"model.attention_bias", Type::kBool, "", 0, 0, "", "false", "add biases to the attention projections"},
    {"model.mlp_bias", Type::kBool, "", 0, 0, "", "false", "add biases to the MLP projections"},
    {"model.hidden_act", Type::kChoice, "", 0, 0, "silu|swish", "\"silu\"", "activation function of the MLP: silu, which is also named swish"},
    {"model.rms_norm_eps", Type::kNumber, "", kTiny, 1, "", "1e-5", "epsilon added to the mean square in RMSNorm"},
    {"model.rope_theta", Type::kNumber, "", kTiny, 1e300, "", "10000.0", "base of the rotary embedding frequencies"},
    {"model.rope_scaling.rope_type", Type::kChoice, "", 0, 0, "default|linear|llama3", "\"llama3\"", "default | linear | llama3: how positions are scaled"},
    {"model.rope_scaling.factor", Type::kNumber, "", kTiny, 1e9, "", "8.0", "factor by which positions are scaled"},
    {"model.rope_scaling.low_freq_factor", Type::kNumber, "", kTiny, 1e9, "", "1.0", "llama3: wavelengths above original_max_position_embeddings / low_freq_factor are scaled"},
    {"model.rope_scaling.high_freq_factor", Type::kNumber, "", kTiny, 1e9, "", "4.0", "llama3: wavelengths below original_max_position_embeddings / high_freq_factor are not scaled"},
    {"model.rope_scaling.original_max_position_embeddings", Type::kInteger, "", 1, kBig, "", "8192", "llama3: sequence length before scaling"},
    {"model.initializer_range", Type::kNumber, "", 0, 1e3, "", "0.02", "standard deviation of the random initial matrices; default: 1/sqrt(hidden_size)"},
    {"model.sliding_window", Type::kInteger, "", 1, kBig, "", "4096", "attention window in tokens, including the query's own (mistral, qwen2, qwen3)"},
    {"model.use_sliding_window", Type::kBool, "", 0, 0, "", "false", "apply the sliding window (qwen2, qwen3)"},
    {"model.max_window_layers", Type::kInteger, "", 0, 65536, "", "28", "number of first layers with full attention; the other layers use the window (qwen2, qwen3)"},

    {"data.train", Type::kPaths, "", 0, 0, "", "\"input.txt\"", "training text, records (.jsonl, .json, .csv, .tsv), or token ids in .bin files: a path, a list or a glob; default: the built-in text"},
    {"data.valid", Type::kPaths, "", 0, 0, "", "\"valid.txt\"", "validation text, given in the same way; alternative: valid_fraction"},
    {"data.valid_fraction", Type::kNumber, "0.0", 0, 0.9, "", "", "fraction of the training data that is used for validation: the end of a text; of records, documents selected by their content and train.seed"},
    {"data.weights", Type::kNumbers, "", kTiny, 1e6, "", "[3, 1]", "shares of the entries of data.train in the training data, which are mixed in this proportion; default: all data in one order"},
    {"data.tokenizer", Type::kText, "\"bytes\"", 0, 0, "", "", "bytes, the path of a tokenizer.json or of a SentencePiece .model, or auto: the one beside model.weights or model.config; not used for .bin files; with model.path the one in that folder"},
    {"data.order", Type::kChoice, "\"shuffled\"", 0, 0, "shuffled|sequential", "", "shuffled | sequential: order of the training sequences"},
    {"data.dtype", Type::kChoice, "", 0, 0, "uint16|uint32", "\"uint32\"", "token type of .bin files; default: uint16, or uint32 if vocab_size > 65536"},
    {"data.chat_template", Type::kChoice, "\"auto\"", 0, 0, "auto|alpaca|chatml|gemma|gemma-3|llama-2|llama-3|llama-3.1|mistral|mistral-nemo|mistral-v3|phi-3|phi-4|phi-4-mini|qwen2|qwen2.5|qwen3|smollm2|zephyr", "", "how conversations become text: auto is the template of the model, from tokenizer_config.json beside the tokenizer or in model.config; or one of alpaca, chatml, gemma, gemma-3, llama-2, llama-3, llama-3.1, mistral, mistral-nemo, mistral-v3, phi-3, phi-4, phi-4-mini, qwen2, qwen2.5, qwen3, smollm2, zephyr"},
    {"data.loss_on", Type::kChoice, "\"completions\"", 0, 0, "completions|all", "", "completions | all: tokens of records that are counted in the loss; completions are the answers of the assistant, the completion of a prompt, and all of a text"},
    {"data.on_error", Type::kChoice, "\"stop\"", 0, 0, "stop|skip", "", "stop | skip: what follows from a broken record; skip leaves it out and reports how many were"},
    {"data.special_tokens", Type::kBool, "true", 0, 0, "", "", "names of special tokens in plain texts (\"<|endoftext|>\") are these tokens, as transformers reads them; false: they are text, as always in conversations and prompts; with a tokenizer.json"},
    {"data.packing", Type::kBool, "", 0, 0, "", "false", "several records in one training sequence, each of which attends to itself only; false: one per sequence, with padding; default: true if the trainer supports it"},
    {"data.keys.text", Type::kText, "\"text\"", 0, 0, "", "", "key of a document in a record"},
    {"data.keys.prompt", Type::kText, "\"prompt\"", 0, 0, "", "", "key of a prompt, which needs a completion"},
    {"data.keys.completion", Type::kText, "\"completion\"", 0, 0, "", "", "key of the completion of a prompt"},
    {"data.keys.instruction", Type::kText, "\"instruction\"", 0, 0, "", "", "key of an instruction, which needs an output"},
    {"data.keys.input", Type::kText, "\"input\"", 0, 0, "", "", "key of the context of an instruction; may be missing"},
    {"data.keys.output", Type::kText, "\"output\"", 0, 0, "", "", "key of the answer to an instruction"},
    {"data.keys.messages", Type::kText, "\"messages\"", 0, 0, "", "", "key of a conversation, a list of messages"},
    {"data.keys.role", Type::kText, "\"role\"", 0, 0, "", "", "key of the role in a message"},
    {"data.keys.content", Type::kText, "\"content\"", 0, 0, "", "", "key of the text in a message"},
    {"data.seq_len", Type::kInteger, "128", 1, 16777216, "", "", "tokens per training sequence"},

    {"train.backend", Type::kText, "\"auto\"", 0, 0, "", "", "auto, or the name of a backend plugin; auto uses the first available backend of plugins.order"},
    {"train.precision", Type::kChoice, "\"fp32\"", 0, 0, "fp32|tf32|bf16|fp16|fp8", "", "fp32 | tf32 | bf16 (mixed: fp32 master weights and moments); fp16 and fp8 can only be planned"},
    {"train.micro_batch", Type::kInteger, "4", 1, 1048576, "", "", "sequences per micro-batch"},
    {"train.grad_accum", Type::kInteger, "1", 1, 1048576, "", "", "gradient accumulation steps, of each data-parallel rank"},
    {"train.global_batch", Type::kInteger, "", 1, 1048576, "", "64", "sequences per optimizer step, of all data-parallel ranks, instead of train.grad_accum: the same run on any number of them"},
    {"train.steps", Type::kInteger, "4400", 1, kMany, "", "", "number of optimizer steps"},
    {"train.epochs", Type::kNumber, "", 0.001, 1e6, "", "3.0", "passes over the training text, instead of train.steps; default: none, with model.path 3"},
    {"train.seed", Type::kInteger, "1337", 0, 9.3e18, "", "", "random seed for initial weights and data order"},
    {"train.freeze", Type::kTexts, "", 0, 0, "", "[\"model.embed_tokens*\", \"model.layers.0.*\"]", "parameters that are not trained: patterns of their names, with * for any text; they have no gradient and no optimizer state"},
    {"train.only", Type::kTexts, "", 0, 0, "", "[\"model.layers.3.*\", \"model.norm.weight\"]", "parameters that are trained, by patterns of their names; all others are frozen; train.freeze is applied after it"},
    {"train.threads", Type::kInteger, "0", 0, 4096, "", "", "number of CPU threads; 0 = one per physical core, within the quota of the container, divided among the ranks of the machine"},
    {"train.recompute", Type::kChoice, "\"none\"", 0, 0, "none|selective|full|auto", "", "none | selective | full | auto (least recomputation that fits)"},
    {"train.recompute_every", Type::kInteger, "1", 1, 65536, "", "", "with recompute = \"full\": layers recomputed together from one saved input; can only be planned"},
    {"train.eval_every", Type::kInteger, "0", 0, kMany, "", "", "optimizer steps between evaluations; 0 = only at the end"},
    {"train.eval_epochs", Type::kNumber, "", 0.001, 1e6, "", "0.5", "passes over the training data between evaluations, instead of train.eval_every"},
    {"train.early_stopping", Type::kInteger, "0", 0, kMany, "", "", "evaluations in a row without a lower validation loss that end the run; 0 = none do. The checkpoint with the lowest loss is kept, and output.model is then best"},
    {"train.early_stopping_min_delta", Type::kNumber, "0.0", 0, 1e6, "", "", "decrease of the validation loss, in nats per token, up to which it counts as no improvement"},
    {"train.checkpoint_minutes", Type::kNumber, "0.0", 0, 1e6, "", "", "minutes between checkpoints, in addition to output.checkpoint_every; 0 = only by steps"},
    {"train.on_nonfinite", Type::kChoice, "\"stop\"", 0, 0, "stop|skip|rollback", "", "stop | skip | rollback: what follows a step whose loss or gradient norm is not finite; skip leaves its update out, rollback returns to the last checkpoint and continues with the data after the step"},
    {"train.on_spike", Type::kChoice, "\"ignore\"", 0, 0, "ignore|stop|skip|rollback", "", "ignore | stop | skip | rollback: the same for a step whose loss is spike_threshold standard deviations above the mean of the last spike_window losses"},
    {"train.spike_threshold", Type::kNumber, "6.0", 1, 1e6, "", "", "standard deviations above the mean from which a loss is a spike"},
    {"train.spike_window", Type::kInteger, "128", 8, 10000, "", "", "number of losses that a loss is compared with; no loss counts as a spike until there are that many"},
    {"train.verify_every", Type::kInteger, "0", 0, kMany, "", "", "optimizer steps between steps that are computed twice and compared bit by bit, to find a faulty processor or memory; 0 = never; needs memory for a copy of weights and moments"},

    {"optimizer.name", Type::kChoice, "\"adamw\"", 0, 0, "adamw|sgd|sgd-momentum|adafactor|lion|muon|adamw-8bit", "", "adamw | sgd | sgd-momentum (momentum = betas[0]) | adafactor | lion | muon (AdamW for embedding, head and vectors) | adamw-8bit; see docs/optimizers.md"},
    {"optimizer.lr", Type::kNumber, "4e-3", 0, 100, "", "", "learning rate after warm-up"},
    {"optimizer.betas", Type::kPair, "[0.9, 0.95]", 0, kBelowOne, "", "", "decay rates of the first and second moment; betas[0] is the momentum of sgd-momentum and muon; default: [0.9, 0.95], lion [0.9, 0.99], muon [0.95, 0.95]"},
    {"optimizer.eps", Type::kNumber, "1e-8", kTiny, 1, "", "", "epsilon added to the square root of the second moment; adafactor: smallest RMS of a tensor by which its updates are scaled, default 1e-3"},
    {"optimizer.weight_decay", Type::kNumber, "0.1", 0, 100, "", "", "decoupled weight decay; applied only to tensors of two or more dimensions"},
    {"optimizer.grad_clip", Type::kNumber, "1.0", 0, 1e30, "", "", "maximum global L2 norm over all gradients; 0 = no clipping"},
    {"optimizer.schedule", Type::kChoice, "\"cosine\"", 0, 0, "constant|cosine|linear|wsd", "", "constant | cosine | linear | wsd (warm-up, stable, decay: constant, then decay at the end): learning rate after warm-up"},
    {"optimizer.warmup_steps", Type::kInteger, "", 0, kMany, "", "300", "optimizer steps of linear warm-up; default: 300, at most a tenth of train.steps"},
    {"optimizer.warmup_ratio", Type::kNumber, "", 0, 1, "", "0.03", "the same as a part of the steps of the run, also where train.epochs gives them"},
    {"optimizer.decay_steps", Type::kInteger, "", 0, kMany, "", "500", "with wsd: optimizer steps of the decay; default: a tenth of the run"},
    {"optimizer.decay_ratio", Type::kNumber, "", 0, 1, "", "0.2", "the same as a part of the steps of the run"},
    {"optimizer.decay", Type::kChoice, "", 0, 0, "linear|cosine|1-sqrt", "\"cosine\"", "linear | cosine | 1-sqrt: with wsd, the shape of the decay; default: linear"},
    {"optimizer.min_lr", Type::kNumber, "", 0, 100, "", "4e-5", "learning rate at the end of the schedule; default: lr / 100"},

    {"memory.device", Type::kText, "", 0, 0, "", "\"h100-80gb\"", "plan for this device; `trainhost devices` lists them"},
    {"memory.budget", Type::kSize, "", 0, 0, "", "\"24GiB\"", "memory budget of the compute tier; default: the device's memory, or else the free memory"},
    {"memory.host_budget", Type::kSize, "", 0, 0, "", "\"64GiB\"", "memory budget of host memory, where it is a separate tier"},
    {"memory.estimator", Type::kTexts, "\"auto\"", 0, 0, "", "", "auto = selected by the model's architecture; or a name, a list of names, or all"},

    {"parallel.data", Type::kInteger, "1", 1, 1048576, "", "", "data-parallel ranks (replicas); training under mpirun or srun: the number of processes divided by parallel.tensor, which is the default there"},
    {"parallel.tensor", Type::kInteger, "1", 1, 1048576, "", "", "tensor-parallel ranks, each with a part of every matrix; training under mpirun or srun: neighbouring processes"},
    {"parallel.sequence", Type::kBool, "false", 0, 0, "", "", "sequence parallelism: between the products that tensor-parallel ranks divide, each rank keeps its share of the tokens"},
    {"parallel.pipeline", Type::kInteger, "1", 1, 1048576, "", "", "pipeline-parallel ranks"},
    {"parallel.interleave", Type::kInteger, "1", 1, 65536, "", "", "virtual pipeline stages per rank; 1 = non-interleaved 1F1B"},
    {"parallel.context", Type::kInteger, "1", 1, 1048576, "", "", "context-parallel ranks"},
    {"parallel.expert", Type::kInteger, "1", 1, 1048576, "", "", "expert-parallel ranks, taken from the data-parallel ranks"},
    {"parallel.zero", Type::kInteger, "0", 0, 3, "", "", "ZeRO stage over data- and context-parallel ranks; 1 shards optimizer state, 2 also gradients, 3 also weights"},
    {"parallel.communicator", Type::kText, "\"auto\"", 0, 0, "", "", "plugin that connects the processes of a run: mpi, nccl, or the name of another one; auto is nccl under torchrun, else mpi"},
    {"parallel.timeout", Type::kInteger, "600", 0, 1000000, "", "", "seconds after which a rank that waits for another one fails; 0 = never"},
    {"parallel.vocab_multiple", Type::kInteger, "1", 1, 1048576, "", "", "pad the vocabulary to a multiple of this value times parallel.tensor"},

    {"plan.mode", Type::kChoice, "\"train\"", 0, 0, "train|inference", "", "train | inference (weights and a KV cache of micro_batch x seq_len tokens)"},
    {"plan.framework", Type::kText, "", 0, 0, "", "\"pytorch\"", "whose training step is planned: trainhost, or a framework that an estimator describes (pytorch, transformers); default: trainhost"},
    {"plan.framework_version", Type::kText, "", 0, 0, "", "\"0.1\"", "release of the framework, where its estimator describes several (torchtitan: 0.0, 0.1, 0.2, 0.2.0; torchtune: 0.2, 0.4; litgpt: 2023, 0.4, 0.5; transformers: 4.36 to 4.57, 5; llama-factory: v1, its second format of files); default: the newest"},
    {"plan.execution", Type::kChoice, "", 0, 0, "eager|compile", "\"compile\"", "eager | compile (torch.compile): how the framework runs its model; default: eager"},
    {"plan.optimizer_implementation", Type::kChoice, "", 0, 0, "foreach|fused|for-loop", "\"fused\"", "foreach | fused | for-loop: the framework's implementation of the optimizer; default: its own default"},
    {"plan.checkpoint_reentrant", Type::kBool, "", 0, 0, "", "true", "the checkpoints of recomputed layers are reentrant (use_reentrant of torch.utils.checkpoint): each layer is recomputed to its end; default: true under axolotl, llama-factory and transformers 4, else false"},
    {"plan.liger_kernels", Type::kText, "", 0, 0, "", "\"rope,rms_norm,swiglu\"", "kernels of Liger in the layers: any of rope, rms_norm and swiglu, separated by commas, or none; default: all with plan.cross_entropy = \"liger\" (use_liger_kernel of TrainingArguments), else none, and none under axolotl"},
    {"plan.adapter_kernels", Type::kText, "", 0, 0, "", "\"mlp,qkv,o\"", "kernels of axolotl that compute adapters (lora_mlp_kernel, lora_qkv_kernel, lora_o_kernel): any of mlp, qkv and o, separated by commas, or none; default: all under axolotl, which switches them on by itself"},
    {"plan.quant_storage", Type::kChoice, "", 0, 0, "uint8|compute", "\"compute\"", "uint8 | compute: the packed weights of bitsandbytes are bytes, which FSDP2 leaves whole on each rank, or elements of the compute type, which FSDP shards (bnb_4bit_quant_storage); default: compute under llama-factory and FSDP1, which fails with uint8, else uint8"},
    {"plan.method", Type::kChoice, "", 0, 0, "sft|dpo", "\"dpo\"", "sft | dpo: training by preferences, where train.micro_batch counts pairs of a chosen and a rejected sequence and a reference model computes log-probabilities too; of transformers (DPOTrainer of TRL), axolotl and llama-factory; default: sft"},
    {"plan.reference_model", Type::kBool, "", 0, 0, "", "false", "whether the steps of DPO compute the reference (false: precompute_ref_log_probs); it is the model without adapters where adapters are trained, else a second model; default: true"},
    {"plan.quant_compute", Type::kChoice, "", 0, 0, "bf16|fp16", "\"fp16\"", "bf16 | fp16: type in which bitsandbytes multiplies 4-bit weights in training without mixed precision, train.precision = \"fp32\" (bnb_4bit_compute_dtype); default: fp32"},
    {"plan.keep_logits", Type::kChoice, "", 0, 0, "backward|loop", "\"backward\"", "backward | loop: a variable of a training loop of one's own keeps the model's output, with its logits, until the backward pass has ended (a variable of a function) or until the next output exists (output = model(...); output.loss.backward()); of pytorch, transformers, fsdp2 and deepspeed; default: the loss alone is kept, as by the Trainer of transformers"},
    {"plan.norms", Type::kChoice, "", 0, 0, "fp32", "\"fp32\"", "fp32: over a base in 4 bits the norms are in f32, and embedding and head in train.precision, as SFTTrainer of TRL before 1.0 casts them; default: all have one type"},
    {"plan.quant_experts", Type::kBool, "", 0, 0, "", "true", "whether the experts of a quantized base are quantized too, as axolotl's quantize_moe_experts does: transformers 5 stacks the experts of a layer in one parameter, which bitsandbytes leaves as it is; default: false in frameworks that train models of transformers"},
    {"plan.int8_outliers", Type::kInteger, "", 0, 1 << 20, "", "8", "columns of each input of a product in 8 bits (lora.base = \"int8\") that have a value of 6.0 or more, which LLM.int8() multiplies in 16 bits; at most those of the narrowest input; default: 0.1 % of them, rounded up"},
    {"plan.optimizer_in_backward", Type::kBool, "", 0, 0, "", "true", "a parameter is updated, and its gradient freed, when its gradient is complete; default: false"},
    {"plan.optimizer_paged", Type::kBool, "", 0, 0, "", "true", "bitsandbytes' paged optimizer: large moments are not memory of PyTorch's allocator; default: false"},
    {"plan.allocator", Type::kText, "", 0, 0, "", "\"expandable_segments:True\"", "settings of PyTorch's allocator, as in PYTORCH_CUDA_ALLOC_CONF"},
    {"plan.runtime", Type::kSize, "", 0, 0, "", "\"600MiB\"", "device memory of driver context and libraries under a framework; default: 512 MiB"},
    {"plan.allocator_margin", Type::kNumber, "", 0, 10, "", "0.1", "gaps of the framework's allocator that the closed form assumes, as a part of the memory that a step allocates and frees; default: 0.2"},
    {"plan.expert_tensor", Type::kInteger, "", 1, 1048576, "", "1", "tensor-parallel ranks over which each expert is divided, if not parallel.tensor; parallel.expert then divides the data x context x tensor ranks / this number (expert-tensor-parallel-size of Megatron-LM; 1 in torchtitan and ms-swift); default: parallel.tensor"},
    {"plan.first_stage_layers", Type::kInteger, "", 1, 1048576, "", "15", "layers of the first pipeline stage, which has the embedding too (decoder-first-pipeline-num-layers of Megatron-LM); default: as many as the other stages"},
    {"plan.last_stage_layers", Type::kInteger, "", 1, 1048576, "", "15", "layers of the last pipeline stage, which has the LM head too (decoder-last-pipeline-num-layers); default: as many as the other stages"},
    {"plan.fsdp_version", Type::kInteger, "", 1, 2, "", "1", "1 | 2: FSDP of transformers: 1 has flat parameters, 2 is fully_shard; default: 2, with transformers 4 1"},
    {"plan.backward_prefetch", Type::kChoice, "", 0, 0, "none|pre|post", "\"pre\"", "none | pre | post: FSDP1 gathers the weights of the next layer before or after the backward pass of a layer (backward_prefetch); default: none"},
    {"plan.forward_prefetch", Type::kBool, "", 0, 0, "", "true", "FSDP1 gathers the weights of the next layer before the forward pass of a layer; default: false"},
    {"plan.use_orig_params", Type::kBool, "", 0, 0, "", "false", "the optimizer of FSDP1 updates the parameters of the model, each padded to 16 bytes, not flat ones; default: true"},
    {"plan.float8_gather", Type::kBool, "", 0, 0, "", "false", "FSDP2 of torchtitan gathers the weights of 8-bit products in 8 bits (enable_fsdp_float8_all_gather); default: true"},
    {"plan.fsdp_replicas", Type::kInteger, "", 1, 65536, "", "4", "FSDP2 of torchtitan divides the weights over parallel.data / fsdp_replicas ranks, and the replicas sum their gradients (data_parallel_replicate_degree); default: 1"},
    {"plan.selective_layers", Type::kInteger, "", 1, 65536, "", "2", "with train.recompute = \"selective\": torchtitan recomputes every n-th layer whole, and keeps what the others save (selective_ac_option = \"2\"); default: every layer, by operator"},
    {"plan.no_sync", Type::kBool, "", 0, 0, "", "true", "FSDP reduces gradients in the last micro-batch only, and keeps those of all weights until then; default: true under transformers, as its Trainer does, else false"},
    {"plan.ddp_bucket", Type::kSize, "", 0, 0, "", "\"100MiB\"", "size of the buckets of gradients of DistributedDataParallel (bucket_cap_mb); default: 25 MiB"},
    {"plan.gradient_as_bucket_view", Type::kBool, "", 0, 0, "", "true", "gradients are views of the buckets of DistributedDataParallel, so they exist once; default: false"},
    {"plan.reduce_bucket", Type::kInteger, "", 0, 1000000000000000, "", "200000000", "elements of gradients that DeepSpeed reduces together (reduce_bucket_size); 0 = the square of the hidden size, with which transformers replaces \"auto\"; default: 500000000"},
    {"plan.overlap_reduce", Type::kBool, "", 0, 0, "", "true", "DeepSpeed reduces gradients during the backward pass, with a second bucket (overlap_comm); default: false"},
    {"plan.prefetch_bucket", Type::kInteger, "", -1, 1000000000000000, "", "50000000", "elements of weights that stage 3 of DeepSpeed gathers early (stage3_prefetch_bucket_size); -1 = 0.9 times the square of the hidden size, with which transformers replaces \"auto\"; default: 50000000"},
    {"plan.persistence_threshold", Type::kInteger, "", -1, 1000000000000000, "", "100000", "elements up to which stage 3 of DeepSpeed keeps a weight gathered (stage3_param_persistence_threshold); -1 = 10 times the hidden size, with which transformers replaces \"auto\"; default: 100000"},
    {"plan.max_live", Type::kInteger, "", 0, 1000000000000000, "", "1000000000", "elements of weights above which stage 3 of DeepSpeed gathers none early (stage3_max_live_parameters); default: 1000000000"},
    {"plan.reuse_distance", Type::kInteger, "", 0, 1000000000000000, "", "1000000000", "elements of weights until the next use of one that stage 3 of DeepSpeed keeps gathered (stage3_max_reuse_distance); default: 1000000000"},
    {"plan.context_exchange", Type::kChoice, "", 0, 0, "p2p|a2a", "\"a2a\"", "p2p (keys and values are sent around a ring) | a2a (each rank gets all tokens of a part of the heads): context parallelism of Megatron-LM (--cp-comm-type); default: p2p"},
    {"plan.recompute_modules", Type::kText, "", 0, 0, "", "\"moe_act,layernorm\"", "modules that selective recomputation of Megatron-LM recomputes: any of core_attn, moe_act, layernorm, mla_up_proj, mlp, moe and shared_experts, separated by commas (--recompute-modules); default: core_attn"},
    {"plan.router_type", Type::kChoice, "", 0, 0, "fp32|bf16", "\"bf16\"", "fp32 | bf16: type of the scores of Megatron-LM's router, in which the results of an expert on several ranks are summed (--moe-router-dtype); default: fp32"},
    {"plan.separate_ends", Type::kBool, "", 0, 0, "", "true", "embedding and head are units of FSDP2, gathered for their own passes only (custom_sharded_layers of torchtune); false: they belong to the root unit, which stays gathered; default: false"},
    {"plan.compiled_loss", Type::kBool, "", 0, 0, "", "true", "with cross_entropy = \"plain\": the loss of Megatron Core is compiled, and its backward pass copies the softmax of the logits in f32 (--cross-entropy-loss-fusion with the implementation \"native\"); default: false"},
    {"plan.rope_fusion", Type::kBool, "", 0, 0, "", "false", "one kernel computes the rotary embedding in Megatron-LM (false: --no-rope-fusion, and the default of ms-swift); default: true"},
    {"plan.fp8_recipe", Type::kChoice, "", 0, 0, "delayed|tensorwise|blockwise|mxfp8|nvfp4", "\"tensorwise\"", "delayed | tensorwise | blockwise | mxfp8 | nvfp4: recipe of Transformer Engine for the products of Megatron-LM's layers in 8 or 4 bits (--fp8-recipe, --fp4-recipe); default: products in the type of the weights"},
    {"plan.fp8_weights", Type::kBool, "", 0, 0, "", "true", "Megatron-LM keeps the weights of these products in 8 bits (--fp8-param-gather; with mxfp8 also --reuse-grad-buf-for-mxfp8-param-ag); default: false, a quantized copy beside each weight"},
    {"plan.fp8_swiglu_input", Type::kBool, "", 0, 0, "", "true", "Megatron-LM keeps the input of SwiGLU in 8 bits (--activation-func-fp8-input-store); default: false"},
    {"plan.amax_history", Type::kInteger, "", 1, 1048576, "", "1024", "maxima that delayed scaling keeps per tensor (--fp8-amax-history-len); default: 1"},
    {"plan.bf16_first_layers", Type::kInteger, "", 0, 1048576, "", "1", "first layers of Megatron-LM whose products are not quantized (--first-last-layers-bf16, --num-layers-at-start-in-bf16); default: 0"},
    {"plan.bf16_last_layers", Type::kInteger, "", 0, 1048576, "", "1", "last layers whose products are not quantized (--num-layers-at-end-in-bf16); default: 0"},
    {"plan.safe", Type::kBool, "false", 0, 0, "", "", "judge by upper bounds: add the margin that the estimator states"},
    {"plan.weights", Type::kChoice, "", 0, 0, "fp32|bf16|fp16|fp8|int8|int4|nf4", "\"bf16\"", "type of the weights; default: follows train.precision"},
    {"plan.gradients", Type::kChoice, "", 0, 0, "fp32|bf16|fp16|fp8", "\"fp32\"", "type of the gradients; default: fp32"},
    {"plan.master", Type::kChoice, "", 0, 0, "none|fp32|bf16", "\"fp32\"", "type of the master weights; default: fp32 if the weights are narrower; for QLoRA of transformers, none = embedding, norms and head are not cast to fp32"},
    {"plan.moments", Type::kChoice, "", 0, 0, "fp32|bf16|fp16|fp8", "\"fp32\"", "type of the optimizer state; default: fp32"},
    {"plan.attention", Type::kChoice, "\"flash\"", 0, 0, "flash|flash_attention_2|materialised", "", "flash | flash_attention_2 (the package flash-attn, which transformers calls instead of SDPA) | materialised (the scores are kept in memory)"},
    {"plan.cross_entropy", Type::kChoice, "\"fused\"", 0, 0, "fused|plain|in-place|chunked|liger|cut", "", "fused (logits in chunks of tokens, one at a time) | plain (logits and their gradient are materialised, as Hugging Face does in f32) | in-place (one buffer for both: fused loss of Megatron-LM) | chunked (logits in chunks that exist together, CEWithChunkedOutputLoss of torchtune) | liger (fused linear cross-entropy of Liger) | cut (Cut Cross Entropy: no logits in memory); under a framework the default is its own"},
    {"plan.offload_weights", Type::kChoice, "\"none\"", 0, 0, "none|cpu|nvme", "", "none | cpu | nvme: tier that the weights are offloaded to"},
    {"plan.offload_optimizer", Type::kChoice, "\"none\"", 0, 0, "none|cpu|nvme", "", "none | cpu | nvme: tier that the optimizer state is offloaded to"},
    {"plan.offload_gradients", Type::kChoice, "", 0, 0, "none|cpu|nvme", "\"cpu\"", "none | cpu | nvme: tier that the gradients are offloaded to; default: none, with DeepSpeed that of the optimizer state"},
    {"plan.offload_activations", Type::kChoice, "\"none\"", 0, 0, "none|cpu|nvme", "", "none | cpu | nvme: tier that the activations are offloaded to"},
    {"plan.kv_cache", Type::kChoice, "", 0, 0, "fp32|bf16|fp16|fp8|int8|int4", "\"fp8\"", "type of the KV cache; default: type of the weights, bf16 if they are quantized"},
    {"plan.prefill_chunk", Type::kInteger, "", 1, 16777216, "", "2048", "tokens of the prompts that go through the model together (chunked prefill); default: all"},
    {"plan.kv_page", Type::kInteger, "1", 1, 65536, "", "", "tokens per page of the KV cache"},

    {"lora.rank", Type::kInteger, "", 1, 65536, "", "8", "rank of the adapters; default: 8"},
    {"lora.alpha", Type::kNumber, "", kTiny, 1e6, "", "16.0", "numerator of the adapter scale alpha / rank; default: 16"},
    {"lora.rslora", Type::kBool, "", 0, 0, "", "true", "scale the adapters by alpha / sqrt(rank) (rsLoRA)"},
    {"lora.dropout", Type::kNumber, "", 0, 0.99, "", "0.05", "fraction of the elements of the adapters' inputs that is set to 0 in training; one mask per input, which q, k and v share, as do gate and up; default: 0, with litgpt 0.05"},
    {"lora.targets", Type::kTexts, "", 0, 0, "", "[\"q_proj\", \"v_proj\"]", "matrices that get an adapter, or \"all-linear\" for every matrix of a layer, or patterns of names of single matrices as \"layers.1?.mlp.*\"; also \"lm_head\" and \"embed_tokens\", which patterns do not match; default: q_proj and v_proj"},
    {"lora.rank_pattern", Type::kTexts, "", 0, 0, "", "[\"down_proj = 32\"]", "other ranks of some matrices: patterns of their names, each with a rank; the first that matches holds, else lora.rank; q, k and v of a layer have one rank, as have gate and up"},
    {"lora.alpha_pattern", Type::kTexts, "", 0, 0, "", "[\"layers.0.* = 8\"]", "other alphas, likewise"},
    {"lora.modules_to_save", Type::kTexts, "", 0, 0, "", "[\"norm\"]", "modules that are trained whole and saved with the adapters, as in PEFT: all whose names end in one of these, so \"norm\" means every norm; \"embed_tokens\" of a model whose LM head is the embedding is trained once, as with ensure_weight_tying; other frameworks (--for): \"lm_head\" and \"embed_tokens\", of which a frozen module and a trained copy are planned; default: none"},
    {"lora.base", Type::kChoice, "", 0, 0, "fp32|bf16|fp16|fp8|int8|nf4", "\"nf4\"", "type of the frozen weights; nf4 = QLoRA: the matrices of the layers are quantized while they are loaded; default: follows train.precision; the other types can only be planned"},
    {"lora.double_quant", Type::kBool, "", 0, 0, "", "true", "with nf4: quantize the block scales to 8 bits too"},
    {"lora.dora", Type::kBool, "", 0, 0, "", "true", "DoRA: also train the magnitude of each row of the adapted matrices, of the embedding of each column"},
    {"lora.ensure_weight_tying", Type::kBool, "", 0, 0, "", "true", "one adapter of embedding and LM head where both are one tensor, as in PEFT, with \"embed_tokens\" or \"lm_head\" in lora.targets; else each has an adapter of its own"},

    {"output.dir", Type::kPath, "", 0, 0, "", "\"runs/builtin\"", "folder of metrics, checkpoints and model/; default: runs/NAME in the current directory"},
    {"output.checkpoint_every", Type::kInteger, "0", 0, kMany, "", "", "optimizer steps between checkpoints; 0 = only when the run is stopped"},
    {"output.keep", Type::kInteger, "2", 1, 1000000, "", "", "number of checkpoints to keep"},
    {"output.keep_best", Type::kBool, "false", 0, 0, "", "", "also write and keep the checkpoint with the lowest validation loss"},
    {"output.model", Type::kChoice, "", 0, 0, "last|best", "\"best\"", "last | best: model/ or adapter/ has the weights after the last step, or those with the lowest validation loss, whose checkpoint is kept; default: last, with train.early_stopping best"},
    {"output.dtype", Type::kChoice, "", 0, 0, "fp32|bf16|fp16", "\"bf16\"", "fp32 | bf16 | fp16: type of the weights in model/; default: that of the weights in model.path, or else fp32"},
    {"output.report", Type::kBool, "true", 0, 0, "", "", "write report.html at the end of the run: curves, memory, settings, samples"},
    {"output.sample_every", Type::kInteger, "0", 0, kMany, "", "", "optimizer steps between samples of generated text; 0 = only at the end"},
    {"output.async_checkpoints", Type::kBool, "false", 0, 0, "", "", "training waits only until weights and moments are copied in host memory; the plan includes the copy"},
    {"output.tensorboard", Type::kBool, "true", 0, 0, "", "", "write event files for TensorBoard, in the folder tb of output.dir"},

    {"plugins.path", Type::kPaths, "", 0, 0, "", "[\"plugins\"]", "folders searched for plugins before the default folders"},
    {"plugins.allow", Type::kTexts, "", 0, 0, "", "[\"sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855\"]",
     "SHA-256 digests (see sha256sum) of the only plugin files accepted from outside the program's own folders"},
    {"plugins.order", Type::kTexts, "", 0, 0, "", "[\"cuda\", \"cpu\"]", "order in which auto tries backends; an unavailable backend falls back to the next one; default: cuda, then cpu"},
};
// clang-format on

// Order of the tables in the generated run file. A sub-table has no text of its own.
constexpr Table kTables[] = {
    {"model", "Model to train. Without any of these keys: the built-in model."},
    {"model.rope_scaling", ""},
    {"data", "Training data. Without data.train: the built-in text, with one token per byte."},
    {"data.keys", ""},
    {"train", "Backend, precision, batch size and length of the training."},
    {"optimizer", "Optimizer and learning rate."},
    {"memory", "Memory budgets and estimators of the plan."},
    {"memory.estimators", ""},
    {"parallel",
     "Parallelism. Training has data-parallel ranks, with ZeRO 0 to 3, and tensor-parallel ones, in the "
     "processes that mpirun or srun starts; plan and search use all keys."},
    {"plan", "Assumptions of plan, search and sweep. Training accepts only the defaults."},
    {"lora",
     "Low-rank adapters (LoRA): with this table only the adapters are trained; the weights of the model are "
     "frozen. The result is a PEFT folder, adapter/."},
    {"output", "Output files."},
    {"plugins", "Plugins."},
    {"plugin", "Options of one plugin, in a table [plugin.NAME]."},
};

// Names of Hugging Face, nanoGPT and llm.c. They are suggestions only: an alias would give one setting two
// names.
constexpr ForeignName kForeignNames[] = {
    {"batch_size", "train.micro_batch"},
    {"per_device_train_batch_size", "train.micro_batch"},
    {"gradient_accumulation_steps", "train.grad_accum"},
    {"max_steps", "train.steps"},
    {"max_iters", "train.steps"},
    {"num_train_epochs", "train.epochs"},
    {"early_stopping_patience", "train.early_stopping"},
    {"early_stopping_threshold", "train.early_stopping_min_delta"},
    {"load_best_model_at_end", "output.model"},
    {"block_size", "data.seq_len"},
    {"seq_length", "data.seq_len"},
    {"max_seq_length", "data.seq_len"},
    {"max_length", "data.seq_len"},
    {"sequence_len", "data.seq_len"},
    {"context_length", "data.seq_len"},
    {"dtype", "train.precision"},
    {"gradient_checkpointing", "train.recompute"},
    {"optim", "optimizer.name"},
    {"tp", "parallel.tensor"},
    {"pp", "parallel.pipeline"},
    {"dp", "parallel.data"},
    {"cp", "parallel.context"},
    {"ep", "parallel.expert"},
    {"tensor_parallel_degree", "parallel.tensor"},
    {"pipeline_parallel_degree", "parallel.pipeline"},
    {"lora_rank", "lora.rank"},
    {"lora_r", "lora.rank"},
    {"learning_rate", "optimizer.lr"},
    {"lr_scheduler_type", "optimizer.schedule"},
    {"max_grad_norm", "optimizer.grad_clip"},
    {"warmup_iters", "optimizer.warmup_steps"},
    {"num_decay_steps", "optimizer.decay_steps"},
    {"eval_interval", "train.eval_every"},
    {"out_dir", "output.dir"},
    {"output_dir", "output.dir"},
    {"save_steps", "output.checkpoint_every"},
    {"n_layer", "model.num_hidden_layers"},
    {"n_head", "model.num_attention_heads"},
    {"n_embd", "model.hidden_size"},
};

/// All keys and tables, built once; for suggestions.
const std::vector<std::string>& all_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> out;
    for (const Key& k : kKeys) out.emplace_back(k.name);
    for (const Table& t : kTables) out.emplace_back(t.name);
    return out;
  }();
  return names;
}

/// The part behind the last dot, and the part before it.
std::string_view last_part(std::string_view name) { return name.substr(name.rfind('.') + 1); }
std::string_view table_of(std::string_view name) {
  const auto dot = name.rfind('.');
  return dot == name.npos ? std::string_view() : name.substr(0, dot);
}

}  // namespace

std::span<const Key> schema() { return kKeys; }
std::span<const Table> tables() { return kTables; }
std::span<const ForeignName> foreign_names() { return kForeignNames; }

/// By hash: --set and sweeps look up keys thousands of times.
const Key* find_key(std::string_view name) {
  static const std::unordered_map<std::string_view, const Key*> by_name = [] {
    std::unordered_map<std::string_view, const Key*> all;
    for (const Key& key : kKeys) all.emplace(key.name, &key);
    return all;
  }();
  const auto k = by_name.find(name);
  return k == by_name.end() ? nullptr : k->second;
}

bool is_table(std::string_view name) {
  return std::any_of(std::begin(kTables), std::end(kTables), [&](const Table& t) { return name == t.name; });
}

std::string nearest_key(std::string_view name) {
  // Order of preference: a misspelt key in the given table, the same key in another table, a foreign name.
  std::vector<std::string> same_table, same_last_part;
  for (const std::string& n : all_names()) {
    if (table_of(n) == table_of(name)) same_table.push_back(std::string(last_part(n)));
    if (last_part(n) == last_part(name)) same_last_part.push_back(n);
  }
  const std::string prefix(name.substr(0, name.size() - last_part(name).size()));
  if (const auto word = nearest(last_part(name), same_table)) return prefix + *word;
  if (!same_last_part.empty()) return same_last_part.front();
  for (const ForeignName& f : kForeignNames)
    if (f.name == last_part(name)) return std::string(f.key);
  // Nothing in the same table or under the same name: compare with all full names.
  return nearest(name, all_names()).value_or("");
}

std::string suggest_key(std::string_view name) {
  const std::string key = nearest_key(name);
  return key.empty() ? "" : fmt::format("; did you mean '{}'?", key);
}

}  // namespace trainhost::runfile
