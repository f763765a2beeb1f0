//! Model, run and trainer traits as full copies: missing fields of an older host become zero (unset), fields
//! of a newer host that this crate does not know are ignored.
use crate::abi::*;
use std::ffi::CStr;
use std::ops::Deref;
use std::os::raw::c_char;

/// Full copy of a struct that may be shorter or longer.
///
/// # Safety
/// `from` is valid for the `struct_size` bytes that its first field names. `T` is a struct of the ABI.
pub(crate) unsafe fn read_in<T>(from: *const T) -> T {
    let theirs = *from.cast::<u32>() as usize;
    let mut full: T = core::mem::zeroed();
    core::ptr::copy_nonoverlapping(
        from.cast::<u8>(),
        (&mut full as *mut T).cast(),
        theirs.min(core::mem::size_of::<T>()),
    );
    *(&mut full as *mut T).cast::<u32>() = core::mem::size_of::<T>() as u32;
    full
}

/// Copies as many bytes as the `struct_size` of `to` allows; that size does not change.
///
/// # Safety
/// As for [`read_in`], and `to` may be written.
pub(crate) unsafe fn write_out<T>(to: *mut T, full: &T) {
    let theirs = *to.cast::<u32>();
    core::ptr::copy_nonoverlapping(
        (full as *const T).cast::<u8>(),
        to.cast::<u8>(),
        (theirs as usize).min(core::mem::size_of::<T>()),
    );
    *to.cast::<u32>() = theirs;
}

/// Borrowed text of the host; "" if it is null or not UTF-8.
///
/// # Safety
/// `text` is null or NUL-terminated and outlives `'a`.
pub(crate) unsafe fn text_of<'a>(text: *const c_char) -> &'a str {
    if text.is_null() {
        ""
    } else {
        CStr::from_ptr(text).to_str().unwrap_or("")
    }
}

macro_rules! complete {
    ($(#[$doc:meta])* $name:ident, $raw:ty) => {
        $(#[$doc])*
        pub struct $name($raw);
        impl Deref for $name {
            type Target = $raw;
            fn deref(&self) -> &$raw {
                &self.0
            }
        }
        impl $name {
            pub(crate) unsafe fn from_raw(raw: *const $raw) -> Self {
                Self(read_in(raw))
            }
        }
    };
}

complete! {
    /// The model: every field of [`th_model`] by name (`model.hidden`), texts by function. A number that the
    /// config does not have is 0.
    Model, th_model
}
complete! {
    /// The run: every field of [`th_run`] by name (`run.micro_batch`).
    Run, th_run
}
complete! {
    /// Traits of the trainer for which an estimate is made: every field of [`th_profile`] by name.
    Profile, th_profile
}

impl Model {
    pub(crate) fn raw(&self) -> &th_model {
        &self.0
    }
    /// `model_type` of the config, e.g. "llama".
    pub fn family(&self) -> &str {
        unsafe { text_of(self.0.family) }
    }
    /// Display name.
    pub fn name(&self) -> &str {
        unsafe { text_of(self.0.name) }
    }
    /// Text of the Hugging Face config.json; "" if the model was given as numbers. To read keys, use
    /// [`Host::config_integer`](crate::Host::config_integer) and the like.
    pub fn config_json(&self) -> &str {
        unsafe { text_of(self.0.config_json) }
    }
    /// Whether a flag `TH_MODEL_*` is set.
    pub fn has(&self, flag: u32) -> bool {
        self.0.flags & flag != 0
    }
    /// Elements of the queries of one token: heads x head_dim.
    pub fn q_width(&self) -> u64 {
        u64::from(self.0.heads) * u64::from(self.0.head_dim)
    }
    /// Elements of the keys (or values) of one token: kv_heads x head_dim.
    pub fn kv_width(&self) -> u64 {
        u64::from(self.0.kv_heads) * u64::from(self.0.head_dim)
    }
}

/// Bits of one element of a `TH_DT_*` type in memory; 0 for unknown types.
pub(crate) fn bits_of(dtype: u32) -> u64 {
    match dtype {
        TH_DT_F64 => 64,
        TH_DT_F32 | TH_DT_I32 | TH_DT_TF32 => 32,
        TH_DT_F16 | TH_DT_BF16 => 16,
        TH_DT_U8 | TH_DT_F8 | TH_DT_I8 => 8,
        TH_DT_NF4 | TH_DT_I4 => 4,
        _ => 0,
    }
}

impl Run {
    /// Bytes of `elements` elements of a type `TH_DT_*`, rounded up; 0 for the type 0 ("none").
    pub fn bytes_of(elements: u64, dtype: u32) -> u64 {
        let bits = elements.saturating_mul(bits_of(dtype));
        bits / 8 + u64::from(bits % 8 != 0)
    }
    /// Tokens per micro-batch.
    pub fn tokens(&self) -> u64 {
        u64::from(self.0.micro_batch) * u64::from(self.0.seq_len)
    }
    /// Numbers that the optimizer stores per parameter: 2 (AdamW), 1 (SGD with momentum) or 0 (SGD); `None`
    /// for other optimizers.
    pub fn moments(&self) -> Option<u64> {
        match self.0.optimizer {
            TH_OPT_ADAMW => Some(2),
            TH_OPT_SGD_MOMENTUM => Some(1),
            TH_OPT_SGD => Some(0),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shorter_struct_is_filled_with_zeros() {
        let mut short: th_run = unsafe { core::mem::zeroed() };
        short.struct_size = crate::offset::offset_of!(th_run, accumulate) as u32;
        (short.seq_len, short.accumulate) = (5, 7); // the second is beyond its size: ignored
        let run = unsafe { Run::from_raw(&short) };
        assert_eq!((run.seq_len, run.accumulate), (5, 0));
        assert_eq!(run.struct_size as usize, core::mem::size_of::<th_run>());
    }

    #[test]
    fn odd_counts_of_half_bytes_round_up() {
        assert_eq!(Run::bytes_of(3, TH_DT_NF4), 2);
        assert_eq!(Run::bytes_of(3, TH_DT_F32), 12);
        assert_eq!(Run::bytes_of(3, 0), 0);
    }
}
