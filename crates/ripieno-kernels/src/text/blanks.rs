//! Bit masks of the blank bytes in blocks of text.

use crate::Simd;

/// Bytes of a block, one per bit of a u64.
pub(super) const BLOCK_BYTES: usize = 64;

/// Whether a byte separates words: ASCII white space, which is space, `\t`, `\n`, `\v`, `\f` and `\r`.
#[inline(always)]
pub(super) fn is_blank(byte: u8) -> bool {
    byte == b' ' || byte.wrapping_sub(b'\t') <= b'\r' - b'\t'
}

/// Search for blanks with the instructions of one SIMD level.
pub(super) trait Blanks {
    /// Return a mask with bit `i` set if byte `i` is blank.
    fn of(block: &[u8; BLOCK_BYTES]) -> u64;
}

/// A loop over blocks, compiled once per level. Functions that it calls must be `#[inline(always)]` to be compiled for
/// the level.
pub(super) trait BlankJob {
    type Output;

    fn run<B: Blanks>(self) -> Self::Output;
}

/// Run `work` with the instructions of level `simd`, which this machine must have.
pub(super) fn run<L: BlankJob>(simd: Simd, work: L) -> L::Output {
    match simd {
        // SAFETY: a level only exists on machines that support it, and AVX-512 includes AVX2.
        #[cfg(target_arch = "x86_64")]
        Simd::Avx2 | Simd::Avx512 => unsafe { run_avx2(work) },
        _ => work.run::<Portable>(),
    }
}

/// Run `work` with AVX2 instructions.
///
/// # Safety
/// The machine has AVX2.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
unsafe fn run_avx2<L: BlankJob>(work: L) -> L::Output {
    work.run::<Avx2>()
}

struct Portable;

impl Blanks for Portable {
    #[inline(always)]
    fn of(block: &[u8; BLOCK_BYTES]) -> u64 {
        // The product moves the lowest bits of 8 adjacent bytes into the highest byte.
        const GATHER: u64 = 0x0102_0408_1020_4080;
        let flags = block.map(|byte| u8::from(is_blank(byte)));
        let (eights, _) = flags.as_chunks::<8>();
        eights.iter().rev().fold(0, |bits, &eight| bits << 8 | u64::from_le_bytes(eight).wrapping_mul(GATHER) >> 56)
    }
}

#[cfg(target_arch = "x86_64")]
struct Avx2;

#[cfg(target_arch = "x86_64")]
impl Blanks for Avx2 {
    #[inline(always)]
    fn of(block: &[u8; BLOCK_BYTES]) -> u64 {
        use std::arch::x86_64::*;
        let half = |from: usize| -> u64 {
            // SAFETY: only `run_avx2` uses this type, so the instructions exist. 32 bytes from 0 and from 32 lie in the
            // block, and the load needs no alignment.
            let mask = unsafe {
                let bytes = _mm256_loadu_si256(block[from..].as_ptr().cast());
                let space = _mm256_cmpeq_epi8(bytes, _mm256_set1_epi8(b' ' as i8));
                let above_tab = _mm256_sub_epi8(bytes, _mm256_set1_epi8(b'\t' as i8));
                let clamped = _mm256_min_epu8(above_tab, _mm256_set1_epi8((b'\r' - b'\t') as i8));
                _mm256_movemask_epi8(_mm256_or_si256(space, _mm256_cmpeq_epi8(above_tab, clamped)))
            };
            u64::from(mask as u32)
        };
        half(0) | half(32) << 32
    }
}
