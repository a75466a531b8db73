//! Streaming copies: stores that bypass the caches of the writing core.
//!
//! Ordinary stores leave modified lines in the caches of the writer. A reader on a core with other caches fetches them
//! one by one, at 100 to 200 ns per line. Streaming (non-temporal) stores send whole lines to memory, and the
//! prefetcher of the reader's core fetches them from there; prefetch instructions made the reads slower. On cores that
//! share a cache, streaming stores are slower for short copies, so [`super::store_choice`] measures both.
//!
//! Streaming stores are weakly ordered on x86: the release store that publishes the bytes does not order them. [`copy`]
//! therefore ends with a store fence (SFENCE). SFENCE orders all earlier stores of the thread, streaming or not, before
//! all later ones. So every streaming store is globally visible before the release store of the index, and a reader
//! that acquires the index sees the bytes. After the fence the bytes equal the bytes of an ordinary copy, so the model
//! of the index protocol, which checks the order of ordinary writes and the publication, holds for them as well. The
//! other direction needs no fence: a streaming store is not performed before an earlier load of its thread completes,
//! and the producer acquires the consumer's index before it overwrites the bytes.

/// Whether this architecture has streaming stores that [`copy`] uses.
pub(super) const CAN_STREAM: bool = cfg!(target_arch = "x86_64");

/// Bytes of a cache line.
const LINE_BYTES: usize = 64;

/// Copy `count` bytes with streaming stores, and order them before all later stores of this thread.
///
/// # Safety
/// As for [`std::ptr::copy_nonoverlapping`].
pub(super) unsafe fn copy(from: *const u8, to: *mut u8, count: usize) {
    let head = to.align_offset(LINE_BYTES).min(count);
    let whole = (count - head) / LINE_BYTES * LINE_BYTES;
    // SAFETY: The three parts are disjoint and cover `count` bytes. `to + head` is aligned to a line.
    unsafe {
        std::ptr::copy_nonoverlapping(from, to, head);
        copy_lines(from.add(head), to.add(head), whole);
        let tail = head + whole;
        std::ptr::copy_nonoverlapping(from.add(tail), to.add(tail), count - tail);
    }
}

/// Copy whole lines to an aligned address, and fence.
///
/// # Safety
/// As for [`std::ptr::copy_nonoverlapping`]; `to` and `count` are multiples of [`LINE_BYTES`].
#[cfg(target_arch = "x86_64")]
unsafe fn copy_lines(from: *const u8, to: *mut u8, count: usize) {
    // SAFETY: The caller guarantees the ranges and the alignment; each function runs only where its instructions exist.
    unsafe {
        if std::is_x86_feature_detected!("avx512f") {
            x86::copy_by_512(from, to, count);
        } else if std::is_x86_feature_detected!("avx") {
            x86::copy_by_256(from, to, count);
        } else {
            x86::copy_by_128(from, to, count);
        }
        std::arch::x86_64::_mm_sfence();
    }
}

/// Copy with ordinary stores, on processors without streaming stores.
///
/// # Safety
/// As for [`std::ptr::copy_nonoverlapping`].
#[cfg(not(target_arch = "x86_64"))]
unsafe fn copy_lines(from: *const u8, to: *mut u8, count: usize) {
    // SAFETY: The caller guarantees the ranges.
    unsafe { std::ptr::copy_nonoverlapping(from, to, count) };
}

/// Return a time in ticks of constant, unspecified length.
#[inline]
pub(super) fn ticks() -> u64 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: Every x86-64 processor has a time stamp counter, and Linux allows its use.
    unsafe {
        std::arch::x86_64::_rdtsc()
    }
    #[cfg(not(target_arch = "x86_64"))]
    0
}

/// Return the time like [`ticks`], after all earlier loads of this thread have completed.
#[inline]
pub(super) fn ticks_after_loads() -> u64 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: LFENCE is part of the baseline of x86-64.
    unsafe {
        std::arch::x86_64::_mm_lfence();
    }
    ticks()
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::LINE_BYTES;
    use std::arch::x86_64::{
        __m128i, __m256i, __m512i, _mm_loadu_si128, _mm_stream_si128, _mm256_loadu_si256, _mm256_stream_si256,
        _mm512_loadu_si512, _mm512_stream_si512,
    };

    macro_rules! copy_by {
        ($name:ident, $feature:literal, $vector:ty, $load:ident, $store:ident) => {
            /// # Safety
            /// As for [`super::copy_lines`], on a processor with the feature.
            #[target_feature(enable = $feature)]
            pub unsafe fn $name(from: *const u8, to: *mut u8, count: usize) {
                let mut at = 0;
                while at < count {
                    for part in (0..LINE_BYTES).step_by(size_of::<$vector>()) {
                        // SAFETY: The line lies within the ranges, and the target is aligned.
                        unsafe { $store(to.add(at + part).cast(), $load(from.add(at + part).cast())) };
                    }
                    at += LINE_BYTES;
                }
            }
        };
    }

    copy_by!(copy_by_512, "avx512f", __m512i, _mm512_loadu_si512, _mm512_stream_si512);
    copy_by!(copy_by_256, "avx", __m256i, _mm256_loadu_si256, _mm256_stream_si256);
    copy_by!(copy_by_128, "sse2", __m128i, _mm_loadu_si128, _mm_stream_si128);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_streaming_copy_equals_an_ordinary_one_at_any_alignment() {
        let from: Vec<u8> = (0..1000).map(|at| at as u8).collect();
        for (start, offset, count) in [(0, 0, 0), (1, 3, 5), (0, 0, 64), (7, 1, 63), (1, 63, 65), (3, 61, 700)] {
            let mut to = [0xff; 1000];
            // SAFETY: Both ranges lie within the arrays.
            unsafe { copy(from.as_ptr().add(start), to.as_mut_ptr().add(offset), count) };
            assert_eq!(to[offset..offset + count], from[start..start + count]);
            let outside = to[..offset].iter().chain(&to[offset + count..]);
            assert!(outside.into_iter().all(|&byte| byte == 0xff), "{start} {offset} {count}");
        }
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn every_width_copies_the_same() {
        #[repr(align(64))]
        struct AlignedBytes([u8; 256]);
        let from: Vec<u8> = (0..257).map(|at| at as u8).collect();
        let mut widths: Vec<unsafe fn(*const u8, *mut u8, usize)> = vec![x86::copy_by_128];
        if std::is_x86_feature_detected!("avx") {
            widths.push(x86::copy_by_256);
        }
        if std::is_x86_feature_detected!("avx512f") {
            widths.push(x86::copy_by_512);
        }
        for copy_by in widths {
            let mut to = AlignedBytes([0; 256]);
            // SAFETY: Both ranges lie within the arrays, the target is aligned, and the instructions exist.
            unsafe {
                copy_by(from.as_ptr().add(1), to.0.as_mut_ptr(), 256);
                std::arch::x86_64::_mm_sfence();
            }
            assert_eq!(to.0[..], from[1..]);
        }
    }
}
