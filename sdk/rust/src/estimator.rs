//! Estimators: predict the memory of a run without running it.
use crate::abi::*;
use crate::error::{guard, require_non_null, Error};
use crate::host::Host;
use crate::model::{Model, Profile, Run};
use crate::tree::Tree;
use std::panic::{catch_unwind, AssertUnwindSafe};

/// Predicts the memory of a run. Functions may be called from several threads at once and keep no state.
pub trait Estimator: 'static {
    /// How well the estimator fits this model and run: 0 = does not apply, 1 to 1000 = better with larger
    /// values. No I/O, less than a millisecond.
    fn matches(model: &Model, run: &Run) -> i32;
    /// Sends the entries of the prediction to `tree`. `profile`: traits of the trainer that would execute the
    /// run.
    fn estimate(
        host: &Host, model: &Model, run: &Run, profile: Option<&Profile>, tree: &mut Tree,
    ) -> Result<(), Error>;
}

unsafe extern "C" fn matches<E: Estimator>(model: *const th_model, run: *const th_run) -> i32 {
    if model.is_null() || run.is_null() {
        return 0;
    }
    catch_unwind(AssertUnwindSafe(|| E::matches(&Model::from_raw(model), &Run::from_raw(run)))).unwrap_or(0)
}

unsafe extern "C" fn estimate<E: Estimator>(
    host: *const th_host, model: *const th_model, run: *const th_run, profile: *const th_profile,
    sink: *mut th_mem_sink, summary: *mut th_mem_summary, error: *mut th_error,
) -> th_status {
    guard(error, || {
        require_non_null(&[host.cast(), model.cast(), run.cast(), sink.cast()])?;
        let profile = if profile.is_null() { None } else { Some(Profile::from_raw(profile)) };
        let mut tree = Tree::from_raw(sink, summary);
        let (model, run) = (Model::from_raw(model), Run::from_raw(run));
        E::estimate(&Host::from_raw(host), &model, &run, profile.as_ref(), &mut tree)?;
        // A run file can name an estimator that does not match the model. After estimate(), whose own error says
        // more; the host drops the report.
        if E::matches(&model, &run) == 0 {
            return Err(Error::unsupported("the estimator does not cover this model and run"));
        }
        Ok(())
    })
}

#[doc(hidden)]
pub const fn estimator_table<E: Estimator>() -> th_estimator {
    th_estimator {
        struct_size: core::mem::size_of::<th_estimator>() as u32,
        reserved: 0,
        match_: Some(matches::<E>),
        estimate: Some(estimate::<E>),
    }
}
