//! Constant offsets of fields: Rust has `offset_of!` since 1.77, and this crate supports 1.63. The struct is
//! a member of a union with an array in which each byte contains its own index; the first byte of the field
//! is its offset. Pointers are not subtracted, which constants cannot do before 1.65.

/// Array [0, 1, 2, ...], each index shifted right by `shift` bits and truncated to a byte.
pub(crate) const fn numbered<const N: usize>(shift: u32) -> [u8; N] {
    let (mut bytes, mut i) = ([0u8; N], 0);
    while i < N {
        bytes[i] = (i >> shift) as u8;
        i += 1;
    }
    bytes
}

/// Offset of a field in bytes. The struct must be `Copy` and smaller than 64 KiB.
macro_rules! offset_of {
    ($struct:ty, $field:ident) => {{
        #[derive(Clone, Copy)]
        union Numbered {
            bytes: [u8; core::mem::size_of::<$struct>()],
            value: $struct,
        }
        const OFFSET: usize = {
            let (low, high) = (
                Numbered { bytes: crate::offset::numbered(0) },
                Numbered { bytes: crate::offset::numbered(8) },
            );
            let (low, high) =
                unsafe { (core::ptr::addr_of!(low.value.$field), core::ptr::addr_of!(high.value.$field)) };
            unsafe { *low.cast::<u8>() as usize + ((*high.cast::<u8>() as usize) << 8) }
        };
        OFFSET
    }};
}
pub(crate) use offset_of;
