//! Functions of the host: counted memory, options, cancellation, log, keys of config.json.
use crate::abi::*;
use crate::error::Error;
use crate::model::{text_of, Model};
use crate::offset::offset_of;
use std::ffi::{CStr, CString};
use std::ops::{Deref, DerefMut};
use std::os::raw::{c_char, c_void};

/// The host of a call. A [`crate::Trainer`] may keep it: it outlives every instance. All functions may be
/// called from any thread, but only during a call of the plugin.
#[derive(Clone, Copy)]
pub struct Host(*const th_host);
unsafe impl Send for Host {}
unsafe impl Sync for Host {}

fn c_text(text: &str) -> CString {
    CString::new(text.replace('\0', " ")).unwrap_or_default()
}

impl Host {
    pub(crate) unsafe fn from_raw(raw: *const th_host) -> Host {
        Host(raw)
    }
    fn raw(&self) -> &th_host {
        unsafe { &*self.0 }
    }
    fn has(&self, end_of_field: usize) -> bool {
        self.raw().struct_size as usize >= end_of_field
    }
    /// Prints one line for the user; `level`: `TH_LOG_*`; `part`: the part of the plugin.
    pub fn log(&self, level: i32, part: &str, text: &str) {
        if let Some(log) = self.raw().log {
            unsafe { log(self.0, level, c_text(part).as_ptr(), c_text(text).as_ptr()) }
        }
    }
    /// Value of a key of the plugin's own table `[plugin.ID]` in the run file. The manifest must list it in
    /// `options`.
    pub fn option(&self, key: &str) -> Option<&str> {
        let found = unsafe { self.raw().option?(self.0, c_text(key).as_ptr()) };
        if found.is_null() {
            None
        } else {
            Some(unsafe { text_of(found) })
        }
    }
    /// Returns an error if the user wants to stop. Call it with `?` at least every 100 ms.
    pub fn cancelled(&self) -> Result<(), Error> {
        match self.raw().cancelled {
            Some(cancelled) if unsafe { cancelled(self.0) } != 0 => {
                Err(Error::new(TH_E_CANCELLED, "cancelled"))
            }
            _ => Ok(()),
        }
    }
    /// CPU threads that the plugin may use, the calling thread included.
    pub fn thread_budget(&self) -> u32 {
        if self.has(offset_of!(th_host, thread_budget) + 4) {
            self.raw().thread_budget.max(1)
        } else {
            1
        }
    }
    /// Reports bytes that the plugin allocated (> 0) or freed (< 0) with its own allocator, at the time of
    /// the allocation.
    pub fn took(&self, bytes: i64, tier: u32, tag: &CStr) {
        if let Some(took) = self.raw().took {
            unsafe { took(self.0, bytes, tier, tag.as_ptr()) }
        }
    }
    /// Table of an extension by id, e.g. `th_text!("com.acme.x/3")`. The caller must know its type.
    pub fn extension(&self, id: &CStr) -> Option<*const c_void> {
        if !self.has(core::mem::size_of::<th_host>()) {
            return None;
        }
        let table = unsafe { self.raw().extension?(self.0, id.as_ptr()) };
        if table.is_null() {
            None
        } else {
            Some(table)
        }
    }
    /// Reads an integer of the model's config.json by its dotted key ("conv_width", "rope_scaling.factor",
    /// "layer_types.3"). `None`: the key is missing. Error: the value is not an integer.
    pub fn config_integer(&self, model: &Model, key: &str) -> Result<Option<i64>, Error> {
        let mut value = 0;
        let table = self.config_table()?;
        let ask = table.integer.ok_or_else(no_config)?;
        found(unsafe { ask(table, model.raw(), c_text(key).as_ptr(), &mut value) }, key, "an integer")
            .map(|yes| yes.then_some(value))
    }
    /// Reads a number of config.json; keys as for [`Host::config_integer`].
    pub fn config_number(&self, model: &Model, key: &str) -> Result<Option<f64>, Error> {
        let mut value = 0.0;
        let table = self.config_table()?;
        let ask = table.number.ok_or_else(no_config)?;
        found(unsafe { ask(table, model.raw(), c_text(key).as_ptr(), &mut value) }, key, "a number")
            .map(|yes| yes.then_some(value))
    }
    /// Reads a string of config.json, truncated to 255 bytes; keys as for [`Host::config_integer`].
    pub fn config_text(&self, model: &Model, key: &str) -> Result<Option<String>, Error> {
        let mut text = [0 as c_char; 256];
        let table = self.config_table()?;
        let ask = table.text.ok_or_else(no_config)?;
        let status = unsafe {
            ask(table, model.raw(), c_text(key).as_ptr(), text.as_mut_ptr(), 256, core::ptr::null_mut())
        };
        found(status, key, "a string").map(|yes| yes.then(|| unsafe { text_of(text.as_ptr()) }.to_string()))
    }
    fn config_table(&self) -> Result<&th_config, Error> {
        let table = self.extension(TH_CONFIG_ID).ok_or_else(no_config)?;
        Ok(unsafe { &*table.cast::<th_config>() })
    }
    /// Allocates `count` zeros of host memory, which the host counts under `tag`; dropping the buffer frees
    /// them.
    ///
    /// Allocate all tensor memory with this function: the host compares the counted bytes with the plan.
    /// Error: `TH_E_HOST_OOM` with the requested bytes.
    pub fn alloc<T: Plain>(&self, count: usize, tag: &CStr) -> Result<Buffer<T>, Error> {
        let bytes = (count as u64).saturating_mul(core::mem::size_of::<T>() as u64);
        let memory = match self.raw().alloc {
            Some(alloc) if bytes > 0 => unsafe { alloc(self.0, bytes, 64, TH_TIER_HOST, tag.as_ptr()) },
            _ => core::ptr::null_mut(),
        };
        if memory.is_null() && bytes > 0 {
            return Err(Error::new(
                TH_E_HOST_OOM,
                format!("cannot allocate {bytes} bytes for {}", tag.to_string_lossy()),
            )
            .missing(bytes));
        }
        Ok(Buffer { host: *self, memory: memory.cast(), count })
    }
}

