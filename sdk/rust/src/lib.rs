//! Plugins for trainhost in Rust: estimators that say what a run will take, and trainers that run it.
//!
//! A plugin is a `cdylib` with one manifest and one entry. This is a whole one:
//!
//! ```
//! use trainhost_sdk::{th_manifest, th_plugin, Error, Estimator, Host, Leaf, Model, Profile, Run, Tree, TH_MEM_WEIGHTS};
//!
//! th_manifest!("id = 'acme-weights'\nversion = '1.0'\nkind = 'estimator'\nfamilies = ['acme']\n");
//!
//! struct Weights;
//! impl Estimator for Weights {
//!     fn matches(model: &Model, _: &Run) -> i32 {
//!         i32::from(model.family() == "acme") * 1000
//!     }
//!     fn estimate(_: &Host, model: &Model, _: &Run, _: Option<&Profile>, tree: &mut Tree) -> Result<(), Error> {
//!         tree.exact(Leaf::new("embedding", TH_MEM_WEIGHTS).formula("V*H*4"), model.vocab * u64::from(model.hidden) * 4)?;
//!         tree.note("Only the embedding is counted.")
//!     }
//! }
//! th_plugin!("acme-weights", "1.0", estimator = Weights);
//! ```
//!
//! What the crate does so that you need not: structs of older and newer hosts are completed or cut ([`Model`], [`Run`],
//! [`Profile`] are full copies), a panic becomes an error with its message, an [`Error`] becomes a code that tells the host
//! what it can do, and every size and offset is held against a C compiler when the crate is built ([`abi`]).
//!
//! Rust 1.63 is enough (Debian 12's), which is why texts for C are written [`th_text!`].
//!
//! What it cannot do: `panic = "abort"` in your profile ends the host. Leave it out.
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
pub use tree::{Leaf, Tree};

#[doc(hidden)]
pub use {estimator::estimator_table, plugin::bytes, plugin::terminated, plugin::PluginTable, trainer::generate_table, trainer::trainer_table};
