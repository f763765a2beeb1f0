//! Errors with a code that states what the caller can do, and the guard around every function that C calls.
use crate::abi::*;
use crate::offset::offset_of;
use std::os::raw::c_char;
use std::panic::{catch_unwind, AssertUnwindSafe};

/// Failure of a function of the plugin: a code for the host, a sentence and a hint for the user.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Error {
    /// `TH_E_*`; states what the caller can do.
    pub code: th_status,
    /// One sentence: what failed, with the value. Truncated to 319 bytes.
    pub message: String,
    /// What the user can do; may be empty. Truncated to 159 bytes.
    pub hint: String,
    /// With `TH_E_HOST_OOM` and `TH_E_DEVICE_OOM`: missing bytes. 0 = unknown.
    pub bytes_needed: u64,
    /// Error code of a vendor library: 719 of "cuda", 28 of "errno". 0 = none.
    pub native_code: i32,
    /// Name of that library. Truncated to 15 bytes.
    pub native_domain: String,
}

impl Error {
    /// Returns an error with any `TH_E_*` code.
    pub fn new(code: th_status, message: impl Into<String>) -> Error {
        Error {
            code,
            message: message.into(),
            hint: String::new(),
            bytes_needed: 0,
            native_code: 0,
            native_domain: String::new(),
        }
    }
    /// The request is valid, but this plugin does not support it: the host may try the next plugin.
    pub fn unsupported(message: impl Into<String>) -> Error {
        Error::new(TH_E_UNSUPPORTED, message)
    }
    /// No device, driver, library or licence: the host may use another backend.
    pub fn unavailable(message: impl Into<String>) -> Error {
        Error::new(TH_E_UNAVAILABLE, message)
    }
    /// An argument is invalid: a bug of the caller, or an option that the user set.
    pub fn argument(message: impl Into<String>) -> Error {
        Error::new(TH_E_ARG, message)
    }
    /// Sets what the user can do.
    pub fn hint(mut self, hint: impl Into<String>) -> Error {
        self.hint = hint.into();
        self
    }
    /// Sets the error code of a vendor library: `.of("errno", 28)`.
    pub fn of(mut self, domain: impl Into<String>, number: i32) -> Error {
        self.native_domain = domain.into();
        self.native_code = number;
        self
    }
    /// Sets the number of missing bytes.
    pub fn missing(mut self, bytes: u64) -> Error {
        self.bytes_needed = bytes;
        self
    }
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}
impl std::error::Error for Error {}

/// Returns an argument error if one of the pointers is null.
pub(crate) fn require_non_null(pointers: &[*const std::os::raw::c_void]) -> Result<(), Error> {
    if pointers.iter().any(|p| p.is_null()) {
        Err(Error::argument("an argument is null"))
    } else {
        Ok(())
    }
}

/// Turns a code of a sink or another call of the host into a `Result`.
pub(crate) fn check(status: th_status, what: &str) -> Result<(), Error> {
    if status == TH_OK {
        Ok(())
    } else {
        Err(Error::new(status, what))
    }
}

/// Copies text into a fixed field: truncated between characters, always terminated.
fn copy_text(field: &mut [c_char], text: &str) {
    let mut end = text.len().min(field.len() - 1);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    for (to, from) in field.iter_mut().zip(text.as_bytes()[..end].iter().chain([0u8].iter())) {
        *to = *from as c_char;
    }
}

