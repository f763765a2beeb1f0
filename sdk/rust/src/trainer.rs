//! Trainers: one object is one training run.
use crate::abi::*;
use crate::error::{check, guard, require_non_null, Error};
use crate::host::Host;
use crate::model::{read_in, text_of, write_out, Model, Run};
use crate::tree::Tree;
use std::ffi::{CStr, CString};
use std::os::raw::{c_char, c_void};
use std::panic::{catch_unwind, AssertUnwindSafe};

/// A trainer; one object is one training run. `probe`, `profile` and `plan` are called without an object,
/// from any thread. Calls on an object come one at a time, from any thread.
pub trait Trainer: Sized + Send + 'static {
    /// Number of usable devices; [`Error::unavailable`] with the reason if there are none. Cheap.
    fn probe(host: &Host) -> Result<u32, Error>;
    /// Traits that determine memory (alignment, tiles, threads), for estimators. Needs no device.
    fn profile(host: &Host, model: &Model, run: &Run, profile: &mut th_profile) -> Result<(), Error>;
    /// Sends the trainer's own memory breakdown of a run. Allocates nothing. Returns [`Error::unsupported`]
    /// for a run that the trainer cannot execute.
    fn plan(host: &Host, model: &Model, run: &Run, tree: &mut Tree) -> Result<(), Error>;
    /// Creates a run and allocates its memory. The object may keep the host, which outlives it.
    fn create(host: Host, device: i32, model: &Model, run: &Run) -> Result<Self, Error>;
    /// Loads a tensor or a part of one, from a file or a checkpoint. `scope`: `TH_SCOPE_*`.
    fn load(&mut self, scope: u32, tensor: &Tensor) -> Result<(), Error>;
    /// Initializes every tensor that `load` did not fill; the values depend on the seed only.
    fn init(&mut self, seed: u64) -> Result<(), Error>;
    /// Executes one update, or with [`Step::evaluate`] computes only the loss. `TH_E_NONFINITE`: the state is
    /// unchanged.
    fn step(&mut self, step: &Step) -> Result<StepResult, Error>;
    /// Sends every tensor of the scope in the order of the model's tensors.
    fn save(&mut self, scope: u32, sink: &mut TensorSink) -> Result<(), Error>;
    /// Totals of copies and launches since creation.
    fn counters(&mut self) -> Result<Counters, Error> {
        Ok(Counters::new())
    }
    /// A fact about the object, e.g. for the key "kernel_set".
    fn info(&self, _key: &str) -> Option<&CStr> {
        None
    }
    /// Measures a figure, e.g. "peak_flops".
    fn metric(&mut self, key: &str) -> Result<f64, Error> {
        Err(Error::new(TH_E_ABSENT, format!("unknown metric {key}")))
    }
}

/// A trainer that also computes the logits of the next token, for `trainhost generate`.
pub trait Generate: Trainer {
    /// Vocabulary size of the model.
    fn vocab(&self) -> usize;
    /// Computes the logits after `token` at `position`; position 0 starts a new text. `logits` has the size
    /// of the vocabulary.
    fn next(&mut self, token: i32, position: u32, logits: &mut [f32]) -> Result<(), Error>;
}

/// A tensor that the host passes, or its elements `first..first + count`: host memory, row-major.
pub struct Tensor<'a> {
    raw: th_tensor,
    name: &'a str,
}

impl Tensor<'_> {
    /// Hugging Face name: "model.layers.0.self_attn.q_proj.weight".
    pub fn name(&self) -> &str {
        self.name
    }
    /// Dimensions of the whole tensor.
    pub fn dims(&self) -> &[u64] {
        &self.raw.dim[..(self.raw.rank as usize).min(8)]
    }
    /// Index of the first element of the part.
    pub fn first(&self) -> u64 {
        self.raw.first
    }
    /// Element type, `TH_DT_*`.
    pub fn dtype(&self) -> u32 {
        self.raw.dtype
    }
    /// Values of the part; an error if their type is not f32.
    pub fn as_f32(&self) -> Result<&[f32], Error> {
        if self.raw.dtype != TH_DT_F32 {
            return Err(Error::argument(format!("the type of tensor {} is not f32", self.name)));
        }
        if self.raw.count == 0 {
            return Ok(&[]);
        }
        Ok(unsafe { core::slice::from_raw_parts(self.raw.data.cast(), self.raw.count as usize) })
    }
}

