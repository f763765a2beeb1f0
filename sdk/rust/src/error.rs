//! Errors with a code that says what the caller can do, and the one place where Rust meets the boundary.
use crate::abi::*;
use crate::offset::offset_of;
use std::os::raw::c_char;
use std::panic::{catch_unwind, AssertUnwindSafe};

/// What a plugin's function returns when it cannot: a code for the host, a sentence and a hint for the user.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Error {
    /// `TH_E_*`: what the caller can do about it.
    pub code: th_status,
    /// What happened, to what: one sentence. Cut to 319 bytes on the way out.
    pub message: String,
    /// What the user can do. May be empty; cut to 159 bytes.
    pub hint: String,
    /// With `TH_E_HOST_OOM` and `TH_E_DEVICE_OOM`: how many bytes were missing. 0 = not known.
    pub bytes_needed: u64,
    /// The number that a library below gave, and its name: 719 of "cuda", 28 of "errno". 0 = none.
    pub native_code: i32,
    /// Cut to 15 bytes on the way out.
    pub native_domain: String,
}

impl Error {
    /// An error with any `TH_E_*` code.
    pub fn new(code: th_status, message: impl Into<String>) -> Error {
        Error { code, message: message.into(), hint: String::new(), bytes_needed: 0, native_code: 0, native_domain: String::new() }
    }
    /// Valid, but not by this plugin: the host may try the next candidate.
    pub fn unsupported(message: impl Into<String>) -> Error {
        Error::new(TH_E_UNSUPPORTED, message)
    }
    /// No device, driver, library or licence here: the host may fall back.
    pub fn unavailable(message: impl Into<String>) -> Error {
        Error::new(TH_E_UNAVAILABLE, message)
    }
    /// The call is wrong: a caller's bug, or an option that the user wrote.
    pub fn argument(message: impl Into<String>) -> Error {
        Error::new(TH_E_ARG, message)
    }
    /// The same error with a sentence about what the user can do.
    pub fn hint(mut self, hint: impl Into<String>) -> Error {
        self.hint = hint.into();
        self
    }
    /// The same error with the number that a library gave: `.of("errno", 28)`.
    pub fn of(mut self, domain: impl Into<String>, number: i32) -> Error {
        self.native_domain = domain.into();
        self.native_code = number;
        self
    }
    /// The same error with the number of bytes that were missing.
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

/// An argument error where one of the pointers is null.
pub(crate) fn given(pointers: &[*const std::os::raw::c_void]) -> Result<(), Error> {
    if pointers.iter().any(|p| p.is_null()) { Err(Error::argument("an argument is null")) } else { Ok(()) }
}

/// A code of a sink or another call of the host as a `Result`.
pub(crate) fn check(status: th_status, what: &str) -> Result<(), Error> {
    if status == TH_OK { Ok(()) } else { Err(Error::new(status, what)) }
}

/// Copies text into a fixed field, cut at a character, always terminated.
fn put(field: &mut [c_char], text: &str) {
    let mut end = text.len().min(field.len() - 1);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    for (to, from) in field.iter_mut().zip(text.as_bytes()[..end].iter().chain([0u8].iter())) {
        *to = *from as c_char;
    }
}

/// Writes `error` as far as the host's struct reaches, and returns its code.
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
        put(&mut full.native_domain, &error.native_domain);
        put(&mut full.message, &error.message);
        put(&mut full.hint, &error.hint);
        // A struct that ends inside `message` would lose its terminating NUL: write no further than before it.
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

fn words_of(panic: Box<dyn std::any::Any + Send>) -> String {
    let text = panic.downcast_ref::<&str>().map(|s| s.to_string()).or_else(|| panic.downcast_ref::<String>().cloned());
    format!("panicked: {}", text.unwrap_or_else(|| "with something that is no text".into()))
}

/// Runs `f`; neither its error nor its panic crosses the boundary.
///
/// # Safety
/// `error` is null or a `th_error` of at least `struct_size` bytes.
pub(crate) unsafe fn guard(error: *mut th_error, f: impl FnOnce() -> Result<(), Error>) -> th_status {
    match catch_unwind(AssertUnwindSafe(f)) {
        Ok(Ok(())) => TH_OK,
        Ok(Err(e)) => fill(error, &if e.code < 0 { e } else { Error { code: TH_E_INTERNAL, ..e } }),
        Err(panic) => fill(error, &Error::new(TH_E_INTERNAL, words_of(panic))),
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
    fn a_panic_becomes_an_internal_error_with_its_words() {
        let mut e = zeroed(core::mem::size_of::<th_error>());
        assert_eq!(unsafe { guard(&mut e, || panic!("no layer {}", 7)) }, TH_E_INTERNAL);
        assert_eq!(text(&e.message), "panicked: no layer 7");
        assert_eq!(unsafe { guard(core::ptr::null_mut(), || panic!("nobody listens")) }, TH_E_INTERNAL);
    }

    #[test]
    fn an_error_is_written_no_further_than_the_host_has_room() {
        let error = || Err(Error::unavailable("no device").hint("buy one").missing(5).of("cuda", 100));
        let mut e = zeroed(offset_of!(th_error, hint));
        assert_eq!(unsafe { guard(&mut e, error) }, TH_E_UNAVAILABLE);
        assert_eq!((text(&e.message), text(&e.hint), e.bytes_needed), ("no device".into(), String::new(), 5));
        assert_eq!((text(&e.native_domain), e.native_code), ("cuda".into(), 100));
        let mut e = zeroed(offset_of!(th_error, message) + 3);
        assert_eq!(unsafe { guard(&mut e, error) }, TH_E_UNAVAILABLE);
        assert_eq!((e.code, text(&e.message)), (TH_E_UNAVAILABLE, String::new()));
    }

    #[test]
    fn long_text_is_cut_at_a_character_and_terminated() {
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
