//! Where a field lies, in a constant: Rust has `offset_of!` of its own since 1.77, and this crate is for 1.63.
//! The struct is laid over bytes that are numbered; the first byte of the field says its number. No pointer is subtracted,
//! which constants may not do before 1.65, and no memory is read that is not there.

/// [0, 1, 2, ...], each shifted right: one byte of the number of every byte.
pub(crate) const fn numbered<const N: usize>(shift: u32) -> [u8; N] {
    let (mut bytes, mut i) = ([0u8; N], 0);
    while i < N {
        bytes[i] = (i >> shift) as u8;
        i += 1;
    }
    bytes
}

/// The offset of a field in bytes, for structs of the interface: `Copy`, below 64 KiB.
macro_rules! offset_of {
    ($struct:ty, $field:ident) => {{
        #[derive(Clone, Copy)]
        union Numbered {
            bytes: [u8; core::mem::size_of::<$struct>()],
            value: $struct,
        }
        const OFFSET: usize = {
            let (low, high) = (Numbered { bytes: crate::offset::numbered(0) }, Numbered { bytes: crate::offset::numbered(8) });
            let (low, high) = unsafe { (core::ptr::addr_of!(low.value.$field), core::ptr::addr_of!(high.value.$field)) };
            unsafe { *low.cast::<u8>() as usize + ((*high.cast::<u8>() as usize) << 8) }
        };
        OFFSET
    }};
}
pub(crate) use offset_of;