/// Input of one update or evaluation.
pub struct Step<'a> {
    /// Compute only the loss and change nothing.
    pub evaluate: bool,
    /// Sequences: accumulate x micro_batch (evaluate: at most micro_batch).
    pub batch: usize,
    /// Tokens per sequence.
    pub seq: usize,
    /// Token ids, `[batch, seq]`.
    pub tokens: &'a [i32],
    /// Target ids, `[batch, seq]`; -100 = not counted.
    pub targets: &'a [i32],
    /// Learning rate of this update.
    pub lr: f64,
    /// Index of the update, from 0; Adam bias correction uses `index + 1`.
    pub index: u64,
}

/// Result of one update or evaluation.
#[derive(Debug, Clone, Copy, Default)]
pub struct StepResult {
    /// Mean over counted targets, in nats.
    pub loss: f64,
    /// Global L2 norm before clipping.
    pub grad_norm: f64,
    /// Counted targets.
    pub tokens: u64,
}

/// `th_counters`, initially zero.
pub struct Counters(pub th_counters);
impl Counters {
    /// Returns counters that are all zero.
    pub fn new() -> Counters {
        Counters(unsafe { core::mem::zeroed() })
    }
}
impl Default for Counters {
    fn default() -> Self {
        Counters::new()
    }
}

/// Receives the tensors of [`Trainer::save`].
pub struct TensorSink(*mut th_tensor_sink);
impl TensorSink {
    /// Sends a whole tensor of one or two dimensions.
    pub fn tensor(&mut self, name: &str, dims: &[u64], values: &[f32]) -> Result<(), Error> {
        let c_name = CString::new(name)
            .map_err(|_| Error::new(TH_E_INTERNAL, "the name of a tensor contains a NUL"))?;
        if dims.is_empty() || dims.len() > 8 || dims.iter().product::<u64>() != values.len() as u64 {
            return Err(Error::new(
                TH_E_INTERNAL,
                format!("{name} has {} values, but dimensions {dims:?}", values.len()),
            ));
        }
        let mut t: th_tensor = unsafe { core::mem::zeroed() };
        t.struct_size = core::mem::size_of::<th_tensor>() as u32;
        (t.dtype, t.rank, t.name, t.count) =
            (TH_DT_F32, dims.len() as u32, c_name.as_ptr(), values.len() as u64);
        t.dim[..dims.len()].copy_from_slice(dims);
        t.data = values.as_ptr() as *mut c_void;
        let send = unsafe { (*self.0).tensor }.ok_or_else(|| Error::argument("the sink has no function"))?;
        check(unsafe { send(self.0, &t) }, "the host rejected a tensor")
    }
}

/// The object of an instance handle and its state. A call that the interface forbids in this state returns
/// `TH_E_STATE`; after a fatal error only destroy() is allowed.
#[doc(hidden)]
pub struct Instance<T> {
    object: T,
    ready: bool,
    lost: bool,
}

/// Codes after which the interface allows only destroy().
fn is_fatal(code: th_status) -> bool {
    matches!(code, TH_E_DEVICE_LOST | TH_E_DEVICE_OOM | TH_E_HOST_OOM | TH_E_IO | TH_E_INTERNAL)
}

/// Runs one call on an instance. `needs_ready`: the call is allowed only after init().
unsafe fn call_instance<T: Trainer>(
    instance: *mut th_trainer_inst, needs_ready: bool, error: *mut th_error,
    f: impl FnOnce(&mut Instance<T>) -> Result<(), Error>,
) -> th_status {
    if instance.is_null() {
        return guard(error, || Err(Error::argument("the instance is null")));
    }
    let instance = &mut *instance.cast::<Instance<T>>();
    if instance.lost {
        return guard(error, || {
            Err(Error::new(TH_E_STATE, "an earlier call failed; only destroy() is allowed"))
        });
    }
    if needs_ready && !instance.ready {
        return guard(error, || Err(Error::new(TH_E_STATE, "init() was not called")));
    }
    let code = guard(error, || f(&mut *instance));
    instance.lost = is_fatal(code);
    code
}

