//! @NAME@: a trainer in Rust. It trains a bigram model, logits = head x embedding of the last token, in f32
//! on one thread. The layers are loaded and saved unchanged. Put your network into `run_batch`. Tensors:
//! tensors.rs.
mod tensors;

use tensors::{elements, tensors};
use trainhost_sdk::*;

th_manifest!(
    "id = '@NAME@'
version = '0.1.0'
kind = 'trainer'
summary = 'bigrams, on one thread'
priority = -10
"
);

/// Number of moments of the optimizer, or the reason why the run is not supported, so that the host can try
/// another trainer.
fn count_moments(m: &Model, r: &Run) -> Result<usize, Error> {
    let sizes = [
        m.hidden,
        m.layers,
        m.heads,
        m.kv_heads,
        m.head_dim,
        m.intermediate,
        r.micro_batch,
        r.seq_len,
        r.accumulate,
    ];
    if m.vocab == 0 || sizes.contains(&0) {
        return Err(Error::unsupported("a dimension of the model or the run is 0"));
    }
    // Within these limits no size exceeds 63 bits, and the list of tensors stays short.
    let wide =
        m.heads >> 12 != 0 || m.kv_heads >> 12 != 0 || m.head_dim >> 12 != 0 || m.intermediate >> 22 != 0;
    if m.vocab >> 31 != 0 || m.hidden >> 18 != 0 || m.layers > 10000 || wide {
        return Err(Error::unsupported("the model is too large for @NAME@"));
    }
    if r.mode != TH_MODE_FULL {
        return Err(Error::unsupported("@NAME@ supports only full training"));
    }
    if r.dt_weight != TH_DT_F32 || r.dt_compute != TH_DT_F32 {
        return Err(Error::unsupported("@NAME@ supports only fp32"));
    }
    if r.recompute != TH_RC_NONE {
        return Err(Error::unsupported("@NAME@ keeps no activations, so recompute is not supported"));
    }
    r.moments()
        .map(|n| n as usize)
        .ok_or_else(|| Error::unsupported("@NAME@ supports adamw, sgd and sgd-momentum"))
}

/// Elements of the trained tables: embedding and head, or one table if they are tied.
fn trained_elements(m: &Model) -> usize {
    (m.vocab * u64::from(m.hidden)) as usize * if m.has(TH_MODEL_TIED_EMBEDDINGS) { 1 } else { 2 }
}

/// Four blocks of memory, allocated in `create`: parameters `w`, moments `m`, gradients `g` of the trained
/// tables, a row of logits. `plan` reports the same sizes.
struct @TYPE@ {
    host: Host,
    tensors: Vec<tensors::Tensor>,
    vocab: usize,
    hidden: usize,
    tied: bool,
    moments: usize,
    betas: [f64; 2],
    eps: f64,
    decay: f64,
    clip: f64,
    micro_batch: usize,
    batch: usize,
    seq: usize,
    w: Buffer<f32>,
    m: Buffer<f32>,
    g: Buffer<f32>,
    logits: Buffer<f32>,
}

