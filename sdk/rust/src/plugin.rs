//! Manifest and entry function: two macros that every plugin uses exactly once.
use crate::abi::*;

/// Bytes of a text as an array, for a section of the library.
#[doc(hidden)]
pub const fn bytes<const N: usize>(text: &str) -> [u8; N] {
    let (from, mut to, mut i) = (text.as_bytes(), [0u8; N], 0);
    while i < N {
        to[i] = from[i];
        i += 1;
    }
    to
}

/// Returns the bytes; compilation fails if a NUL precedes the last byte.
#[doc(hidden)]
pub const fn terminated(text: &[u8]) -> &[u8] {
    let mut i = 0;
    while i + 1 < text.len() {
        assert!(text[i] != 0, "a C string contains a NUL");
        i += 1;
    }
    text
}

/// C string from a literal: `th_text!("weights")` is a `&'static CStr` (`c"weights"` in Rust 1.77 and later).
///
/// ```
/// assert_eq!(trainhost_sdk::th_text!("weights").to_bytes(), b"weights");
/// ```
/// ```compile_fail
/// trainhost_sdk::th_text!("wei\0ghts");
/// ```
#[macro_export]
macro_rules! th_text {
    ($text:expr) => {{
        const BYTES: &[u8] = $crate::terminated(concat!($text, "\0").as_bytes());
        const TEXT: &std::ffi::CStr = unsafe { std::ffi::CStr::from_bytes_with_nul_unchecked(BYTES) };
        TEXT
    }};
}

/// A `th_plugin` for a static variable: everything it points to is static and constant.
#[doc(hidden)]
#[repr(transparent)]
pub struct PluginTable(pub th_plugin);
unsafe impl Sync for PluginTable {}

/// Stores the manifest (TOML: id, version, kind, families, options; see `trainhost/plugin.h`) in the library,
/// where the host reads it without running code. `id` and `version` must equal those of
/// [`th_plugin!`](crate::th_plugin!).
#[macro_export]
macro_rules! th_manifest {
    ($toml:expr) => {
        const _: () = {
            const TOML: &str = $toml;
            #[used]
            #[link_section = ".trainhost"]
            static MANIFEST: [u8; TOML.len()] = $crate::bytes(TOML);
            // With Rust 1.63 the linker removes unreferenced sections despite `#[used]`, but it keeps
            // .init_array.
            extern "C" fn kept() {
                unsafe { core::ptr::read_volatile(MANIFEST.as_ptr()) };
            }
            #[used]
            #[link_section = ".init_array"]
            static KEPT: extern "C" fn() = kept;
        };
    };
}

/// Defines the only exported function: `th_plugin!("acme-conv", "1.0.0", estimator = Mine)`. After id and
/// version follow one or more of `estimator = T`, `trainer = T` and `generate = T`, where T implements the
/// trait of that name.
#[macro_export]
macro_rules! th_plugin {
    ($id:expr, $version:expr $(, $kind:ident = $type:ty)+ $(,)?) => {
        const _: () = {
            const ID: &str = concat!($id, "\0");
            const VERSION: &str = concat!($version, "\0");
            unsafe extern "C" fn get(interface: *const std::os::raw::c_char) -> *const std::os::raw::c_void {
                let interface_id = std::ffi::CStr::from_ptr(interface);
                $($crate::th_interface!(interface_id, $kind, $type);)+
                core::ptr::null()
            }
            static PLUGIN: $crate::PluginTable = $crate::PluginTable($crate::th_plugin {
                struct_size: core::mem::size_of::<$crate::th_plugin>() as u32,
                abi_major: $crate::TH_ABI_MAJOR as u16,
                abi_minor: $crate::TH_ABI_MINOR as u16,
                id: ID.as_ptr().cast(),
                version: VERSION.as_ptr().cast(),
                start: None,
                stop: None,
                get: Some(get),
            });
            #[export_name = "trainhost_plugin_v1"]
            extern "C" fn entry() -> *const $crate::th_plugin {
                &PLUGIN.0
            }
        };
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! th_interface {
    ($id:ident, estimator, $type:ty) => {
        if $id == $crate::TH_ESTIMATOR_ID {
            static TABLE: $crate::th_estimator = $crate::estimator_table::<$type>();
            return (&TABLE as *const $crate::th_estimator).cast();
        }
    };
    ($id:ident, trainer, $type:ty) => {
        if $id == $crate::TH_TRAINER_ID {
            static TABLE: $crate::th_trainer = $crate::trainer_table::<$type>();
            return (&TABLE as *const $crate::th_trainer).cast();
        }
    };
    ($id:ident, generate, $type:ty) => {
        if $id == $crate::TH_GENERATE_ID {
            static TABLE: $crate::th_generate = $crate::generate_table::<$type>();
            return (&TABLE as *const $crate::th_generate).cast();
        }
    };
    ($id:ident, $other:ident, $type:ty) => {
        compile_error!(concat!(
            "th_plugin! supports estimator, trainer and generate, not ",
            stringify!($other)
        ));
    };
}

const _: () = assert!(TH_ABI_MAJOR == 1, "the entry function's name contains the major version");