unsafe extern "C" fn probe<T: Trainer>(
    host: *const th_host, devices: *mut u32, error: *mut th_error,
) -> th_status {
    guard(error, || {
        require_non_null(&[host.cast(), (devices as *const u32).cast()])?;
        *devices = T::probe(&Host::from_raw(host))?;
        Ok(())
    })
}
unsafe extern "C" fn profile<T: Trainer>(
    host: *const th_host, model: *const th_model, run: *const th_run, out: *mut th_profile,
    error: *mut th_error,
) -> th_status {
    guard(error, || {
        require_non_null(&[host.cast(), model.cast(), run.cast(), out.cast()])?;
        let mut full: th_profile = core::mem::zeroed();
        full.struct_size = core::mem::size_of::<th_profile>() as u32;
        T::profile(&Host::from_raw(host), &Model::from_raw(model), &Run::from_raw(run), &mut full)?;
        write_out(out, &full);
        Ok(())
    })
}
unsafe extern "C" fn plan<T: Trainer>(
    host: *const th_host, model: *const th_model, run: *const th_run, sink: *mut th_mem_sink,
    summary: *mut th_mem_summary, error: *mut th_error,
) -> th_status {
    guard(error, || {
        require_non_null(&[host.cast(), model.cast(), run.cast(), sink.cast()])?;
        let mut tree = Tree::from_raw(sink, summary);
        T::plan(&Host::from_raw(host), &Model::from_raw(model), &Run::from_raw(run), &mut tree)
    })
}
unsafe extern "C" fn create<T: Trainer>(
    host: *const th_host, device: i32, model: *const th_model, run: *const th_run,
    out: *mut *mut th_trainer_inst, error: *mut th_error,
) -> th_status {
    guard(error, || {
        require_non_null(&[host.cast(), model.cast(), run.cast(), out.cast()])?;
        *out = core::ptr::null_mut();
        let object = T::create(Host::from_raw(host), device, &Model::from_raw(model), &Run::from_raw(run))?;
        *out = Box::into_raw(Box::new(Instance { object, ready: false, lost: false })).cast();
        Ok(())
    })
}
unsafe extern "C" fn load<T: Trainer>(
    instance: *mut th_trainer_inst, scope: u32, tensor: *const th_tensor, error: *mut th_error,
) -> th_status {
    call_instance::<T>(instance, false, error, |i| {
        require_non_null(&[tensor.cast()])?;
        let raw = read_in(tensor);
        i.object.load(scope, &Tensor { name: text_of(raw.name), raw })
    })
}
unsafe extern "C" fn init<T: Trainer>(
    instance: *mut th_trainer_inst, seed: u64, error: *mut th_error,
) -> th_status {
    call_instance::<T>(instance, false, error, |i| {
        if i.ready {
            return Err(Error::new(TH_E_STATE, "init() was already called"));
        }
        i.object.init(seed)?;
        i.ready = true;
        Ok(())
    })
}
unsafe extern "C" fn step<T: Trainer>(
    instance: *mut th_trainer_inst, raw: *const th_step, out: *mut th_step_out, error: *mut th_error,
) -> th_status {
    call_instance::<T>(instance, true, error, |i| {
        require_non_null(&[raw.cast(), (out as *const th_step_out).cast()])?;
        let s = read_in(raw);
        let ids = |at: *const i32| {
            let n = s.batch as usize * s.seq as usize;
            if n == 0 || at.is_null() {
                &[][..]
            } else {
                core::slice::from_raw_parts(at, n)
            }
        };
        let (tokens, targets) = (ids(s.tokens), ids(s.targets));
        if tokens.is_empty() || targets.is_empty() {
            return Err(Error::argument("the step has no tokens or no targets"));
        }
        let start = std::time::Instant::now();
        let result = i.object.step(&Step {
            evaluate: s.flags & TH_STEP_EVALUATE != 0,
            batch: s.batch as usize,
            seq: s.seq as usize,
            tokens,
            targets,
            lr: s.lr,
            index: s.step_index,
        })?;
        let mut full: th_step_out = core::mem::zeroed();
        full.struct_size = core::mem::size_of::<th_step_out>() as u32;
        (full.loss, full.grad_norm, full.tokens_counted) = (result.loss, result.grad_norm, result.tokens);
        full.wall_ns = start.elapsed().as_nanos() as u64;
        write_out(out, &full);
        Ok(())
    })
}
unsafe extern "C" fn save<T: Trainer>(
    instance: *mut th_trainer_inst, scope: u32, sink: *mut th_tensor_sink, error: *mut th_error,
) -> th_status {
    call_instance::<T>(instance, true, error, |i| {
        require_non_null(&[(sink as *const th_tensor_sink).cast()])?;
        i.object.save(scope, &mut TensorSink(sink))
    })
}
unsafe extern "C" fn counters<T: Trainer>(
    instance: *mut th_trainer_inst, out: *mut th_counters, error: *mut th_error,
) -> th_status {
    call_instance::<T>(instance, false, error, |i| {
        require_non_null(&[(out as *const th_counters).cast()])?;
        let mut full = i.object.counters()?.0;
        full.struct_size = core::mem::size_of::<th_counters>() as u32;
        write_out(out, &full);
        Ok(())
    })
}
unsafe extern "C" fn info<T: Trainer>(instance: *mut th_trainer_inst, key: *const c_char) -> *const c_char {
    if instance.is_null() {
        return core::ptr::null();
    }
    catch_unwind(AssertUnwindSafe(|| {
        (*instance.cast::<Instance<T>>()).object.info(text_of(key)).map_or(core::ptr::null(), CStr::as_ptr)
    }))
    .unwrap_or(core::ptr::null())
}
unsafe extern "C" fn metric<T: Trainer>(
    instance: *mut th_trainer_inst, key: *const c_char, out: *mut f64, error: *mut th_error,
) -> th_status {
    call_instance::<T>(instance, false, error, |i| {
        require_non_null(&[key.cast(), (out as *const f64).cast()])?;
        *out = i.object.metric(text_of(key))?;
        Ok(())
    })
}
unsafe extern "C" fn destroy<T: Trainer>(instance: *mut th_trainer_inst) {
    if !instance.is_null() {
        let _ = catch_unwind(AssertUnwindSafe(|| drop(Box::from_raw(instance.cast::<Instance<T>>()))));
    }
}
unsafe extern "C" fn next<T: Generate>(
    instance: *mut th_trainer_inst, token: i32, position: u32, logits: *mut f32, error: *mut th_error,
) -> th_status {
    call_instance::<T>(instance, true, error, |i| {
        require_non_null(&[(logits as *const f32).cast()])?;
        let vocab = i.object.vocab();
        i.object.next(token, position, core::slice::from_raw_parts_mut(logits, vocab))
    })
}