/// Writes `error` within the `struct_size` of the host's struct; returns its code.
///
/// # Safety
/// `to` is null or a `th_error` of at least `struct_size` bytes.
unsafe fn fill(to: *mut th_error, error: &Error) -> th_status {
    if !to.is_null() {
        let size = (*to).struct_size as usize;
        let mut full: th_error = core::mem::zeroed();
        full.code = error.code;
        full.native_code = error.native_code;
        full.bytes_needed = error.bytes_needed;
        copy_text(&mut full.native_domain, &error.native_domain);
        copy_text(&mut full.message, &error.message);
        copy_text(&mut full.hint, &error.hint);
        // A struct that ends inside `message` would lose the terminating NUL: write only the fields before
        // it.
        let whole = if size >= core::mem::size_of::<th_error>() {
            core::mem::size_of::<th_error>()
        } else if size >= offset_of!(th_error, hint) {
            offset_of!(th_error, hint)
        } else {
            size.min(offset_of!(th_error, native_domain))
        };
        full.struct_size = size as u32;
        core::ptr::copy_nonoverlapping((&full as *const th_error).cast::<u8>(), to.cast::<u8>(), whole);
    }
    error.code
}

fn panic_message(panic: Box<dyn std::any::Any + Send>) -> String {
    let text = panic
        .downcast_ref::<&str>()
        .map(|s| s.to_string())
        .or_else(|| panic.downcast_ref::<String>().cloned());
    format!("panicked: {}", text.unwrap_or_else(|| "with a value that is not a string".into()))
}

/// Runs `f` and turns its error or panic into a code and a filled `error`.
///
/// # Safety
/// `error` is null or a `th_error` of at least `struct_size` bytes.
pub(crate) unsafe fn guard(error: *mut th_error, f: impl FnOnce() -> Result<(), Error>) -> th_status {
    match catch_unwind(AssertUnwindSafe(f)) {
        Ok(Ok(())) => TH_OK,
        Ok(Err(e)) => fill(error, &if e.code < 0 { e } else { Error { code: TH_E_INTERNAL, ..e } }),
        Err(panic) => fill(error, &Error::new(TH_E_INTERNAL, panic_message(panic))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn zeroed(size: usize) -> th_error {
        let mut e: th_error = unsafe { core::mem::zeroed() };
        e.struct_size = size as u32;
        e
    }
    fn text(field: &[c_char]) -> String {
        field.iter().take_while(|c| **c != 0).map(|c| *c as u8 as char).collect()
    }

    #[test]
    fn a_panic_becomes_an_internal_error_with_its_message() {
        let mut e = zeroed(core::mem::size_of::<th_error>());
        assert_eq!(unsafe { guard(&mut e, || panic!("no layer {}", 7)) }, TH_E_INTERNAL);
        assert_eq!(text(&e.message), "panicked: no layer 7");
        assert_eq!(unsafe { guard(core::ptr::null_mut(), || panic!("no error struct")) }, TH_E_INTERNAL);
    }

    #[test]
    fn an_error_is_not_written_beyond_the_size_of_the_host_struct() {
        let error =
            || Err(Error::unavailable("no device").hint("use the cpu backend").missing(5).of("cuda", 100));
        let mut e = zeroed(offset_of!(th_error, hint));
        assert_eq!(unsafe { guard(&mut e, error) }, TH_E_UNAVAILABLE);
        assert_eq!((text(&e.message), text(&e.hint), e.bytes_needed), ("no device".into(), String::new(), 5));
        assert_eq!((text(&e.native_domain), e.native_code), ("cuda".into(), 100));
        let mut e = zeroed(offset_of!(th_error, message) + 3);
        assert_eq!(unsafe { guard(&mut e, error) }, TH_E_UNAVAILABLE);
        assert_eq!((e.code, text(&e.message)), (TH_E_UNAVAILABLE, String::new()));
    }

    #[test]
    fn long_text_is_truncated_between_characters_and_terminated() {
        let mut e = zeroed(core::mem::size_of::<th_error>());
        unsafe { guard(&mut e, || Err(Error::argument("ä".repeat(500)))) };
        assert_eq!(e.message[318], 0);
        assert!(e.message[317] != 0);
    }

    #[test]
    fn an_error_without_an_error_code_is_a_bug() {
        assert_eq!(unsafe { guard(core::ptr::null_mut(), || Err(Error::new(TH_OK, "fine"))) }, TH_E_INTERNAL);
    }
}
