//! @NAME@: memory of a training run of the family @FAMILY@. Reports weights, gradients and optimizer state
//! exactly, activations by formula, logits as an upper bound. Start at `layer_parameters`.
use trainhost_sdk::*;

th_manifest!(
    "id = '@NAME@'
version = '0.1.0'
kind = 'estimator'
summary = 'memory of the @FAMILY@ family'
families = ['@FAMILY@']
"
);

/// Product, or an error if it exceeds 63 bits.
fn product(factors: &[u64]) -> Result<u64, Error> {
    factors
        .iter()
        .try_fold(1u64, |a, b| a.checked_mul(*b).filter(|c| *c <= i64::MAX as u64))
        .ok_or_else(|| Error::unsupported("the sizes of the model exceed 63 bits"))
}

/// Parameters of one layer: two norms; q, k, v and o; gate, up and down. Change this for your architecture.
fn layer_parameters(m: &Model) -> Result<u64, Error> {
    let h = u64::from(m.hidden);
    Ok(2 * h
        + product(&[h, 2 * m.q_width() + 2 * m.kv_width()])?
        + product(&[3, h, u64::from(m.intermediate)])?)
}

/// Elements that a layer keeps per token for its backward pass: its input, the outputs of two norms and the
/// residual (H each), q and the attention output, k and v, gate, up and their product. With recompute "full"
/// only its input.
fn layer_activations(m: &Model, r: &Run) -> u64 {
    let h = u64::from(m.hidden);
    if r.recompute == TH_RC_FULL {
        return h;
    }
    4 * h + 2 * m.q_width() + 2 * m.kv_width() + 3 * u64::from(m.intermediate)
}

struct @TYPE@;

impl Estimator for @TYPE@ {
    fn matches(m: &Model, r: &Run) -> i32 {
        let one_rank = r.data_parallel <= 1 && r.tensor_parallel <= 1 && r.pipeline_parallel <= 1;
        let supported_recompute = r.recompute == TH_RC_NONE || r.recompute == TH_RC_FULL;
        let fits = m.family() == "@FAMILY@"
            && r.mode == TH_MODE_FULL
            && one_rank
            && supported_recompute
            && r.moments().is_some();
        i32::from(fits) * 1000
    }

    fn estimate(_: &Host, m: &Model, r: &Run, _: Option<&Profile>, tree: &mut Tree) -> Result<(), Error> {
        let moments =
            r.moments().ok_or_else(|| Error::unsupported("@NAME@ supports adamw, sgd and sgd-momentum"))?;
        let table = product(&[m.vocab, u64::from(m.hidden)])?;
        let tables = if m.has(TH_MODEL_TIED_EMBEDDINGS) { table } else { product(&[2, table])? };
        let layers = product(&[u64::from(m.layers), layer_parameters(m)?])?;
        let p = product(&[1, tables + u64::from(m.hidden) + layers])?;

        let mut add_exact =
            |name: &str, component: u32, formula: &str, numbers: u64, dtype: u32| -> Result<(), Error> {
                let bytes = product(&[1, Run::bytes_of(product(&[numbers, p])?, dtype)])?;
                if bytes > 0 {
                    tree.exact(Entry::new(name, component).formula(formula), bytes)?;
                }
                Ok(())
            };
        add_exact("weights", TH_MEM_WEIGHTS, "P*bytes", 1, r.dt_weight)?;
        add_exact("master weights", TH_MEM_MASTER_WEIGHTS, "P*bytes", 1, r.dt_master)?;
        add_exact("gradients", TH_MEM_GRADIENTS, "P*bytes", 1, r.dt_grad)?;
        add_exact("moments", TH_MEM_OPTIMIZER_STATE, "moments*P*bytes", moments, r.dt_moment)?;

        let kept = Run::bytes_of(
            product(&[u64::from(m.layers), r.tokens(), layer_activations(m, r)])?,
            r.dt_compute,
        );
        let formula = "L*B*S*(4H + 2AD + 2KD + 3I)*bytes";
        tree.approximation(
            Entry::new("activations", TH_MEM_ACTIVATIONS).formula(formula),
            kept,
            kept / 2,
            product(&[2, kept])?,
        )?;
        tree.upper_bound(
            Entry::new("logits", TH_MEM_LOGITS).formula("B*S*V*4"),
            product(&[r.tokens(), m.vocab, 4])?,
        )?;
        tree.claim(TH_APPROXIMATION);
        tree.note("Activations are those of an ordinary transformer layer.")
    }
}

th_plugin!("@NAME@", "0.1.0", estimator = @TYPE@);