fn no_config() -> Error {
    Error::unsupported("this host does not read config.json for plugins (no extension trainhost.config/1)")
        .hint("use a newer trainhost")
}

/// Whether a key of config.json exists; a value of another type is an error.
fn found(status: th_status, key: &str, kind: &str) -> Result<bool, Error> {
    match status {
        TH_OK => Ok(true),
        TH_E_ABSENT => Ok(false),
        _ => Err(Error::argument(format!("'{key}' in config.json is not {kind}"))),
    }
}

/// Element types of a [`Buffer`]: every bit pattern is a valid value.
///
/// # Safety
/// Holds for the primitive numbers below. Do not implement it for types with padding, references or
/// invariants.
pub unsafe trait Plain: Copy + 'static {}
unsafe impl Plain for f32 {}
unsafe impl Plain for f64 {}
unsafe impl Plain for u8 {}
unsafe impl Plain for u16 {}
unsafe impl Plain for i32 {}
unsafe impl Plain for u32 {}
unsafe impl Plain for u64 {}

/// Memory of the host, 64-byte aligned; see [`Host::alloc`].
pub struct Buffer<T: Plain> {
    host: Host,
    memory: *mut T,
    count: usize,
}
unsafe impl<T: Plain> Send for Buffer<T> {}
unsafe impl<T: Plain> Sync for Buffer<T> {}

impl<T: Plain> Deref for Buffer<T> {
    type Target = [T];
    fn deref(&self) -> &[T] {
        if self.count == 0 {
            &[]
        } else {
            unsafe { core::slice::from_raw_parts(self.memory, self.count) }
        }
    }
}
impl<T: Plain> DerefMut for Buffer<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        if self.count == 0 {
            &mut []
        } else {
            unsafe { core::slice::from_raw_parts_mut(self.memory, self.count) }
        }
    }
}
impl<T: Plain> Drop for Buffer<T> {
    fn drop(&mut self) {
        if let (false, Some(release)) = (self.memory.is_null(), self.host.raw().release) {
            unsafe { release(self.host.0, self.memory.cast()) }
        }
    }
}