#[doc(hidden)]
pub const fn trainer_table<T: Trainer>() -> th_trainer {
    th_trainer {
        struct_size: core::mem::size_of::<th_trainer>() as u32,
        reserved: 0,
        probe: Some(probe::<T>),
        profile: Some(profile::<T>),
        plan: Some(plan::<T>),
        create: Some(create::<T>),
        load: Some(load::<T>),
        init: Some(init::<T>),
        step: Some(step::<T>),
        save: Some(save::<T>),
        counters: Some(counters::<T>),
        info: Some(info::<T>),
        metric: Some(metric::<T>),
        destroy: Some(destroy::<T>),
    }
}

#[doc(hidden)]
pub const fn generate_table<T: Generate>() -> th_generate {
    th_generate {
        struct_size: core::mem::size_of::<th_generate>() as u32,
        reserved: 0,
        next: Some(next::<T>),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Minimal trainer: a learning rate above 1 panics.
    struct Toy;
    impl Trainer for Toy {
        fn probe(_: &Host) -> Result<u32, Error> {
            Ok(1)
        }
        fn profile(_: &Host, _: &Model, _: &Run, _: &mut th_profile) -> Result<(), Error> {
            Ok(())
        }
        fn plan(_: &Host, _: &Model, _: &Run, _: &mut Tree) -> Result<(), Error> {
            Ok(())
        }
        fn create(_: Host, _: i32, _: &Model, _: &Run) -> Result<Self, Error> {
            Ok(Toy)
        }
        fn load(&mut self, _: u32, _: &Tensor) -> Result<(), Error> {
            Ok(())
        }
        fn init(&mut self, _: u64) -> Result<(), Error> {
            Ok(())
        }
        fn step(&mut self, step: &Step) -> Result<StepResult, Error> {
            if step.lr > 1.0 {
                panic!("learning rate too large");
            }
            Ok(StepResult { loss: 2.0, grad_norm: 0.0, tokens: step.tokens.len() as u64 })
        }
        fn save(&mut self, _: u32, _: &mut TensorSink) -> Result<(), Error> {
            Ok(())
        }
    }

    #[test]
    fn nulls_are_argument_errors() {
        let table = trainer_table::<Toy>();
        let none = core::ptr::null_mut::<th_trainer_inst>();
        let e = core::ptr::null_mut::<th_error>();
        let instance: *mut th_trainer_inst =
            Box::into_raw(Box::new(Instance { object: Toy, ready: true, lost: false })).cast();
        unsafe {
            for i in [none, instance] {
                assert_eq!(table.load.unwrap()(i, 1, core::ptr::null(), e), TH_E_ARG);
                assert_eq!(table.step.unwrap()(i, core::ptr::null(), core::ptr::null_mut(), e), TH_E_ARG);
                assert_eq!(table.save.unwrap()(i, 1, core::ptr::null_mut(), e), TH_E_ARG);
                assert_eq!(table.counters.unwrap()(i, core::ptr::null_mut(), e), TH_E_ARG);
                assert_eq!(table.metric.unwrap()(i, core::ptr::null(), core::ptr::null_mut(), e), TH_E_ARG);
            }
            assert_eq!(table.init.unwrap()(none, 1, e), TH_E_ARG);
            assert!(table.info.unwrap()(none, core::ptr::null()).is_null());
            let (m, r): (th_model, th_run) = (core::mem::zeroed(), core::mem::zeroed());
            let (mut p, mut sink): (th_profile, th_mem_sink) = (core::mem::zeroed(), core::mem::zeroed());
            assert_eq!(table.profile.unwrap()(core::ptr::null(), &m, &r, &mut p, e), TH_E_ARG);
            assert_eq!(
                table.plan.unwrap()(core::ptr::null(), &m, &r, &mut sink, core::ptr::null_mut(), e),
                TH_E_ARG
            );
            assert_eq!(table.probe.unwrap()(core::ptr::null(), core::ptr::null_mut(), e), TH_E_ARG);
            table.destroy.unwrap()(none);
            table.destroy.unwrap()(instance)
        }
    }

    #[test]
    fn calls_in_the_wrong_state_fail_and_after_a_panic_only_destroy_is_allowed() {
        let table = trainer_table::<Toy>();
        let instance: *mut th_trainer_inst =
            Box::into_raw(Box::new(Instance { object: Toy, ready: false, lost: false })).cast();
        let ids = [1, 2, 3, 4];
        let mut s: th_step = unsafe { core::mem::zeroed() };
        s.struct_size = core::mem::size_of::<th_step>() as u32;
        (s.batch, s.seq, s.tokens, s.targets) = (2, 2, ids.as_ptr(), ids.as_ptr());
        let mut out: th_step_out = unsafe { core::mem::zeroed() };
        out.struct_size = core::mem::size_of::<th_step_out>() as u32;
        let mut step =
            |s: &th_step| unsafe { table.step.unwrap()(instance, s, &mut out, core::ptr::null_mut()) };
        let init = || unsafe { table.init.unwrap()(instance, 1, core::ptr::null_mut()) };
        assert_eq!(step(&s), TH_E_STATE);
        assert_eq!((init(), init()), (TH_OK, TH_E_STATE));
        assert_eq!(step(&s), TH_OK);
        assert_eq!(step(&th_step { lr: 2.0, ..s }), TH_E_INTERNAL);
        assert_eq!(step(&s), TH_E_STATE);
        assert_eq!((out.loss, out.tokens_counted), (2.0, 4));
        unsafe { table.destroy.unwrap()(instance) }
    }
}
