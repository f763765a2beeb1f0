// Written by mirror.py from the C headers; do not edit. Names, order and types are theirs; what each means is
// said there (include/trainhost/*.h). layout.rs holds this file against a C compiler.
#![allow(non_camel_case_types, missing_docs)]
use std::ffi::CStr;
use std::os::raw::{c_char, c_void};

pub type th_status = i32;

pub const TH_CONFIG_ID: &CStr = crate::th_text!("trainhost.config/1");
pub const TH_DEVICE_ID: &CStr = crate::th_text!("trainhost.device/1");
pub const TH_ESTIMATOR_ID: &CStr = crate::th_text!("trainhost.estimator/1");
pub const TH_TIER_DEVICE: u32 = 1;
pub const TH_TIER_PINNED: u32 = 2;
pub const TH_TIER_HOST: u32 = 3;
pub const TH_TIER_DISK: u32 = 4;
pub const TH_TIER_SLOTS: u32 = 8;
pub const TH_LOG_DEBUG: i32 = 0;
pub const TH_LOG_INFO: i32 = 1;
pub const TH_LOG_WARN: i32 = 2;
pub const TH_LOG_ERROR: i32 = 3;
pub const TH_EXACT: u32 = 1;
pub const TH_UPPER_BOUND: u32 = 2;
pub const TH_APPROXIMATION: u32 = 3;
pub const TH_PH_LOAD: u32 = 1;
pub const TH_PH_FORWARD: u32 = 2;
pub const TH_PH_BACKWARD: u32 = 4;
pub const TH_PH_UPDATE: u32 = 8;
pub const TH_PH_EVAL: u32 = 16;
pub const TH_PH_SAVE: u32 = 32;
pub const TH_PH_GENERATE: u32 = 64;
pub const TH_MEM_WEIGHTS: u32 = 1;
pub const TH_MEM_MASTER_WEIGHTS: u32 = 2;
pub const TH_MEM_GRADIENTS: u32 = 3;
pub const TH_MEM_OPTIMIZER_STATE: u32 = 4;
pub const TH_MEM_ACTIVATIONS: u32 = 5;
pub const TH_MEM_LOGITS: u32 = 6;
pub const TH_MEM_WORKSPACE: u32 = 7;
pub const TH_MEM_COMMUNICATION: u32 = 8;
pub const TH_MEM_KV_CACHE: u32 = 9;
pub const TH_MEM_ADAPTERS: u32 = 10;
pub const TH_MEM_FRAGMENTATION: u32 = 11;
pub const TH_MEM_RUNTIME: u32 = 12;
pub const TH_MEM_HAS_AT_PEAK: u32 = 1;
pub const TH_MODEL_TIED_EMBEDDINGS: u32 = 1;
pub const TH_MODEL_QKV_BIAS: u32 = 2;
pub const TH_MODEL_O_BIAS: u32 = 4;
pub const TH_MODEL_MLP_BIAS: u32 = 8;
pub const TH_MODEL_QK_NORM: u32 = 16;
pub const TH_ROPE_DEFAULT: u32 = 0;
pub const TH_ROPE_LINEAR: u32 = 1;
pub const TH_ROPE_LLAMA3: u32 = 2;
pub const TH_DT_F32: u32 = 1;
pub const TH_DT_F16: u32 = 2;
pub const TH_DT_BF16: u32 = 3;
pub const TH_DT_I32: u32 = 4;
pub const TH_DT_U8: u32 = 5;
pub const TH_DT_TF32: u32 = 6;
pub const TH_DT_F64: u32 = 7;
pub const TH_DT_F8: u32 = 8;
pub const TH_DT_I8: u32 = 9;
pub const TH_DT_NF4: u32 = 10;
pub const TH_DT_I4: u32 = 11;
pub const TH_MODE_FULL: u32 = 1;
pub const TH_MODE_LORA: u32 = 2;
pub const TH_MODE_QLORA: u32 = 3;
pub const TH_MODE_INFERENCE: u32 = 4;
pub const TH_OPT_ADAMW: u32 = 1;
pub const TH_OPT_SGD: u32 = 2;
pub const TH_OPT_SGD_MOMENTUM: u32 = 3;
pub const TH_OPT_ADAFACTOR: u32 = 4;
pub const TH_OPT_LION: u32 = 5;
pub const TH_OPT_MUON: u32 = 6;
pub const TH_OPT_ADAMW_8BIT: u32 = 7;
pub const TH_ATTENTION_FLASH: u32 = 1;
pub const TH_ATTENTION_MATERIALISED: u32 = 2;
pub const TH_CE_FUSED: u32 = 1;
pub const TH_CE_PLAIN: u32 = 2;
pub const TH_CE_IN_PLACE: u32 = 3;
pub const TH_LAYOUT_SEQUENCE_PARALLEL: u32 = 1;
pub const TH_LAYOUT_DOUBLE_QUANTIZED: u32 = 2;
pub const TH_LAYOUT_DORA: u32 = 4;
pub const TH_LORA_Q: u32 = 1;
pub const TH_LORA_K: u32 = 2;
pub const TH_LORA_V: u32 = 4;
pub const TH_LORA_O: u32 = 8;
pub const TH_LORA_GATE: u32 = 16;
pub const TH_LORA_UP: u32 = 32;
pub const TH_LORA_DOWN: u32 = 64;
pub const TH_RC_NONE: u32 = 1;
pub const TH_RC_SELECTIVE: u32 = 2;
pub const TH_RC_FULL: u32 = 3;
pub const TH_RC_AUTO: u32 = 4;
pub const TH_RC_LAYERS: u32 = 5;
pub const TH_PROFILE_F32_STORAGE: u32 = 1;
pub const TH_ENTRY_NAME: &CStr = crate::th_text!("trainhost_plugin_v1");
pub const TH_PROFILER_ID: &CStr = crate::th_text!("trainhost.profiler/1");
pub const TH_BEFORE_FORWARD: u32 = 1;
pub const TH_AFTER_FORWARD: u32 = 2;
pub const TH_AFTER_BACKWARD: u32 = 3;
pub const TH_AFTER_UPDATE: u32 = 4;
pub const TH_ABI_MAJOR: u32 = 1;
pub const TH_ABI_MINOR: u32 = 0;
pub const TH_OK: i32 = 0;
pub const TH_E_ARG: i32 = -1;
pub const TH_E_UNSUPPORTED: i32 = -2;
pub const TH_E_UNAVAILABLE: i32 = -3;
pub const TH_E_DEVICE_OOM: i32 = -4;
pub const TH_E_HOST_OOM: i32 = -5;
pub const TH_E_CANCELLED: i32 = -6;
pub const TH_E_STATE: i32 = -7;
pub const TH_E_NONFINITE: i32 = -8;
pub const TH_E_DEVICE_LOST: i32 = -9;
pub const TH_E_IO: i32 = -10;
pub const TH_E_INTERNAL: i32 = -11;
pub const TH_E_ABSENT: i32 = -12;
pub const TH_TRAINER_ID: &CStr = crate::th_text!("trainhost.trainer/1");
pub const TH_GENERATE_ID: &CStr = crate::th_text!("trainhost.generate/1");
pub const TH_SCOPE_WEIGHTS: u32 = 1;
pub const TH_SCOPE_ADAPTER: u32 = 2;
pub const TH_SCOPE_MOMENT1: u32 = 3;
pub const TH_SCOPE_MOMENT2: u32 = 4;
pub const TH_STEP_EVALUATE: u32 = 1;

