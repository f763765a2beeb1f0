//! Parameters of the model with names and order of a checkpoint, for `load` and `save`.
use trainhost_sdk::*;

pub struct Tensor {
    pub name: String,
    /// `[rows, columns]`; a vector has one dimension.
    pub dims: Vec<u64>,
    /// Offset of the first element in the block of all parameters, in elements.
    pub offset: usize,
    pub loaded: bool,
}

impl Tensor {
    pub fn elements(&self) -> usize {
        self.dims.iter().product::<u64>() as usize
    }
}

pub fn elements(all: &[Tensor]) -> usize {
    all.last().map_or(0, |t| t.offset + t.elements())
}

/// All tensors. h hidden size, q and kv: widths of queries and keys, i: intermediate size.
pub fn tensors(m: &Model) -> Vec<Tensor> {
    let mut out: Vec<Tensor> = Vec::new();
    let mut add = |name: String, dims: &[u64]| {
        let offset = elements(&out);
        out.push(Tensor { name, dims: dims.to_vec(), offset, loaded: false });
    };
    let (h, q, kv, i) = (u64::from(m.hidden), m.q_width(), m.kv_width(), u64::from(m.intermediate));
    add("model.embed_tokens.weight".into(), &[m.vocab, h]);
    for layer in 0..m.layers {
        let mut within = |name: &str, dims: &[u64]| add(format!("model.layers.{layer}.{name}"), dims);
        within("input_layernorm.weight", &[h]);
        within("self_attn.q_proj.weight", &[q, h]);
        within("self_attn.k_proj.weight", &[kv, h]);
        within("self_attn.v_proj.weight", &[kv, h]);
        if m.has(TH_MODEL_QKV_BIAS) {
            within("self_attn.q_proj.bias", &[q]);
            within("self_attn.k_proj.bias", &[kv]);
            within("self_attn.v_proj.bias", &[kv]);
        }
        if m.has(TH_MODEL_QK_NORM) {
            within("self_attn.q_norm.weight", &[u64::from(m.head_dim)]);
            within("self_attn.k_norm.weight", &[u64::from(m.head_dim)]);
        }
        within("self_attn.o_proj.weight", &[h, q]);
        if m.has(TH_MODEL_O_BIAS) {
            within("self_attn.o_proj.bias", &[h]);
        }
        within("post_attention_layernorm.weight", &[h]);
        within("mlp.gate_proj.weight", &[i, h]);
        within("mlp.up_proj.weight", &[i, h]);
        if m.has(TH_MODEL_MLP_BIAS) {
            within("mlp.gate_proj.bias", &[i]);
            within("mlp.up_proj.bias", &[i]);
        }
        within("mlp.down_proj.weight", &[h, i]);
        if m.has(TH_MODEL_MLP_BIAS) {
            within("mlp.down_proj.bias", &[h]);
        }
    }
    add("model.norm.weight".into(), &[h]);
    if !m.has(TH_MODEL_TIED_EMBEDDINGS) {
        add("lm_head.weight".into(), &[m.vocab, h]);
    }
    out
}
