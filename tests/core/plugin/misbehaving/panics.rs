// A plugin in Rust whose start() panics. Written without the SDK's crate, which would catch the panic.
// ../runtime_isolation_test.cpp.
use std::os::raw::{c_char, c_void};

const TEXT: &[u8; 47] = b"id = 'sample'\nversion = '1'\nkind = 'estimator'\n";
#[used]
#[link_section = ".trainhost"]
static MANIFEST: [u8; 47] = *TEXT;

#[repr(C)]
pub struct Plugin {
    struct_size: u32,
    abi_major: u16,
    abi_minor: u16,
    id: *const u8,
    version: *const u8,
    start: extern "C" fn(*const c_void, *mut c_void) -> i32,
    stop: extern "C" fn(),
    get: extern "C" fn(*const c_char) -> *const c_void,
}
unsafe impl Sync for Plugin {}

extern "C" fn start(_: *const c_void, _: *mut c_void) -> i32 {
    // Read, because linkers drop a section that nothing refers to (rustc 1.63 of Debian 12).
    let first = unsafe { std::ptr::read_volatile(MANIFEST.as_ptr()) };
    panic!("panic in start(), manifest from {}", first);
}
extern "C" fn stop() {}
extern "C" fn get(_: *const c_char) -> *const c_void {
    std::ptr::null()
}

static PLUGIN: Plugin =
    Plugin { struct_size: 48, abi_major: 1, abi_minor: 0, id: b"sample\0".as_ptr(), version: b"1\0".as_ptr(), start, stop, get };

#[no_mangle]
pub extern "C" fn trainhost_plugin_v1() -> *const Plugin {
    &PLUGIN
}