#[repr(C)]
#[derive(Clone, Copy)]
pub struct th_config {
    pub struct_size: u32,
    pub reserved: u32,
    pub self_: *mut c_void,
    pub integer: Option<unsafe extern "C" fn(*const th_config, *const th_model, *const c_char, *mut i64) -> th_status>,
    pub number: Option<unsafe extern "C" fn(*const th_config, *const th_model, *const c_char, *mut f64) -> th_status>,
    pub text: Option<unsafe extern "C" fn(*const th_config, *const th_model, *const c_char, *mut c_char, u64, *mut u64) -> th_status>,
    pub count: Option<unsafe extern "C" fn(*const th_config, *const th_model, *const c_char, *mut u64) -> th_status>,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct th_device {
    pub struct_size: u32,
    pub reserved: u32,
    pub memory: Option<unsafe extern "C" fn(*const th_host, i32, *mut u64, *mut u64, *mut th_error) -> th_status>,
    pub name: Option<unsafe extern "C" fn(*const th_host, i32, *mut c_char, u32, *mut th_error) -> th_status>,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct th_estimator {
    pub struct_size: u32,
    pub reserved: u32,
    pub match_: Option<unsafe extern "C" fn(*const th_model, *const th_run) -> i32>,
    pub estimate: Option<unsafe extern "C" fn(*const th_host, *const th_model, *const th_run, *const th_profile, *mut th_mem_sink, *mut th_mem_summary, *mut th_error) -> th_status>,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct th_host {
    pub struct_size: u32,
    pub abi_major: u16,
    pub abi_minor: u16,
    pub self_: *mut c_void,
    pub name: *const c_char,
    pub version: *const c_char,
    pub log: Option<unsafe extern "C" fn(*const th_host, i32, *const c_char, *const c_char)>,
    pub alloc: Option<unsafe extern "C" fn(*const th_host, u64, u64, u32, *const c_char) -> *mut c_void>,
    pub release: Option<unsafe extern "C" fn(*const th_host, *mut c_void)>,
    pub took: Option<unsafe extern "C" fn(*const th_host, i64, u32, *const c_char)>,
    pub cancelled: Option<unsafe extern "C" fn(*const th_host) -> i32>,
    pub progress: Option<unsafe extern "C" fn(*const th_host, *const c_char, f64)>,
    pub option: Option<unsafe extern "C" fn(*const th_host, *const c_char) -> *const c_char>,
    pub thread_budget: u32,
    pub reserved: u32,
    pub extension: Option<unsafe extern "C" fn(*const th_host, *const c_char) -> *const c_void>,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct th_mem {
    pub struct_size: u32,
    pub id: u32,
    pub parent: u32,
    pub tier: u32,
    pub component: u32,
    pub claim: u32,
    pub phases: u32,
    pub flags: u32,
    pub bytes: u64,
    pub lo: u64,
    pub hi: u64,
    pub bytes_at_peak: u64,
    pub name: *const c_char,
    pub formula: *const c_char,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct th_mem_sink {
    pub struct_size: u32,
    pub reserved: u32,
    pub self_: *mut c_void,
    pub node: Option<unsafe extern "C" fn(*mut th_mem_sink, *const th_mem) -> th_status>,
    pub note: Option<unsafe extern "C" fn(*mut th_mem_sink, *const c_char) -> th_status>,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct th_mem_summary {
    pub struct_size: u32,
    pub claim: u32,
    pub digest: u64,
    pub tier_peak: [u64; TH_TIER_SLOTS as usize],
    pub peak_phase: [u32; TH_TIER_SLOTS as usize],
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct th_model {
    pub struct_size: u32,
    pub flags: u32,
    pub family: *const c_char,
    pub name: *const c_char,
    pub vocab: u64,
    pub max_positions: u64,
    pub hidden: u32,
    pub layers: u32,
    pub heads: u32,
    pub kv_heads: u32,
    pub head_dim: u32,
    pub intermediate: u32,
    pub sliding_window: u32,
    pub first_window_layer: u32,
    pub rope_theta: f64,
    pub norm_eps: f64,
    pub initializer_range: f64,
    pub rope_kind: u32,
    pub reserved: u32,
    pub rope_factor: f64,
    pub rope_low_freq_factor: f64,
    pub rope_high_freq_factor: f64,
    pub rope_original_max_positions: u64,
    pub config_json: *const c_char,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct th_run {
    pub struct_size: u32,
    pub mode: u32,
    pub micro_batch: u32,
    pub seq_len: u32,
    pub accumulate: u32,
    pub dt_weight: u32,
    pub dt_grad: u32,
    pub dt_master: u32,
    pub dt_moment: u32,
    pub dt_compute: u32,
    pub optimizer: u32,
    pub recompute: u32,
    pub zero_stage: u32,
    pub data_parallel: u32,
    pub tensor_parallel: u32,
    pub pipeline_parallel: u32,
    pub lora_rank: u32,
    pub lora_targets: u32,
    pub lora_alpha: f64,
    pub beta1: f64,
    pub beta2: f64,
    pub eps: f64,
    pub weight_decay: f64,
    pub clip_norm: f64,
    pub seed: u64,
    pub device_budget: u64,
    pub host_budget: u64,
    pub recompute_full: u32,
    pub recompute_mlp: u32,
    pub recompute_selective: u32,
    pub layout_flags: u32,
    pub context_parallel: u32,
    pub expert_parallel: u32,
    pub interleave: u32,
    pub vocab_multiple: u32,
    pub recompute_every: u32,
    pub attention: u32,
    pub cross_entropy: u32,
    pub weights_tier: u32,
    pub optimizer_tier: u32,
    pub activations_tier: u32,
    pub dt_frozen: u32,
    pub dt_kv_cache: u32,
    pub kv_page: u32,
    pub reserved: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct th_profile {
    pub struct_size: u32,
    pub alignment: u32,
    pub head_chunk_tokens: u32,
    pub attention_tile_q: u32,
    pub attention_tile_k: u32,
    pub threads: u32,
    pub slots: u32,
    pub tier: u32,
    pub workspace_bytes: u64,
    pub trainer: [c_char; 64],
    pub mode: [c_char; 32],
    pub flags: u32,
    pub recompute_full: u32,
    pub recompute_mlp: u32,
    pub recompute_selective: u32,
    pub runtime_bytes: u64,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct th_plugin {
    pub struct_size: u32,
    pub abi_major: u16,
    pub abi_minor: u16,
    pub id: *const c_char,
    pub version: *const c_char,
    pub start: Option<unsafe extern "C" fn(*const th_host, *mut th_error) -> th_status>,
    pub stop: Option<unsafe extern "C" fn()>,
    pub get: Option<unsafe extern "C" fn(*const c_char) -> *const c_void>,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct th_moments {
    pub struct_size: u32,
    pub reserved: u32,
    pub self_: *mut c_void,
    pub reached: Option<unsafe extern "C" fn(*mut th_moments, u32, u32, u64)>,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct th_op_record {
    pub struct_size: u32,
    pub phase: u32,
    pub layer: i32,
    pub micro: u32,
    pub kind: *const c_char,
    pub name: *const c_char,
    pub start_ns: u64,
    pub duration_ns: u64,
    pub flops: u64,
    pub bytes_read: u64,
    pub bytes_written: u64,
    pub live_bytes: u64,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct th_op_sink {
    pub struct_size: u32,
    pub reserved: u32,
    pub self_: *mut c_void,
    pub op: Option<unsafe extern "C" fn(*mut th_op_sink, *const th_op_record) -> th_status>,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct th_profiler {
    pub struct_size: u32,
    pub reserved: u32,
    pub record_bytes: Option<unsafe extern "C" fn(*const th_host, *const th_model, *const th_run, *mut u64, *mut th_error) -> th_status>,
    pub start: Option<unsafe extern "C" fn(*mut th_trainer_inst, *mut c_void, u64, *mut th_moments, *mut th_error) -> th_status>,
    pub read: Option<unsafe extern "C" fn(*mut th_trainer_inst, *mut th_op_sink, *mut th_error) -> th_status>,
    pub stop: Option<unsafe extern "C" fn(*mut th_trainer_inst)>,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct th_error {
    pub struct_size: u32,
    pub code: th_status,
    pub native_code: i32,
    pub reserved: u32,
    pub bytes_needed: u64,
    pub native_domain: [c_char; 16],
    pub message: [c_char; 320],
    pub hint: [c_char; 160],
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct th_tensor {
    pub struct_size: u32,
    pub dtype: u32,
    pub rank: u32,
    pub reserved: u32,
    pub dim: [u64; 8],
    pub name: *const c_char,
    pub data: *mut c_void,
    pub first: u64,
    pub count: u64,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct th_tensor_sink {
    pub struct_size: u32,
    pub reserved: u32,
    pub self_: *mut c_void,
    pub tensor: Option<unsafe extern "C" fn(*mut th_tensor_sink, *const th_tensor) -> th_status>,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct th_step {
    pub struct_size: u32,
    pub flags: u32,
    pub batch: u32,
    pub seq: u32,
    pub tokens: *const i32,
    pub targets: *const i32,
    pub lr: f64,
    pub step_index: u64,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct th_step_out {
    pub struct_size: u32,
    pub reserved: u32,
    pub loss: f64,
    pub grad_norm: f64,
    pub tokens_counted: u64,
    pub wall_ns: u64,
    pub device_ns: u64,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct th_counters {
    pub struct_size: u32,
    pub reserved: u32,
    pub h2d_bytes: u64,
    pub d2h_bytes: u64,
    pub h2d_count: u64,
    pub d2h_count: u64,
    pub sync_count: u64,
    pub sync_bytes: u64,
    pub chunks: u64,
    pub launches: u64,
    pub compute_ns: u64,
    pub exposed_transfer_ns: u64,
    pub stream_count: u64,
    pub stream_bytes: u64,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct th_trainer {
    pub struct_size: u32,
    pub reserved: u32,
    pub probe: Option<unsafe extern "C" fn(*const th_host, *mut u32, *mut th_error) -> th_status>,
    pub profile: Option<unsafe extern "C" fn(*const th_host, *const th_model, *const th_run, *mut th_profile, *mut th_error) -> th_status>,
    pub plan: Option<unsafe extern "C" fn(*const th_host, *const th_model, *const th_run, *mut th_mem_sink, *mut th_mem_summary, *mut th_error) -> th_status>,
    pub create: Option<unsafe extern "C" fn(*const th_host, i32, *const th_model, *const th_run, *mut *mut th_trainer_inst, *mut th_error) -> th_status>,
    pub load: Option<unsafe extern "C" fn(*mut th_trainer_inst, u32, *const th_tensor, *mut th_error) -> th_status>,
    pub init: Option<unsafe extern "C" fn(*mut th_trainer_inst, u64, *mut th_error) -> th_status>,
    pub step: Option<unsafe extern "C" fn(*mut th_trainer_inst, *const th_step, *mut th_step_out, *mut th_error) -> th_status>,
    pub save: Option<unsafe extern "C" fn(*mut th_trainer_inst, u32, *mut th_tensor_sink, *mut th_error) -> th_status>,
    pub counters: Option<unsafe extern "C" fn(*mut th_trainer_inst, *mut th_counters, *mut th_error) -> th_status>,
    pub info: Option<unsafe extern "C" fn(*mut th_trainer_inst, *const c_char) -> *const c_char>,
    pub metric: Option<unsafe extern "C" fn(*mut th_trainer_inst, *const c_char, *mut f64, *mut th_error) -> th_status>,
    pub destroy: Option<unsafe extern "C" fn(*mut th_trainer_inst)>,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct th_generate {
    pub struct_size: u32,
    pub reserved: u32,
    pub next: Option<unsafe extern "C" fn(*mut th_trainer_inst, i32, u32, *mut f32, *mut th_error) -> th_status>,
}

#[repr(C)]
pub struct th_trainer_inst {
    _opaque: [u8; 0],
}
