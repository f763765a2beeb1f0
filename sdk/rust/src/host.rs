//! What the host offers: memory that it counts, options, cancelling, the log.
use crate::abi::*;
use crate::error::Error;
use crate::model::{text_of, Model};
use crate::offset::offset_of;
use std::ffi::{CStr, CString};
use std::ops::{Deref, DerefMut};
use std::os::raw::{c_char, c_void};

/// The host of a call. Inside [`crate::Trainer`] it may be kept: it outlives every instance. All of it may be called from
/// any thread, but only while a call of the plugin runs.
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
    /// One line for the user; `level` is `TH_LOG_*`, `place` the part of the plugin that speaks.
    pub fn log(&self, level: i32, place: &str, text: &str) {
        if let Some(log) = self.raw().log {
            unsafe { log(self.0, level, c_text(place).as_ptr(), c_text(text).as_ptr()) }
        }
    }
    /// A key of this plugin's own table `[plugin.ID]` in the run file. It must be among the manifest's `options`.
    pub fn option(&self, key: &str) -> Option<&str> {
        let found = unsafe { self.raw().option?(self.0, c_text(key).as_ptr()) };
        if found.is_null() { None } else { Some(unsafe { text_of(found) }) }
    }
    /// Poll it at least every 100 ms of work with `?`: the error says that the user stopped the run.
    pub fn cancelled(&self) -> Result<(), Error> {
        match self.raw().cancelled {
            Some(cancelled) if unsafe { cancelled(self.0) } != 0 => Err(Error::new(TH_E_CANCELLED, "cancelled")),
            _ => Ok(()),
        }
    }
    /// CPU threads that this plugin may use in all.
    pub fn thread_budget(&self) -> u32 {
        if self.has(offset_of!(th_host, thread_budget) + 4) { self.raw().thread_budget.max(1) } else { 1 }
    }
    /// Bytes that the plugin took (> 0) or gave back (< 0) by an allocator of its own, at the moment it did so.
    pub fn took(&self, bytes: i64, tier: u32, tag: &CStr) {
        if let Some(took) = self.raw().took {
            unsafe { took(self.0, bytes, tier, tag.as_ptr()) }
        }
    }
    /// An extension's table by its id, e.g. `th_text!("com.acme.x/3")`. It is yours to know its type.
    pub fn extension(&self, id: &CStr) -> Option<*const c_void> {
        if !self.has(core::mem::size_of::<th_host>()) {
            return None;
        }
        let table = unsafe { self.raw().extension?(self.0, id.as_ptr()) };
        if table.is_null() { None } else { Some(table) }
    }
    /// A whole number of the model's config.json by its dotted key ("conv_width", "rope_scaling.factor", "layer_types.3"):
    /// for what only your family has. `None`: there is no such key. An error: it is there and no whole number.
    pub fn config_integer(&self, model: &Model, key: &str) -> Result<Option<i64>, Error> {
        let mut value = 0;
        let table = self.config_table()?;
        let ask = table.integer.ok_or_else(no_config)?;
        found(unsafe { ask(table, model.raw(), c_text(key).as_ptr(), &mut value) }, key, "whole number").map(|yes| yes.then_some(value))
    }
    /// Any number of the model's config.json by its dotted key; as [`Host::config_integer`].
    pub fn config_number(&self, model: &Model, key: &str) -> Result<Option<f64>, Error> {
        let mut value = 0.0;
        let table = self.config_table()?;
        let ask = table.number.ok_or_else(no_config)?;
        found(unsafe { ask(table, model.raw(), c_text(key).as_ptr(), &mut value) }, key, "number").map(|yes| yes.then_some(value))
    }
    /// A text of the model's config.json by its dotted key, up to 255 bytes; as [`Host::config_integer`].
    pub fn config_text(&self, model: &Model, key: &str) -> Result<Option<String>, Error> {
        let mut text = [0 as c_char; 256];
        let table = self.config_table()?;
        let ask = table.text.ok_or_else(no_config)?;
        let status = unsafe { ask(table, model.raw(), c_text(key).as_ptr(), text.as_mut_ptr(), 256, core::ptr::null_mut()) };
        found(status, key, "text").map(|yes| yes.then(|| unsafe { text_of(text.as_ptr()) }.to_string()))
    }
    fn config_table(&self) -> Result<&th_config, Error> {
        let table = self.extension(TH_CONFIG_ID).ok_or_else(no_config)?;
        Ok(unsafe { &*table.cast::<th_config>() })
    }
    /// `count` zeros of host memory, counted by the host's ledger under `tag`; given back when dropped.
    ///
    /// Memory for tensors is taken here and nowhere else: the plan is held against what the ledger counts. The error is
    /// `TH_E_HOST_OOM` with the bytes that were asked for.
    pub fn alloc<T: Plain>(&self, count: usize, tag: &CStr) -> Result<Buffer<T>, Error> {
        let bytes = (count as u64).saturating_mul(core::mem::size_of::<T>() as u64);
        let memory = match self.raw().alloc {
            Some(alloc) if bytes > 0 => unsafe { alloc(self.0, bytes, 64, TH_TIER_HOST, tag.as_ptr()) },
            _ => core::ptr::null_mut(),
        };
        if memory.is_null() && bytes > 0 {
            return Err(Error::new(TH_E_HOST_OOM, format!("no {bytes} bytes for {}", tag.to_string_lossy())).missing(bytes));
        }
        Ok(Buffer { host: *self, memory: memory.cast(), count })
    }
}

fn no_config() -> Error {
    Error::unsupported("this host does not read config.json for plugins (it lacks trainhost.config/1)").hint("a newer trainhost does")
}

/// Whether a key of config.json was there; of the wrong kind is an error.
fn found(status: th_status, key: &str, kind: &str) -> Result<bool, Error> {
    match status {
        TH_OK => Ok(true),
        TH_E_ABSENT => Ok(false),
        _ => Err(Error::argument(format!("'{key}' in config.json is no {kind}"))),
    }
}

/// Numbers that may live in a [`Buffer`]: all of their bit patterns, zeros among them, are values.
///
/// # Safety
/// True of the primitive numbers below; do not implement it for anything with padding, references or invariants.
pub unsafe trait Plain: Copy + 'static {}
unsafe impl Plain for f32 {}
unsafe impl Plain for f64 {}
unsafe impl Plain for u8 {}
unsafe impl Plain for u16 {}
unsafe impl Plain for i32 {}
unsafe impl Plain for u32 {}
unsafe impl Plain for u64 {}

/// A slice of the host's memory, 64-byte aligned; see [`Host::alloc`].
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
        if self.count == 0 { &[] } else { unsafe { core::slice::from_raw_parts(self.memory, self.count) } }
    }
}
impl<T: Plain> DerefMut for Buffer<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        if self.count == 0 { &mut [] } else { unsafe { core::slice::from_raw_parts_mut(self.memory, self.count) } }
    }
}
impl<T: Plain> Drop for Buffer<T> {
    fn drop(&mut self) {
        if let (false, Some(release)) = (self.memory.is_null(), self.host.raw().release) {
            unsafe { release(self.host.0, self.memory.cast()) }
        }
    }
}