/// Uniform random number in [0, 1) from a counter (splitmix64), independent of the order of calls.
fn uniform_random(seed: u64, n: u64) -> f64 {
    let mut z = seed.wrapping_add((n + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((z ^ (z >> 31)) >> 11) as f64 / 9007199254740992.0
}

impl @TYPE@ {
    /// Index of the moment of a scope; `None` for the parameters.
    fn moment_of_scope(&self, scope: u32) -> Result<Option<usize>, Error> {
        match scope {
            TH_SCOPE_WEIGHTS => Ok(None),
            TH_SCOPE_MOMENT1 if self.moments >= 1 => Ok(Some(0)),
            TH_SCOPE_MOMENT2 if self.moments >= 2 => Ok(Some(1)),
            _ => Err(Error::argument("the run has no tensors of this scope")),
        }
    }

    /// Returns the mean loss and the number of counted targets; if `train`, adds the gradients. logits[v] =
    /// head[v] . x with x = embedding[token]; the gradient of a logit is (p - 1[v is the target]) / counted.
    fn run_batch(&mut self, s: &Step, train: bool) -> Result<(f64, u64), Error> {
        let (v_all, h_all) = (self.vocab, self.hidden);
        let outside = |id: i32| id < 0 || id as usize >= v_all;
        if s.tokens.iter().any(|t| outside(*t)) || s.targets.iter().any(|t| *t != -100 && outside(*t)) {
            return Err(Error::argument("a token or a target is outside the vocabulary"));
        }
        let counted = s.targets.iter().filter(|t| **t != -100).count();
        let head = if self.tied { 0 } else { self.w.len() - v_all * h_all };
        let g_head = if self.tied { 0 } else { v_all * h_all };
        let mut loss = 0.0;
        for (i, (token, target)) in s.tokens.iter().zip(s.targets).enumerate() {
            if i % 64 == 0 {
                self.host.cancelled()?;
            }
            if *target == -100 {
                continue;
            }
            let row = *token as usize * h_all;
            let (w, logits, g) = (&self.w[..], &mut self.logits[..], &mut self.g[..]);
            let x = &w[row..row + h_all];
            for (v, z) in logits.iter_mut().enumerate() {
                *z = w[head + v * h_all..][..h_all].iter().zip(x).map(|(a, b)| a * b).sum();
            }
            let top = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            let sum: f64 = logits.iter().map(|z| f64::from(z - top).exp()).sum();
            loss += sum.ln() + f64::from(top - logits[*target as usize]);
            for v in 0..if train { v_all } else { 0 } {
                let p = f64::from(logits[v] - top).exp() / sum;
                let d = ((p - f64::from(u8::from(v == *target as usize))) / counted as f64) as f32;
                for h in 0..h_all {
                    g[g_head + v * h_all + h] += d * x[h];
                    g[row + h] += d * w[head + v * h_all + h];
                }
            }
        }
        Ok((if counted == 0 { 0.0 } else { loss / counted as f64 }, counted as u64))
    }

    /// Updates the table at `offset`; its gradients are at `gradient_offset`. Weight decay is decoupled from
    /// the moments.
    fn update_table(&mut self, offset: usize, gradient_offset: usize, clip: f64, s: &Step) {
        let parameters = self.w.len();
        let [b1, b2] = self.betas;
        let t = s.index as f64 + 1.0;
        let (c1, c2) = (1.0 - b1.powf(t), 1.0 - b2.powf(t));
        for i in 0..self.vocab * self.hidden {
            let mut d = f64::from(self.g[gradient_offset + i]) * clip;
            if self.moments == 1 {
                self.m[offset + i] = (b1 * f64::from(self.m[offset + i]) + d) as f32;
                d = f64::from(self.m[offset + i]);
            }
            if self.moments == 2 {
                let (first, second) = (offset + i, parameters + offset + i);
                self.m[first] = (b1 * f64::from(self.m[first]) + (1.0 - b1) * d) as f32;
                self.m[second] = (b2 * f64::from(self.m[second]) + (1.0 - b2) * d * d) as f32;
                d = f64::from(self.m[first]) / c1 / ((f64::from(self.m[second]) / c2).sqrt() + self.eps);
            }
            let w = &mut self.w[offset + i];
            *w -= (s.lr * (d + self.decay * f64::from(*w))) as f32;
        }
    }
}

impl Trainer for @TYPE@ {
    fn probe(_: &Host) -> Result<u32, Error> {
        Ok(1)
    }

    fn profile(_: &Host, _: &Model, _: &Run, p: &mut th_profile) -> Result<(), Error> {
        (p.alignment, p.threads, p.tier) = (64, 1, TH_TIER_HOST);
        for (to, from) in p.trainer.iter_mut().zip(b"@NAME@") {
            *to = *from as std::os::raw::c_char;
        }
        Ok(())
    }

    fn plan(_: &Host, m: &Model, r: &Run, tree: &mut Tree) -> Result<(), Error> {
        let (moments, p) = (count_moments(m, r)? as u64, elements(&tensors(m)) as u64);
        tree.exact(Entry::new("weights", TH_MEM_WEIGHTS).formula("P*4"), p * 4)?;
        tree.exact(
            Entry::new("gradients", TH_MEM_GRADIENTS).formula("2*V*H*4"),
            trained_elements(m) as u64 * 4,
        )?;
        tree.exact(Entry::new("moments", TH_MEM_OPTIMIZER_STATE).formula("moments*P*4"), moments * p * 4)?;
        tree.exact(Entry::new("logits", TH_MEM_LOGITS).formula("V*4"), m.vocab * 4)?;
        tree.peak(TH_TIER_HOST, 4 * (p * (1 + moments) + trained_elements(m) as u64 + m.vocab), TH_PH_UPDATE);
        tree.claim(TH_EXACT);
        tree.note("Only embedding and head are trained.")
    }

    fn create(host: Host, device: i32, m: &Model, r: &Run) -> Result<Self, Error> {
        if device != 0 {
            return Err(Error::argument("the only device is 0"));
        }
        let moments = count_moments(m, r)?;
        let tensors = tensors(m);
        let parameters = elements(&tensors);
        Ok(@TYPE@ {
            host,
            tensors,
            vocab: m.vocab as usize,
            hidden: m.hidden as usize,
            tied: m.has(TH_MODEL_TIED_EMBEDDINGS),
            moments,
            betas: [r.beta1, r.beta2],
            eps: r.eps,
            decay: r.weight_decay,
            clip: r.clip_norm,
            micro_batch: r.micro_batch as usize,
            batch: r.micro_batch as usize * r.accumulate as usize,
            seq: r.seq_len as usize,
            w: host.alloc(parameters, th_text!("weights"))?,
            m: host.alloc(parameters * moments, th_text!("moments"))?,
            g: host.alloc(trained_elements(m), th_text!("gradients"))?,
            logits: host.alloc(m.vocab as usize, th_text!("logits"))?,
        })
    }

    fn load(&mut self, scope: u32, tensor: &Tensor) -> Result<(), Error> {
        let moment = self.moment_of_scope(scope)?;
        let values = tensor.as_f32()?;
        let parameters = self.w.len();
        let known = self.tensors.iter_mut().find(|t| t.name == tensor.name());
        let known =
            known.ok_or_else(|| Error::argument(format!("the model has no tensor {}", tensor.name())))?;
        if known.dims != tensor.dims() {
            return Err(Error::argument(format!("{} has a wrong shape", known.name)));
        }
        let first = tensor.first() as usize;
        if first > known.elements() || values.len() > known.elements() - first {
            return Err(Error::argument(format!("the part is outside of {}", known.name)));
        }
        known.loaded |= moment.is_none();
        let start = known.offset + first;
        match moment {
            None => self.w[start..start + values.len()].copy_from_slice(values),
            Some(n) => self.m[n * parameters + start..][..values.len()].copy_from_slice(values),
        }
        Ok(())
    }

    /// Initial values: matrices uniform with standard deviation 0.02, norms 1, biases 0.
    fn init(&mut self, seed: u64) -> Result<(), Error> {
        for t in self.tensors.iter().filter(|t| !t.loaded) {
            for i in t.offset..t.offset + t.elements() {
                self.w[i] = match t.dims.len() {
                    2 => (0.02 * 12f64.sqrt() * (uniform_random(seed, i as u64) - 0.5)) as f32,
                    _ if t.name.ends_with("bias") => 0.0,
                    _ => 1.0,
                };
            }
        }
        Ok(())
    }

    fn step(&mut self, s: &Step) -> Result<StepResult, Error> {
        let fits = if s.evaluate { s.batch <= self.micro_batch } else { s.batch == self.batch };
        if !fits || s.seq != self.seq {
            return Err(Error::argument("the batch does not match the run"));
        }
        self.g.fill(0.0);
        let (loss, tokens) = self.run_batch(s, !s.evaluate)?;
        let grad_norm = self.g.iter().map(|x| f64::from(*x) * f64::from(*x)).sum::<f64>().sqrt();
        if !loss.is_finite() || !grad_norm.is_finite() {
            return Err(Error::new(TH_E_NONFINITE, "the loss or its gradient is not finite"));
        }
        if !s.evaluate {
            let clip = if self.clip > 0.0 { (self.clip / (grad_norm + 1e-6)).min(1.0) } else { 1.0 };
            let table = self.vocab * self.hidden;
            self.update_table(0, 0, clip, s);
            if !self.tied {
                self.update_table(self.w.len() - table, table, clip, s);
            }
        }
        Ok(StepResult { loss, grad_norm, tokens })
    }

    fn save(&mut self, scope: u32, sink: &mut TensorSink) -> Result<(), Error> {
        let moment = self.moment_of_scope(scope)?;
        for t in &self.tensors {
            let from = moment.map_or(&self.w[..], |n| &self.m[n * self.w.len()..]);
            sink.tensor(&t.name, &t.dims, &from[t.offset..t.offset + t.elements()])?;
        }
        Ok(())
    }
}

th_plugin!("@NAME@", "0.1.0", trainer = @TYPE@);
