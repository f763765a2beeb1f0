//! Plugins for trainhost in Rust: estimators predict the memory of a run, trainers execute it.
//!
//! A plugin is a `cdylib` with one manifest and one entry function. A complete example:
//!
//! ```
//! use trainhost_sdk::*;
//!
//! th_manifest!("id = 'acme-weights'\nversion = '1.0'\nkind = 'estimator'\nfamilies = ['acme']\n");
//!
//! struct Weights;
//! impl Estimator for Weights {
//!     fn matches(model: &Model, _: &Run) -> i32 {
//!         i32::from(model.family() == "acme") * 1000
//!     }
//!     fn estimate(
//!         _: &Host, model: &Model, _: &Run, _: Option<&Profile>, tree: &mut Tree,
//!     ) -> Result<(), Error> {
//!         let bytes = model.vocab * u64::from(model.hidden) * 4;
//!         tree.exact(Entry::new("embedding", TH_MEM_WEIGHTS).formula("V*H*4"), bytes)?;
//!         tree.note("Only the embedding is counted.")
//!     }
//! }
//! th_plugin!("acme-weights", "1.0", estimator = Weights);
//! ```
//!
//! The crate fills or truncates structs of older and newer hosts ([`Model`], [`Run`] and [`Profile`] are full
//! copies), turns a panic into an error with its message and an [`Error`] into a code for the host, and
//! compares every size and offset with those of a C compiler when it is built ([`abi`]).
//!
//! It supports Rust 1.63 (Debian 12), therefore C strings are written with [`th_text!`].
//!
//! Do not set `panic = "abort"` in your profile: a panic would then terminate the host.
#![warn(missing_docs)]

pub mod abi;
mod error;
mod estimator;
mod host;
mod layout;
mod model;
mod offset;
mod plugin;
mod trainer;
mod tree;

pub use abi::*;
pub use error::Error;
pub use estimator::Estimator;
pub use host::{Buffer, Host};
pub use model::{Model, Profile, Run};
pub use trainer::{Counters, Generate, Instance, Step, StepResult, Tensor, TensorSink, Trainer};
pub use tree::{Entry, Leaf, Tree};

#[doc(hidden)]
pub use {
    estimator::estimator_table, plugin::bytes, plugin::terminated, plugin::PluginTable,
    trainer::generate_table, trainer::trainer_table,
};
