// Config fields that do not change parameters, activations or the KV cache. A field that is neither here nor
// read by the family's reader gets a note in the plan.
#include <algorithm>
#include <iterator>

#include "core/model/config_fields.hpp"

namespace trainhost::model {
namespace {

/// Sorted, for the binary search below. Five groups, which the order mixes:
/// - arithmetic without weights: activation functions, scales, soft caps, clipping, ALiBi, rotary angles;
/// - routing rules of experts (groups, scores, normalization): the number of active experts is read;
/// - training only: dropout, initial values, weights of auxiliary losses;
/// - generation: defaults of sampling and its limits;
/// - tokens, labels and names, and settings of other software (versions, kernels, output options).
/// Before adding a field, look it up in the transformers class: a field that adds a weight (a bias, a norm, a
/// projection) belongs in the reader, and must not be here.
constexpr std::string_view kIgnoredFields[] = {
    "_attn_implementation",
    "_from_model_config",
    "_name_or_path",
    "activation",
    "activation_function",
    "alibi",
    "alibi_bias_max",
    "alpha",
    "apply_residual_connection_post_layernorm",
    "architectures",
    "attention_dropout",
    "attention_multiplier",
    "attention_softmax_in_fp32",
    "attn_impl",
    "attn_implementation",
    "attn_logit_softcapping",
    "attn_scale",
    "attn_temperature_tuning",
    "attn_uses_sequence_id",
    "auto_map",
    "aux_loss_alpha",
    "bos_token_id",
    "cache_implementation",
    "chunk_size_feed_forward",
    "clip_qkv",
    "decoder_start_token_id",
    "do_sample",
    "dropout",
    "dtype",
    "early_stopping",
    "embedding_multiplier",
    "eos_token_id",
    "ep_size",
    "final_logit_softcapping",
    "finetuning_task",
    "floor_scale",
    "for_llm_compressor",
    "hidden_act",
    "hidden_activation",
    "id2label",
    "init_config",
    "init_device",
    "initial_context_length",
    "initializer_range",
    "input_jitter_noise",
    "is_llama_config",
    "label2id",
    "layerdrop",
    "length_penalty",
    "logit_scale",
    "logits_scaling",
    "mamba_hidden_act",
    "mamba_ssm_cache_dtype",
    "mamba_ssm_dtype",
    "max_length",
    "max_new_tokens",
    "min_length",
    "mlp_hidden_act",
    "mlp_type",
    "model_max_length",
    "model_type",
    "moe_norm_min",
    "moe_shared_expert_overlap",
    "n_ctx",
    "n_group",
    "n_special",
    "name",
    "norm_topk_prob",
    "num_beams",
    "num_logits_to_keep",
    "original_max_position_embeddings",
    "output_attentions",
    "output_hidden_states",
    "output_router_logits",
    "partial_rotary_factor",
    "position_embedding_type",
    "predict_special_tokens",
    "prefix",
    "prefix_lm",
    "pretraining_tp",
    "problem_type",
    "query_pre_attn_scalar",
    "reorder_and_upcast_attn",
    "rescale_prenorm_residual",
    "residual_in_fp32",
    "residual_multiplier",
    "return_dict",
    "rope",
    "rope_interleave",
    "rope_interleaved",
    "rope_local_base_freq",
    "rope_parameters",
    "rope_scaling",
    "rope_theta",
    "rotary",
    "rotary_base",
    "rotary_emb_base",
    "rotary_pct",
    "routed_scaling_factor",
    "router_jitter_noise",
    "scale_attention_softmax_in_fp32",
    "scale_attn_by_inverse_layer_idx",
    "scale_attn_weights",
    "scoring_func",
    "seq_aux",
    "softmax_scale",
    "swiglu_alpha",
    "swiglu_limit",
    "task_specific_params",
    "temperature",
    "time_step_floor",
    "time_step_limit",
    "time_step_max",
    "time_step_min",
    "tokenizer_class",
    "tokenizer_name",
    "top_k",
    "top_p",
    "topk_group",
    "topk_method",
    "torch_dtype",
    "torchscript",
    "transformers.js_config",
    "transformers_version",
    "use_bidirectional_attention",
    "use_cache",
    "use_embedding_sharing",
    "use_flash_attn",
    "use_gated_activation",
    "use_mamba_kernels",
    "use_parallel_block",
    "use_parallel_embedding",
    "verbose",
};
static_assert(std::ranges::is_sorted(kIgnoredFields));

// Families of names, so that the list need not have one entry per loss coefficient and kind of token.
constexpr std::string_view kIgnoredSuffixes[] = {"_coef",    "_dropout",  "_dropout_prob", "_eps",
                                                 "_epsilon", "_init_std", "_pdrop",        "_std",
                                                 "_token",   "_token_id", "_token_ids",    "_token_index"};
constexpr std::string_view kIgnoredPrefixes[] = {"initializer_", "summary_"};

}  // namespace

bool is_ignored_field(std::string_view name) {
  return std::binary_search(std::begin(kIgnoredFields), std::end(kIgnoredFields), name) ||
         std::ranges::any_of(kIgnoredSuffixes, [&](auto end) { return name.ends_with(end); }) ||
         std::ranges::any_of(kIgnoredPrefixes, [&](auto begin) { return name.starts_with(begin); });
}

}  // namespace trainhost::model
