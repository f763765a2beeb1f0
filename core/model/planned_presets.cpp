// Presets of models that are planned but not trained: the published config fields that determine tensors,
// entered by hand. Fields that ignored_fields.cpp lists are left out. A preset goes through the same reader
// as a user's config.json, so the table also tests the readers. tests/core/model/totals_test.cpp compares
// every parameter count with the published one.
#include <algorithm>
#include <array>
#include <mutex>

#include "core/model/architecture.hpp"

namespace trainhost::model {
namespace {

// Names are in lower case. Flags such as tie_word_embeddings are stated even where they equal the default of
// the class: published configs often omit them, and defaults change with versions of transformers.
struct Row {
  const char *name, *family;
  const char* fields;  // "key value, key value": values in JSON syntax
};

// clang-format off
#define SLIDING "\"sliding_attention\", "
#define FIVE_OF_GEMMA SLIDING SLIDING SLIDING SLIDING "\"full_attention\", "
#define MAMBA "\"mamba\", "
#define NINE_MAMBA MAMBA MAMBA MAMBA MAMBA MAMBA MAMBA MAMBA MAMBA MAMBA
#define ATTENTION "\"attention\", "
#define LAYERS_OF_GRANITE_4 MAMBA MAMBA MAMBA MAMBA MAMBA ATTENTION NINE_MAMBA ATTENTION NINE_MAMBA ATTENTION \
  NINE_MAMBA ATTENTION MAMBA MAMBA MAMBA "\"mamba\""
#define LINEAR "\"linear_attention\", "
#define FOUR_OF_KIMI LINEAR LINEAR LINEAR "\"full_attention\", "
#define LAYERS_OF_KIMI_LINEAR \
  FOUR_OF_KIMI FOUR_OF_KIMI FOUR_OF_KIMI FOUR_OF_KIMI FOUR_OF_KIMI FOUR_OF_KIMI LINEAR LINEAR "\"full_attention\""
constexpr Row kRows[] = {
    {"aya-23-8b", "cohere",
     "vocab_size 256000, hidden_size 4096, num_hidden_layers 32, num_attention_heads 32, num_key_value_heads 8,"
     "intermediate_size 14336, use_qk_norm false, attention_bias false, max_position_embeddings 8192,"
     "tie_word_embeddings true"},
    {"baichuan2-13b", "baichuan",
     "vocab_size 125696, hidden_size 5120, num_hidden_layers 40, num_attention_heads 40, intermediate_size 13696,"
     "max_position_embeddings 4096, tie_word_embeddings false"},
    {"baichuan2-7b", "baichuan",
     "vocab_size 125696, hidden_size 4096, num_hidden_layers 32, num_attention_heads 32, intermediate_size 11008,"
     "max_position_embeddings 4096, tie_word_embeddings false"},
    {"cerebras-gpt-1.3b", "gpt2", "vocab_size 50257, n_embd 2048, n_layer 24, n_head 16, n_positions 2048"},
    {"cerebras-gpt-111m", "gpt2", "vocab_size 50257, n_embd 768, n_layer 10, n_head 12, n_positions 2048"},
    {"command-r-35b", "cohere",
     "vocab_size 256000, hidden_size 8192, num_hidden_layers 40, num_attention_heads 64, num_key_value_heads 64,"
     "intermediate_size 22528, use_qk_norm false, attention_bias false, max_position_embeddings 131072, tie_word_embeddings true"},
    {"command-r7b", "cohere2",
     "vocab_size 256000, hidden_size 4096, num_hidden_layers 32, num_attention_heads 32, num_key_value_heads 8,"
     "intermediate_size 14336, sliding_window 4096, sliding_window_pattern 4, attention_bias false,"
     "max_position_embeddings 132096, tie_word_embeddings true"},
    {"deepseek-moe-16b", "deepseek",
     "vocab_size 102400, hidden_size 2048, num_hidden_layers 28, num_attention_heads 16, num_key_value_heads 16,"
     "intermediate_size 10944, moe_intermediate_size 1408, n_routed_experts 64, n_shared_experts 2, num_experts_per_tok 6,"
     "first_k_dense_replace 1, moe_layer_freq 1, attention_bias false, max_position_embeddings 4096, tie_word_embeddings false"},
    {"deepseek-v2", "deepseek_v2",
     "vocab_size 102400, hidden_size 5120, num_hidden_layers 60, num_attention_heads 128, num_key_value_heads 128,"
     "q_lora_rank 1536, kv_lora_rank 512, qk_rope_head_dim 64, qk_nope_head_dim 128, v_head_dim 128, intermediate_size 12288,"
     "moe_intermediate_size 1536, n_routed_experts 160, n_shared_experts 2, num_experts_per_tok 6, first_k_dense_replace 1,"
     "moe_layer_freq 1, attention_bias false, max_position_embeddings 163840, tie_word_embeddings false"},
    // q_lora_rank null differs from an absent field, for which the class uses 1536.
    {"deepseek-v2-lite", "deepseek_v2",
     "vocab_size 102400, hidden_size 2048, num_hidden_layers 27, num_attention_heads 16, num_key_value_heads 16,"
     "q_lora_rank null, kv_lora_rank 512, qk_rope_head_dim 64, qk_nope_head_dim 128, v_head_dim 128, intermediate_size 10944,"
     "moe_intermediate_size 1408, n_routed_experts 64, n_shared_experts 2, num_experts_per_tok 6, first_k_dense_replace 1,"
     "moe_layer_freq 1, attention_bias false, max_position_embeddings 163840, tie_word_embeddings false"},
    {"deepseek-v3", "deepseek_v3",
     "vocab_size 129280, hidden_size 7168, num_hidden_layers 61, num_attention_heads 128, num_key_value_heads 128,"
     "q_lora_rank 1536, kv_lora_rank 512, qk_rope_head_dim 64, qk_nope_head_dim 128, v_head_dim 128, intermediate_size 18432,"
     "moe_intermediate_size 2048, n_routed_experts 256, n_shared_experts 1, num_experts_per_tok 8, first_k_dense_replace 3,"
     "moe_layer_freq 1, topk_method \"noaux_tc\", num_nextn_predict_layers 1, attention_bias false,"
     "max_position_embeddings 163840, tie_word_embeddings false"},
    {"distilgpt2", "gpt2", "vocab_size 50257, n_embd 768, n_layer 6, n_head 12, n_positions 1024"},
    {"ernie-4.5-0.3b", "ernie4_5",
     "vocab_size 103424, hidden_size 1024, num_hidden_layers 18, num_attention_heads 16, num_key_value_heads 2, head_dim 128,"
     "intermediate_size 3072, use_bias false, max_position_embeddings 131072, tie_word_embeddings true"},
    {"ernie-4.5-21b-a3b", "ernie4_5_moe",
     "vocab_size 103424, hidden_size 2560, num_hidden_layers 28, num_attention_heads 20, num_key_value_heads 4,"
     "intermediate_size 12288, moe_intermediate_size 1536, moe_num_experts 64, moe_k 6, moe_num_shared_experts 2,"
     "moe_layer_start_index 1, moe_layer_interval 1, use_bias false, max_position_embeddings 131072, tie_word_embeddings true"},
    {"falcon-40b", "falcon",
     "vocab_size 65024, hidden_size 8192, num_hidden_layers 60, num_attention_heads 128, num_kv_heads 8,"
     "multi_query true, parallel_attn true, new_decoder_architecture true, bias false, alibi false"},
    {"falcon-7b", "falcon",
     "vocab_size 65024, hidden_size 4544, num_hidden_layers 32, num_attention_heads 71, multi_query true, parallel_attn true,"
     "new_decoder_architecture false, bias false, alibi false"},
    {"gemma-2-27b", "gemma2",
     "vocab_size 256000, hidden_size 4608, num_hidden_layers 46, num_attention_heads 32, num_key_value_heads 16, head_dim 128,"
     "intermediate_size 36864, sliding_window 4096, attention_bias false, max_position_embeddings 8192"},
    {"gemma-2-2b", "gemma2",
     "vocab_size 256000, hidden_size 2304, num_hidden_layers 26, num_attention_heads 8, num_key_value_heads 4, head_dim 256,"
     "intermediate_size 9216, sliding_window 4096, attention_bias false, max_position_embeddings 8192"},
    {"gemma-2-9b", "gemma2",
     "vocab_size 256000, hidden_size 3584, num_hidden_layers 42, num_attention_heads 16, num_key_value_heads 8, head_dim 256,"
     "intermediate_size 14336, sliding_window 4096, attention_bias false, max_position_embeddings 8192"},
    {"gemma-2b", "gemma",
     "vocab_size 256000, hidden_size 2048, num_hidden_layers 18, num_attention_heads 8, num_key_value_heads 1, head_dim 256,"
     "intermediate_size 16384, attention_bias false, max_position_embeddings 8192"},
    // One of six layers has full attention; the others have the window. From 4B on with a vision tower, which the reader
    // of gemma3 leaves out with a note.
    {"gemma-3-12b", "gemma3",
     "vocab_size 262208, hidden_size 3840, num_hidden_layers 48, num_attention_heads 16, num_key_value_heads 8, head_dim 256,"
     "intermediate_size 15360, sliding_window 1024, sliding_window_pattern 6, attention_bias false, max_position_embeddings 131072"},
    {"gemma-3-1b", "gemma3_text",
     "vocab_size 262144, hidden_size 1152, num_hidden_layers 26, num_attention_heads 4, num_key_value_heads 1, head_dim 256,"
     "intermediate_size 6912, sliding_window 512, sliding_window_pattern 6, attention_bias false, max_position_embeddings 32768"},
    {"gemma-3-270m", "gemma3_text",
     "vocab_size 262144, hidden_size 640, num_hidden_layers 18, num_attention_heads 4, num_key_value_heads 1, head_dim 256,"
     "intermediate_size 2048, sliding_window 512, sliding_window_pattern 6, attention_bias false, max_position_embeddings 32768"},
    {"gemma-3-27b", "gemma3",
     "vocab_size 262208, hidden_size 5376, num_hidden_layers 62, num_attention_heads 32, num_key_value_heads 16, head_dim 128,"
     "intermediate_size 21504, sliding_window 1024, sliding_window_pattern 6, attention_bias false, max_position_embeddings 131072"},
    {"gemma-3-4b", "gemma3",
     "vocab_size 262208, hidden_size 2560, num_hidden_layers 34, num_attention_heads 8, num_key_value_heads 4, head_dim 256,"
     "intermediate_size 10240, sliding_window 1024, sliding_window_pattern 6, attention_bias false, max_position_embeddings 131072"},
    {"gemma-4-26b-a4b", "gemma4",
     "vocab_size 262144, hidden_size 2816, num_hidden_layers 30, num_attention_heads 16, num_key_value_heads 8, head_dim 256,"
     "global_head_dim 512, num_global_key_value_heads 2, attention_k_eq_v true, intermediate_size 2112, enable_moe_block true,"
     "num_experts 128, top_k_experts 8, moe_intermediate_size 704, sliding_window 1024, num_kv_shared_layers 0,"
     "use_double_wide_mlp false, hidden_size_per_layer_input 0, max_position_embeddings 262144"},
    {"gemma-4-31b", "gemma4",
     "vocab_size 262144, hidden_size 5376, num_hidden_layers 60, num_attention_heads 32, num_key_value_heads 16, head_dim 256,"
     "global_head_dim 512, num_global_key_value_heads 4, attention_k_eq_v true, intermediate_size 21504, sliding_window 1024,"
     "num_kv_shared_layers 0, use_double_wide_mlp false, hidden_size_per_layer_input 0, max_position_embeddings 262144"},
    // Full attention in every fifth layer of E2B, in every sixth of the others.
    {"gemma-4-e2b", "gemma4",
     "vocab_size 262144, hidden_size 1536, num_hidden_layers 35, num_attention_heads 8, num_key_value_heads 1, head_dim 256,"
     "global_head_dim 512, attention_k_eq_v false, intermediate_size 6144, sliding_window 512, num_kv_shared_layers 20,"
     "use_double_wide_mlp true, hidden_size_per_layer_input 256, vocab_size_per_layer_input 262144,"
     "max_position_embeddings 131072, layer_types [" FIVE_OF_GEMMA FIVE_OF_GEMMA FIVE_OF_GEMMA FIVE_OF_GEMMA FIVE_OF_GEMMA
     FIVE_OF_GEMMA SLIDING SLIDING SLIDING SLIDING "\"full_attention\"]"},
    {"gemma-4-e4b", "gemma4",
     "vocab_size 262144, hidden_size 2560, num_hidden_layers 42, num_attention_heads 8, num_key_value_heads 2, head_dim 256,"
     "global_head_dim 512, attention_k_eq_v false, intermediate_size 10240, sliding_window 512, num_kv_shared_layers 18,"
     "use_double_wide_mlp false, hidden_size_per_layer_input 256, vocab_size_per_layer_input 262144,"
     "max_position_embeddings 131072"},
    {"gemma-7b", "gemma",
     "vocab_size 256000, hidden_size 3072, num_hidden_layers 28, num_attention_heads 16, num_key_value_heads 16, head_dim 256,"
     "intermediate_size 24576, attention_bias false, max_position_embeddings 8192"},
    {"glm-4-32b-0414", "glm4",
     "vocab_size 151552, hidden_size 6144, num_hidden_layers 61, num_attention_heads 48, num_key_value_heads 2,"
     "head_dim 128, intermediate_size 23040, attention_bias false, max_position_embeddings 32768,"
     "tie_word_embeddings false"},
    {"glm-4-9b", "glm",
     "vocab_size 151552, hidden_size 4096, num_hidden_layers 40, num_attention_heads 32, num_key_value_heads 2, head_dim 128,"
     "intermediate_size 13696, attention_bias true, max_position_embeddings 131072, tie_word_embeddings false"},
    {"glm-4-9b-0414", "glm4",
     "vocab_size 151552, hidden_size 4096, num_hidden_layers 40, num_attention_heads 32, num_key_value_heads 2, head_dim 128,"
     "intermediate_size 13696, attention_bias true, max_position_embeddings 32768, tie_word_embeddings false"},
    {"glm-4.5", "glm4_moe",
     "vocab_size 151552, hidden_size 5120, num_hidden_layers 92, num_attention_heads 96, num_key_value_heads 8, head_dim 128,"
     "intermediate_size 12288, moe_intermediate_size 1536, n_routed_experts 160, n_shared_experts 1, num_experts_per_tok 8,"
     "first_k_dense_replace 3, attention_bias true, use_qk_norm true, num_nextn_predict_layers 1,"
     "max_position_embeddings 131072, tie_word_embeddings false"},
    {"glm-4.5-air", "glm4_moe",
     "vocab_size 151552, hidden_size 4096, num_hidden_layers 46, num_attention_heads 96, num_key_value_heads 8, head_dim 128,"
     "intermediate_size 10944, moe_intermediate_size 1408, n_routed_experts 128, n_shared_experts 1, num_experts_per_tok 8,"
     "first_k_dense_replace 1, attention_bias true, use_qk_norm false, num_nextn_predict_layers 1,"
     "max_position_embeddings 131072, tie_word_embeddings false"},
    {"glm-4.7-flash", "glm4_moe_lite",
     "vocab_size 154880, hidden_size 2048, num_hidden_layers 47, num_attention_heads 20, num_key_value_heads 20,"
     "q_lora_rank 768, kv_lora_rank 512, qk_rope_head_dim 64, qk_nope_head_dim 192, v_head_dim 256, intermediate_size 10240,"
     "moe_intermediate_size 1536, n_routed_experts 64, n_shared_experts 1, num_experts_per_tok 4, first_k_dense_replace 1,"
     "num_nextn_predict_layers 1, attention_bias false, max_position_embeddings 202752, tie_word_embeddings false"},
    {"gpt-neox-20b", "gpt_neox",
     "vocab_size 50432, hidden_size 6144, num_hidden_layers 44, num_attention_heads 64, intermediate_size 24576,"
     "use_parallel_residual true, max_position_embeddings 2048, tie_word_embeddings false"},
    {"gpt-oss-120b", "gpt_oss",
     "vocab_size 201088, hidden_size 2880, num_hidden_layers 36, num_attention_heads 64, num_key_value_heads 8, head_dim 64,"
     "intermediate_size 2880, num_local_experts 128, num_experts_per_tok 4, sliding_window 128, attention_bias true,"
     "max_position_embeddings 131072, tie_word_embeddings false"},
    {"gpt-oss-20b", "gpt_oss",
     "vocab_size 201088, hidden_size 2880, num_hidden_layers 24, num_attention_heads 64, num_key_value_heads 8, head_dim 64,"
     "intermediate_size 2880, num_local_experts 32, num_experts_per_tok 4, sliding_window 128, attention_bias true,"
     "max_position_embeddings 131072, tie_word_embeddings false"},
    {"gpt2", "gpt2", "vocab_size 50257, n_embd 768, n_layer 12, n_head 12, n_positions 1024"},
    {"gpt2-large", "gpt2", "vocab_size 50257, n_embd 1280, n_layer 36, n_head 20, n_positions 1024"},
    {"gpt2-medium", "gpt2", "vocab_size 50257, n_embd 1024, n_layer 24, n_head 16, n_positions 1024"},
    {"gpt2-xl", "gpt2", "vocab_size 50257, n_embd 1600, n_layer 48, n_head 25, n_positions 1024"},
    {"granite-3.1-1b-a400m", "granitemoe",
     "vocab_size 49155, hidden_size 1024, num_hidden_layers 24, num_attention_heads 16, num_key_value_heads 8,"
     "intermediate_size 512, num_local_experts 32, num_experts_per_tok 8, attention_bias false, max_position_embeddings 131072,"
     "tie_word_embeddings true"},
    {"granite-3.1-2b", "granite",
     "vocab_size 49155, hidden_size 2048, num_hidden_layers 40, num_attention_heads 32, num_key_value_heads 8,"
     "intermediate_size 8192, attention_bias false, mlp_bias false, max_position_embeddings 131072,"
     "tie_word_embeddings true"},
    {"granite-3.1-3b-a800m", "granitemoe",
     "vocab_size 49155, hidden_size 1536, num_hidden_layers 32, num_attention_heads 24, num_key_value_heads 8,"
     "intermediate_size 512, num_local_experts 40, num_experts_per_tok 8, attention_bias false, max_position_embeddings 131072,"
     "tie_word_embeddings true"},
    {"granite-3.1-8b", "granite",
     "vocab_size 49155, hidden_size 4096, num_hidden_layers 40, num_attention_heads 32, num_key_value_heads 8,"
     "intermediate_size 12800, attention_bias false, mlp_bias false, max_position_embeddings 131072,"
     "tie_word_embeddings true"},
    {"granite-3.3-2b", "granite",
     "vocab_size 49159, hidden_size 2048, num_hidden_layers 40, num_attention_heads 32, num_key_value_heads 8,"
     "intermediate_size 8192, attention_bias false, mlp_bias false, max_position_embeddings 131072,"
     "tie_word_embeddings true"},
    {"granite-3.3-8b", "granite",
     "vocab_size 49159, hidden_size 4096, num_hidden_layers 40, num_attention_heads 32, num_key_value_heads 8,"
     "intermediate_size 12800, attention_bias false, mlp_bias false, max_position_embeddings 131072, tie_word_embeddings true"},
    {"granite-4.0-h-1b", "granitemoehybrid",
     "vocab_size 100352, hidden_size 1536, num_hidden_layers 40, num_attention_heads 12, num_key_value_heads 4,"
     "intermediate_size 4096, shared_intermediate_size 4096, num_local_experts 0, num_experts_per_tok 0, mamba_d_state 128,"
     "mamba_n_groups 1, mamba_n_heads 48, mamba_d_head 64, mamba_expand 2, mamba_d_conv 4, mamba_chunk_size 256,"
     "max_position_embeddings 131072, tie_word_embeddings true, layer_types [" LAYERS_OF_GRANITE_4 "]"},
    {"granite-4.0-h-tiny", "granitemoehybrid",
     "vocab_size 100352, hidden_size 1536, num_hidden_layers 40, num_attention_heads 12, num_key_value_heads 4,"
     "intermediate_size 512, shared_intermediate_size 1024, num_local_experts 64, num_experts_per_tok 6, mamba_d_state 128,"
     "mamba_n_groups 1, mamba_n_heads 48, mamba_d_head 64, mamba_expand 2, mamba_d_conv 4, mamba_chunk_size 256,"
     "max_position_embeddings 131072, tie_word_embeddings true, layer_types [" LAYERS_OF_GRANITE_4 "]"},
    {"hunyuan-7b", "hunyuan_v1_dense",
     "vocab_size 128167, hidden_size 4096, num_hidden_layers 32, num_attention_heads 32, num_key_value_heads 8, head_dim 128,"
     "intermediate_size 14336, attention_bias false, max_position_embeddings 32768, tie_word_embeddings true"},
    {"hunyuan-a13b", "hunyuan_v1_moe",
     "vocab_size 128167, hidden_size 4096, num_hidden_layers 32, num_attention_heads 32, num_key_value_heads 8, head_dim 128,"
     "intermediate_size 3072, num_experts 64, moe_topk 8, attention_bias false, max_position_embeddings 32768,"
     "tie_word_embeddings true"},
    {"internlm2-20b", "internlm2",
     "vocab_size 92544, hidden_size 6144, num_hidden_layers 48, num_attention_heads 48, num_key_value_heads 8,"
     "intermediate_size 16384, bias false, max_position_embeddings 32768, tie_word_embeddings false"},
    {"internlm2-7b", "internlm2",
     "vocab_size 92544, hidden_size 4096, num_hidden_layers 32, num_attention_heads 32, num_key_value_heads 8,"
     "intermediate_size 14336, bias false, max_position_embeddings 32768, tie_word_embeddings false"},
    {"kimi-k2", "kimi_k2",
     "vocab_size 163840, hidden_size 7168, num_hidden_layers 61, num_attention_heads 64, num_key_value_heads 64,"
     "q_lora_rank 1536, kv_lora_rank 512, qk_rope_head_dim 64, qk_nope_head_dim 128, v_head_dim 128, intermediate_size 18432,"
     "moe_intermediate_size 2048, n_routed_experts 384, n_shared_experts 1, num_experts_per_tok 8, first_k_dense_replace 1,"
     "moe_layer_freq 1, topk_method \"noaux_tc\", num_nextn_predict_layers 0, attention_bias false,"
     "max_position_embeddings 131072, tie_word_embeddings false"},
    {"kimi-linear-48b-a3b", "kimi_linear",
     "vocab_size 163840, hidden_size 2304, num_hidden_layers 27, num_attention_heads 32, num_key_value_heads 32,"
     "intermediate_size 9216, moe_intermediate_size 1024, num_experts 256, num_experts_per_token 8, num_shared_experts 1,"
     "first_k_dense_replace 1, kv_lora_rank 512, qk_nope_head_dim 128, qk_rope_head_dim 64, v_head_dim 128,"
     "linear_num_heads 32, linear_head_dim 128, linear_conv_kernel_dim 4, tie_word_embeddings false,"
     "layer_types [" LAYERS_OF_KIMI_LINEAR "]"},
    {"lfm2-1.2b", "lfm2",
     "vocab_size 65536, hidden_size 2048, num_hidden_layers 16, num_attention_heads 32, num_key_value_heads 8,"
     "block_ff_dim 12288, conv_L_cache 3, max_position_embeddings 128000, full_attn_idxs [2, 5, 8, 10, 12, 14]"},
    {"lfm2-350m", "lfm2",
     "vocab_size 65536, hidden_size 1024, num_hidden_layers 16, num_attention_heads 16, num_key_value_heads 8,"
     "block_ff_dim 6656, conv_L_cache 3, max_position_embeddings 128000, full_attn_idxs [2, 5, 8, 10, 12, 14]"},
    {"lfm2-700m", "lfm2",
     "vocab_size 65536, hidden_size 1536, num_hidden_layers 16, num_attention_heads 24, num_key_value_heads 8,"
     "block_ff_dim 10240, conv_L_cache 3, max_position_embeddings 128000, full_attn_idxs [2, 5, 8, 10, 12, 14]"},
    {"lfm2-8b-a1b", "lfm2_moe",
     "vocab_size 65536, hidden_size 2048, num_hidden_layers 24, num_attention_heads 32, num_key_value_heads 8,"
     "intermediate_size 7168, moe_intermediate_size 1792, num_experts 32, num_experts_per_tok 4, num_dense_layers 2,"
     "conv_L_cache 3, max_position_embeddings 128000, full_attn_idxs [2, 6, 10, 14, 18, 21]"},
    {"llama-4-maverick", "llama4",
     "vocab_size 202048, hidden_size 5120, num_hidden_layers 48, num_attention_heads 40, num_key_value_heads 8, head_dim 128,"
     "intermediate_size 8192, intermediate_size_mlp 16384, num_local_experts 128, num_experts_per_tok 1,"
     "interleave_moe_layer_step 2, attention_chunk_size 8192, use_qk_norm false, attention_bias false,"
     "max_position_embeddings 1048576, tie_word_embeddings false"},
    {"llama-4-scout", "llama4",
     "vocab_size 202048, hidden_size 5120, num_hidden_layers 48, num_attention_heads 40, num_key_value_heads 8, head_dim 128,"
     "intermediate_size 8192, intermediate_size_mlp 16384, num_local_experts 16, num_experts_per_tok 1,"
     "interleave_moe_layer_step 1, attention_chunk_size 8192, use_qk_norm true, attention_bias false,"
     "max_position_embeddings 10485760, tie_word_embeddings false"},
    {"minimax-m2", "minimax_m2",
     "vocab_size 200064, hidden_size 3072, num_hidden_layers 62, num_attention_heads 48, num_key_value_heads 8, head_dim 128,"
     "intermediate_size 1536, num_local_experts 256, num_experts_per_tok 8, max_position_embeddings 196608,"
     "tie_word_embeddings false"},
    {"ministral-3-14b", "ministral3",
     "vocab_size 131072, hidden_size 5120, num_hidden_layers 40, num_attention_heads 32, num_key_value_heads 8,"
     "head_dim 128, intermediate_size 16384, sliding_window null, max_position_embeddings 262144,"
     "tie_word_embeddings false"},
    {"ministral-3-3b", "ministral3",
     "vocab_size 131072, hidden_size 3072, num_hidden_layers 26, num_attention_heads 32, num_key_value_heads 8,"
     "head_dim 128, intermediate_size 9216, sliding_window null, max_position_embeddings 262144,"
     "tie_word_embeddings true"},
    {"ministral-3-8b", "ministral3",
     "vocab_size 131072, hidden_size 4096, num_hidden_layers 34, num_attention_heads 32, num_key_value_heads 8, head_dim 128,"
     "intermediate_size 14336, sliding_window null, max_position_embeddings 262144, tie_word_embeddings false"},
    {"minitron-4b", "nemotron",
     "vocab_size 256000, hidden_size 3072, num_hidden_layers 32, num_attention_heads 24, num_key_value_heads 8, head_dim 128,"
     "intermediate_size 9216, attention_bias false, mlp_bias false, max_position_embeddings 4096, tie_word_embeddings false"},
    {"minitron-8b", "nemotron",
     "vocab_size 256000, hidden_size 4096, num_hidden_layers 32, num_attention_heads 48, num_key_value_heads 8, head_dim 128,"
     "intermediate_size 16384, attention_bias false, mlp_bias false, max_position_embeddings 4096, tie_word_embeddings false"},
    {"mistral-small-4-119b", "mistral4",
     "vocab_size 131072, hidden_size 4096, num_hidden_layers 36, num_attention_heads 32, num_key_value_heads 32,"
     "q_lora_rank 1024, kv_lora_rank 256, qk_rope_head_dim 64, qk_nope_head_dim 64, v_head_dim 128, intermediate_size 12288,"
     "moe_intermediate_size 2048, n_routed_experts 128, n_shared_experts 1, num_experts_per_tok 4, first_k_dense_replace 0,"
     "attention_bias false, max_position_embeddings 1048576, tie_word_embeddings false"},
    // Every layer has experts; intermediate_size is the width of each.
    {"mixtral-8x22b-v0.1", "mixtral",
     "vocab_size 32000, hidden_size 6144, num_hidden_layers 56, num_attention_heads 48, num_key_value_heads 8,"
     "intermediate_size 16384, num_local_experts 8, num_experts_per_tok 2, sliding_window null,"
     "max_position_embeddings 65536, tie_word_embeddings false"},
    {"mixtral-8x7b-v0.1", "mixtral",
     "vocab_size 32000, hidden_size 4096, num_hidden_layers 32, num_attention_heads 32, num_key_value_heads 8,"
     "intermediate_size 14336, num_local_experts 8, num_experts_per_tok 2, sliding_window null,"
     "max_position_embeddings 32768, tie_word_embeddings false"},
    // alibi inside attn_config removes the position table, whatever learned_pos_emb says.
    {"mpt-7b", "mpt",
     "vocab_size 50432, d_model 4096, n_layers 32, n_heads 32, expansion_ratio 4, max_seq_len 2048, learned_pos_emb true,"
     "no_bias true, norm_type \"low_precision_layernorm\", attn_config {\"alibi\": true}"},
    {"nemotron-3-nano-30b-a3b", "nemotron_h",
     "vocab_size 131072, hidden_size 2688, num_hidden_layers 52, num_attention_heads 32, num_key_value_heads 2, head_dim 128,"
     "hybrid_override_pattern \"MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME\", mamba_num_heads 64, mamba_head_dim 64,"
     "n_groups 8, ssm_state_size 128, conv_kernel 4, chunk_size 128, use_conv_bias true, n_routed_experts 128,"
     "num_experts_per_tok 6, moe_intermediate_size 1856, moe_shared_expert_intermediate_size 3712,"
     "max_position_embeddings 262144, tie_word_embeddings false"},
    {"nemotron-3-super-120b-a12b", "nemotron_h",
     "vocab_size 131072, hidden_size 4096, num_hidden_layers 88, num_attention_heads 32, num_key_value_heads 2, head_dim 128,"
     "hybrid_override_pattern \"MEMEMEM*EMEMEMEM*EMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*EMEMEMEM*EMEMEMEME\","
     "mamba_num_heads 128, mamba_head_dim 64, n_groups 8, ssm_state_size 128, conv_kernel 4, chunk_size 128,"
     "use_conv_bias true, n_routed_experts 512, num_experts_per_tok 22, moe_intermediate_size 2688,"
     "moe_shared_expert_intermediate_size 5376, moe_latent_size 1024, max_position_embeddings 262144,"
     "tie_word_embeddings false"},
    {"nemotron-nano-9b-v2", "nemotron_h",
     "vocab_size 131072, hidden_size 4480, num_hidden_layers 56, num_attention_heads 40, num_key_value_heads 8, head_dim 128,"
     "hybrid_override_pattern \"M-M-M-MM-M-M-M*-M-M-M*-M-M-M-M*-M-M-M-M*-M-MM-M-M-M-M-M-\", mamba_num_heads 128,"
     "mamba_head_dim 80, n_groups 8, ssm_state_size 128, conv_kernel 4, chunk_size 128, use_conv_bias true,"
     "intermediate_size 15680, mlp_bias false, max_position_embeddings 131072, tie_word_embeddings false"},
    {"olmo-1b", "olmo",
     "vocab_size 50304, hidden_size 2048, num_hidden_layers 16, num_attention_heads 16, num_key_value_heads 16,"
     "intermediate_size 8192, attention_bias false, max_position_embeddings 2048, tie_word_embeddings true"},
    {"olmo-2-13b", "olmo2",
     "vocab_size 100352, hidden_size 5120, num_hidden_layers 40, num_attention_heads 40, num_key_value_heads 40,"
     "intermediate_size 13824, max_position_embeddings 4096, tie_word_embeddings false"},
    {"olmo-2-1b", "olmo2",
     "vocab_size 100352, hidden_size 2048, num_hidden_layers 16, num_attention_heads 16, num_key_value_heads 16,"
     "intermediate_size 8192, max_position_embeddings 4096, tie_word_embeddings false"},
    {"olmo-2-32b", "olmo2",
     "vocab_size 100352, hidden_size 5120, num_hidden_layers 64, num_attention_heads 40, num_key_value_heads 8,"
     "intermediate_size 27648, max_position_embeddings 4096, tie_word_embeddings false"},
    {"olmo-2-7b", "olmo2",
     "vocab_size 100352, hidden_size 4096, num_hidden_layers 32, num_attention_heads 32, num_key_value_heads 32,"
     "intermediate_size 11008, max_position_embeddings 4096, tie_word_embeddings false"},
    {"olmo-3-32b", "olmo3",
     "vocab_size 100278, hidden_size 5120, num_hidden_layers 64, num_attention_heads 40, num_key_value_heads 8,"
     "intermediate_size 27648, sliding_window 4096, attention_bias false, max_position_embeddings 65536, tie_word_embeddings false"},
    {"olmo-3-7b", "olmo3",
     "vocab_size 100278, hidden_size 4096, num_hidden_layers 32, num_attention_heads 32, num_key_value_heads 32,"
     "intermediate_size 11008, sliding_window 4096, attention_bias false, max_position_embeddings 65536, tie_word_embeddings false"},
    {"olmo-7b", "olmo",
     "vocab_size 50304, hidden_size 4096, num_hidden_layers 32, num_attention_heads 32, num_key_value_heads 32,"
     "intermediate_size 11008, attention_bias false, max_position_embeddings 2048, tie_word_embeddings false"},
    {"opt-1.3b", "opt",
     "vocab_size 50272, hidden_size 2048, num_hidden_layers 24, num_attention_heads 32, ffn_dim 8192, word_embed_proj_dim 2048,"
     "do_layer_norm_before true, max_position_embeddings 2048"},
    {"opt-125m", "opt",
     "vocab_size 50272, hidden_size 768, num_hidden_layers 12, num_attention_heads 12, ffn_dim 3072, word_embed_proj_dim 768,"
     "do_layer_norm_before true, max_position_embeddings 2048"},
    {"opt-13b", "opt",
     "vocab_size 50272, hidden_size 5120, num_hidden_layers 40, num_attention_heads 40, ffn_dim 20480, word_embed_proj_dim 5120,"
     "do_layer_norm_before true, max_position_embeddings 2048"},
    {"opt-2.7b", "opt",
     "vocab_size 50272, hidden_size 2560, num_hidden_layers 32, num_attention_heads 32, ffn_dim 10240, word_embed_proj_dim 2560,"
     "do_layer_norm_before true, max_position_embeddings 2048"},
    {"opt-30b", "opt",
     "vocab_size 50272, hidden_size 7168, num_hidden_layers 48, num_attention_heads 56, ffn_dim 28672,"
     "word_embed_proj_dim 7168, do_layer_norm_before true, max_position_embeddings 2048"},
    {"opt-350m", "opt",
     "vocab_size 50272, hidden_size 1024, num_hidden_layers 24, num_attention_heads 16, ffn_dim 4096,"
     "word_embed_proj_dim 512, do_layer_norm_before false, max_position_embeddings 2048"},
    {"opt-6.7b", "opt",
     "vocab_size 50272, hidden_size 4096, num_hidden_layers 32, num_attention_heads 32, ffn_dim 16384, word_embed_proj_dim 4096,"
     "do_layer_norm_before true, max_position_embeddings 2048"},
    {"opt-66b", "opt",
     "vocab_size 50272, hidden_size 9216, num_hidden_layers 64, num_attention_heads 72, ffn_dim 36864,"
     "word_embed_proj_dim 9216, do_layer_norm_before true, max_position_embeddings 2048"},
    {"phi-1.5", "phi",
     "vocab_size 51200, hidden_size 2048, num_hidden_layers 24, num_attention_heads 32, num_key_value_heads 32,"
     "intermediate_size 8192, qk_layernorm false, max_position_embeddings 2048, tie_word_embeddings false"},
    {"phi-2", "phi",
     "vocab_size 51200, hidden_size 2560, num_hidden_layers 32, num_attention_heads 32, num_key_value_heads 32,"
     "intermediate_size 10240, qk_layernorm false, max_position_embeddings 2048, tie_word_embeddings false"},
    {"phi-3-medium", "phi3",
     "vocab_size 32064, hidden_size 5120, num_hidden_layers 40, num_attention_heads 40, num_key_value_heads 10,"
     "intermediate_size 17920, sliding_window 2047, max_position_embeddings 4096, tie_word_embeddings false"},
    {"phi-3-mini-4k", "phi3",
     "vocab_size 32064, hidden_size 3072, num_hidden_layers 32, num_attention_heads 32, num_key_value_heads 32,"
     "intermediate_size 8192, sliding_window 2048, max_position_embeddings 4096, tie_word_embeddings false"},
    {"phi-3.5-mini", "phi3",
     "vocab_size 32064, hidden_size 3072, num_hidden_layers 32, num_attention_heads 32, num_key_value_heads 32,"
     "intermediate_size 8192, sliding_window 262144, max_position_embeddings 131072, tie_word_embeddings false"},
    {"phi-3.5-moe", "phimoe",
     "vocab_size 32064, hidden_size 4096, num_hidden_layers 32, num_attention_heads 32, num_key_value_heads 8,"
     "intermediate_size 6400, num_local_experts 16, num_experts_per_tok 2, attention_bias true, lm_head_bias true,"
     "sliding_window 131072, max_position_embeddings 131072, tie_word_embeddings false"},
    {"phi-4", "phi3",
     "vocab_size 100352, hidden_size 5120, num_hidden_layers 40, num_attention_heads 40, num_key_value_heads 10,"
     "intermediate_size 17920, sliding_window null, max_position_embeddings 16384, tie_word_embeddings false"},
    {"phi-4-mini", "phi3",
     "vocab_size 200064, hidden_size 3072, num_hidden_layers 32, num_attention_heads 24, num_key_value_heads 8,"
     "intermediate_size 8192, sliding_window 262144, max_position_embeddings 131072, tie_word_embeddings true"},
    {"pythia-1.4b", "gpt_neox",
     "vocab_size 50304, hidden_size 2048, num_hidden_layers 24, num_attention_heads 16, intermediate_size 8192,"
     "use_parallel_residual true, max_position_embeddings 2048, tie_word_embeddings false"},
    {"pythia-12b", "gpt_neox",
     "vocab_size 50688, hidden_size 5120, num_hidden_layers 36, num_attention_heads 40, intermediate_size 20480,"
     "use_parallel_residual true, max_position_embeddings 2048, tie_word_embeddings false"},
    {"pythia-14m", "gpt_neox",
     "vocab_size 50304, hidden_size 128, num_hidden_layers 6, num_attention_heads 4, intermediate_size 512,"
     "use_parallel_residual true, max_position_embeddings 2048, tie_word_embeddings false"},
    {"pythia-160m", "gpt_neox",
     "vocab_size 50304, hidden_size 768, num_hidden_layers 12, num_attention_heads 12, intermediate_size 3072,"
     "use_parallel_residual true, max_position_embeddings 2048, tie_word_embeddings false"},
    {"pythia-1b", "gpt_neox",
     "vocab_size 50304, hidden_size 2048, num_hidden_layers 16, num_attention_heads 8, intermediate_size 8192,"
     "use_parallel_residual true, max_position_embeddings 2048, tie_word_embeddings false"},
    {"pythia-2.8b", "gpt_neox",
     "vocab_size 50304, hidden_size 2560, num_hidden_layers 32, num_attention_heads 32, intermediate_size 10240,"
     "use_parallel_residual true, max_position_embeddings 2048, tie_word_embeddings false"},
    {"pythia-31m", "gpt_neox",
     "vocab_size 50304, hidden_size 256, num_hidden_layers 6, num_attention_heads 8, intermediate_size 1024,"
     "use_parallel_residual true, max_position_embeddings 2048, tie_word_embeddings false"},
    {"pythia-410m", "gpt_neox",
     "vocab_size 50304, hidden_size 1024, num_hidden_layers 24, num_attention_heads 16, intermediate_size 4096,"
     "use_parallel_residual true, max_position_embeddings 2048, tie_word_embeddings false"},
    {"pythia-6.9b", "gpt_neox",
     "vocab_size 50432, hidden_size 4096, num_hidden_layers 32, num_attention_heads 32, intermediate_size 16384,"
     "use_parallel_residual true, max_position_embeddings 2048, tie_word_embeddings false"},
    {"pythia-70m", "gpt_neox",
     "vocab_size 50304, hidden_size 512, num_hidden_layers 6, num_attention_heads 8, intermediate_size 2048,"
     "use_parallel_residual true, max_position_embeddings 2048, tie_word_embeddings false"},
    {"qwen1.5-moe-a2.7b", "qwen2_moe",
     "vocab_size 151936, hidden_size 2048, num_hidden_layers 24, num_attention_heads 16, num_key_value_heads 16,"
     "intermediate_size 5632, moe_intermediate_size 1408, shared_expert_intermediate_size 5632, num_experts 60,"
     "num_experts_per_tok 4, decoder_sparse_step 1, use_sliding_window false, max_position_embeddings 32768,"
     "tie_word_embeddings false"},
    {"qwen2-57b-a14b", "qwen2_moe",
     "vocab_size 151936, hidden_size 3584, num_hidden_layers 28, num_attention_heads 28, num_key_value_heads 4,"
     "intermediate_size 18944, moe_intermediate_size 2560, shared_expert_intermediate_size 20480, num_experts 64,"
     "num_experts_per_tok 8, decoder_sparse_step 1, max_position_embeddings 32768, tie_word_embeddings false"},
    {"qwen3-235b-a22b", "qwen3_moe",
     "vocab_size 151936, hidden_size 4096, num_hidden_layers 94, num_attention_heads 64, num_key_value_heads 4, head_dim 128,"
     "intermediate_size 12288, moe_intermediate_size 1536, num_experts 128, num_experts_per_tok 8, decoder_sparse_step 1,"
     "attention_bias false, use_sliding_window false, max_position_embeddings 40960, tie_word_embeddings false"},
    {"qwen3-30b-a3b", "qwen3_moe",
     "vocab_size 151936, hidden_size 2048, num_hidden_layers 48, num_attention_heads 32, num_key_value_heads 4, head_dim 128,"
     "intermediate_size 6144, moe_intermediate_size 768, num_experts 128, num_experts_per_tok 8, decoder_sparse_step 1,"
     "attention_bias false, use_sliding_window false, max_position_embeddings 40960, tie_word_embeddings false"},
    {"qwen3-next-80b-a3b", "qwen3_next",
     "vocab_size 151936, hidden_size 2048, num_hidden_layers 48, num_attention_heads 16, num_key_value_heads 2, head_dim 256,"
     "intermediate_size 5632, moe_intermediate_size 512, shared_expert_intermediate_size 512, num_experts 512,"
     "num_experts_per_tok 10, decoder_sparse_step 1, full_attention_interval 4, linear_num_key_heads 16,"
     "linear_num_value_heads 32, linear_key_head_dim 128, linear_value_head_dim 128, linear_conv_kernel_dim 4,"
     "attention_bias false, max_position_embeddings 262144, tie_word_embeddings false"},
    {"qwen3.5-0.8b", "qwen3_5",
     "vocab_size 248320, hidden_size 1024, num_hidden_layers 24, num_attention_heads 8, num_key_value_heads 2, head_dim 256,"
     "intermediate_size 3584, full_attention_interval 4, linear_num_key_heads 16, linear_num_value_heads 16,"
     "linear_key_head_dim 128, linear_value_head_dim 128, linear_conv_kernel_dim 4, attention_bias false,"
     "mtp_num_hidden_layers 1, max_position_embeddings 262144, tie_word_embeddings true"},
    {"qwen3.5-27b", "qwen3_5",
     "vocab_size 248320, hidden_size 5120, num_hidden_layers 64, num_attention_heads 24, num_key_value_heads 4, head_dim 256,"
     "intermediate_size 17408, full_attention_interval 4, linear_num_key_heads 16, linear_num_value_heads 48,"
     "linear_key_head_dim 128, linear_value_head_dim 128, linear_conv_kernel_dim 4, attention_bias false,"
     "mtp_num_hidden_layers 1, max_position_embeddings 262144, tie_word_embeddings false"},
    {"qwen3.5-35b-a3b", "qwen3_5_moe",
     "vocab_size 248320, hidden_size 2048, num_hidden_layers 40, num_attention_heads 16, num_key_value_heads 2, head_dim 256,"
     "moe_intermediate_size 512, shared_expert_intermediate_size 512, num_experts 256, num_experts_per_tok 8,"
     "full_attention_interval 4, linear_num_key_heads 16, linear_num_value_heads 32, linear_key_head_dim 128,"
     "linear_value_head_dim 128, linear_conv_kernel_dim 4, attention_bias false, mtp_num_hidden_layers 1,"
     "max_position_embeddings 262144, tie_word_embeddings false"},
    {"qwen3.5-397b-a17b", "qwen3_5_moe",
     "vocab_size 248320, hidden_size 4096, num_hidden_layers 60, num_attention_heads 32, num_key_value_heads 2, head_dim 256,"
     "moe_intermediate_size 1024, shared_expert_intermediate_size 1024, num_experts 512, num_experts_per_tok 10,"
     "full_attention_interval 4, linear_num_key_heads 16, linear_num_value_heads 64, linear_key_head_dim 128,"
     "linear_value_head_dim 128, linear_conv_kernel_dim 4, attention_bias false, mtp_num_hidden_layers 1,"
     "max_position_embeddings 262144, tie_word_embeddings false"},
    {"qwen3.5-4b", "qwen3_5",
     "vocab_size 248320, hidden_size 2560, num_hidden_layers 32, num_attention_heads 16, num_key_value_heads 4, head_dim 256,"
     "intermediate_size 9216, full_attention_interval 4, linear_num_key_heads 16, linear_num_value_heads 32,"
     "linear_key_head_dim 128, linear_value_head_dim 128, linear_conv_kernel_dim 4, attention_bias false,"
     "mtp_num_hidden_layers 1, max_position_embeddings 262144, tie_word_embeddings true"},
    {"qwen3.5-9b", "qwen3_5",
     "vocab_size 248320, hidden_size 4096, num_hidden_layers 32, num_attention_heads 16, num_key_value_heads 4, head_dim 256,"
     "intermediate_size 12288, full_attention_interval 4, linear_num_key_heads 16, linear_num_value_heads 32,"
     "linear_key_head_dim 128, linear_value_head_dim 128, linear_conv_kernel_dim 4, attention_bias false,"
     "mtp_num_hidden_layers 1, max_position_embeddings 262144, tie_word_embeddings false"},
    {"redpajama-incite-3b", "gpt_neox",
     "vocab_size 50432, hidden_size 2560, num_hidden_layers 32, num_attention_heads 32, intermediate_size 10240,"
     "use_parallel_residual false, max_position_embeddings 2048, tie_word_embeddings false"},
    {"redpajama-incite-7b", "gpt_neox",
     "vocab_size 50432, hidden_size 4096, num_hidden_layers 32, num_attention_heads 32, intermediate_size 16384,"
     "use_parallel_residual false, max_position_embeddings 2048, tie_word_embeddings false"},
    {"seed-oss-36b", "seed_oss",
     "vocab_size 155136, hidden_size 5120, num_hidden_layers 64, num_attention_heads 80, num_key_value_heads 8, head_dim 128,"
     "intermediate_size 27648, attention_bias true, attention_out_bias false, mlp_bias false, max_position_embeddings 524288,"
     "tie_word_embeddings false"},
    {"smollm3-3b", "smollm3",
     "vocab_size 128256, hidden_size 2048, num_hidden_layers 36, num_attention_heads 16, num_key_value_heads 4,"
     "intermediate_size 11008, attention_bias false, mlp_bias false, use_sliding_window false, max_position_embeddings 65536,"
     "tie_word_embeddings true"},
    {"stablelm-2-1.6b", "stablelm",
     "vocab_size 100352, hidden_size 2048, num_hidden_layers 24, num_attention_heads 32, num_key_value_heads 32,"
     "intermediate_size 5632, use_qkv_bias true, max_position_embeddings 4096, tie_word_embeddings false"},
    {"stablelm-3b-4e1t", "stablelm",
     "vocab_size 50304, hidden_size 2560, num_hidden_layers 32, num_attention_heads 32, num_key_value_heads 32,"
     "intermediate_size 6912, use_qkv_bias false, max_position_embeddings 4096, tie_word_embeddings false"},
    {"stablelm-base-alpha-3b", "gpt_neox",
     "vocab_size 50688, hidden_size 4096, num_hidden_layers 16, num_attention_heads 32, intermediate_size 16384,"
     "use_parallel_residual true, max_position_embeddings 4096, tie_word_embeddings false"},
    {"stablelm-base-alpha-7b", "gpt_neox",
     "vocab_size 50432, hidden_size 6144, num_hidden_layers 16, num_attention_heads 48, intermediate_size 24576,"
     "use_parallel_residual true, max_position_embeddings 4096, tie_word_embeddings false"},
    {"starcoder2-15b", "starcoder2",
     "vocab_size 49152, hidden_size 6144, num_hidden_layers 40, num_attention_heads 48, num_key_value_heads 4,"
     "intermediate_size 24576, use_bias true, sliding_window 4096, max_position_embeddings 16384, tie_word_embeddings false"},
    {"starcoder2-3b", "starcoder2",
     "vocab_size 49152, hidden_size 3072, num_hidden_layers 30, num_attention_heads 24, num_key_value_heads 2,"
     "intermediate_size 12288, use_bias true, sliding_window 4096, max_position_embeddings 16384"},
    {"starcoder2-7b", "starcoder2",
     "vocab_size 49152, hidden_size 4608, num_hidden_layers 32, num_attention_heads 36, num_key_value_heads 4,"
     "intermediate_size 18432, use_bias true, sliding_window 4096, max_position_embeddings 16384"},
};
// clang-format on
static_assert(std::ranges::is_sorted(kRows, {}, [](const Row& r) { return std::string_view(r.name); }));

/// Families whose files have the fields of the decoder in text_config.
bool multimodal(std::string_view family) {
  constexpr std::string_view kMultimodal[] = {"gemma3", "gemma4", "llama4", "qwen3_5", "qwen3_5_moe"};
  return std::ranges::find(kMultimodal, family) != std::end(kMultimodal);
}

/// "a 1, b true" of family f -> {"model_type": "f", "a": 1, "b": true}. A value may contain spaces and colons
/// (a nested object), and commas inside brackets.
std::string json_of(const Row& row) {
  const bool nested = multimodal(row.family);
  const std::string type = std::string("\"model_type\": \"") + row.family;
  std::string json = "{" + type + '"';
  if (nested) json += ", \"vision_config\": {}, \"text_config\": {" + type + "_text\"";
  std::string_view rest = row.fields;
  while (!rest.empty()) {
    // The key ends at the first space; the rest, with further spaces, is the value.
    std::size_t end = rest.find(',');
    if (const std::size_t open = rest.find('['); open < end) end = rest.find(',', rest.find(']', open));
    const std::string_view field = rest.substr(0, end);
    rest.remove_prefix(std::min(rest.size(), field.size() + 1));
    const std::size_t begin = field.find_first_not_of(' '), space = field.find(' ', begin);
    json.append(", \"")
        .append(field.substr(begin, space - begin))
        .append("\": ")
        .append(field.substr(space + 1));
  }
  return json + (nested ? "}}" : "}");
}

ModelSpec preset(const Row& row) {
  const std::string json = json_of(row);
  return outline(from_config(json, row.name), json);
}

/// Each preset is read on first use: most runs need none of them, or one.
const ModelSpec& read_preset(std::size_t row, std::vector<ModelSpec>& all) {
  static std::array<std::once_flag, std::size(kRows)> read;
  std::call_once(read[row], [&] { all[row] = preset(kRows[row]); });
  return all[row];
}

std::vector<ModelSpec>& storage() {
  static std::vector<ModelSpec> all(std::size(kRows));
  return all;
}

}  // namespace

std::span<const ModelSpec> planned_presets() {
  std::vector<ModelSpec>& all = storage();
  for (std::size_t row = 0; row < all.size(); ++row) read_preset(row, all);
  return all;
}

std::span<const std::string> planned_preset_names() {
  static const std::vector<std::string> all = [] {
    std::vector<std::string> out;
    for (const Row& row : kRows) out.emplace_back(row.name);
    return out;
  }();
  return all;
}

const ModelSpec* find_planned_preset(std::string_view name) {
  const auto* row = std::ranges::find(kRows, name, [](const Row& r) { return std::string_view(r.name); });
  if (row == std::end(kRows)) return nullptr;
  return &read_preset(static_cast<std::size_t>(row - kRows), storage());
}

}  // namespace trainhost::model
