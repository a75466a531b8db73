//! SIMD levels: detection of vector instructions, and compilation of kernels for each level.
//!
//! A kernel is a [`VectorJob`], written once over [`Vector`]. [`Simd::run`] compiles it for every level and selects one
//! at run time. The levels only differ in speed: results that depend on the rounding of vector code are checked in f64
//! afterwards.

mod bytes;
mod eight;
#[cfg(target_arch = "aarch64")]
mod neon;
mod scalar;
mod tiles;
mod vector;
#[cfg(target_arch = "x86_64")]
mod x86;
#[cfg(target_arch = "x86_64")]
mod x86_bytes;

pub(crate) use bytes::{ByteJob, ByteSums};
pub(crate) use eight::{Eight, min_distance};
pub(crate) use tiles::{FEW_COLUMNS, Lanes, Nearest, NearestRows, ROW_STEP, TileFilter, scattered_products, scores};
pub(crate) use vector::{ProductSums, Vector, VectorJob};

/// A level of vector instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Simd {
    /// Plain Rust, on every machine.
    Scalar,
    /// AVX2 with FMA (x86-64).
    Avx2,
    /// AVX-512 F, BW, DQ and VL (x86-64).
    Avx512,
    /// NEON (arm64).
    Neon,
}

impl Simd {
    const LEVELS: [Simd; 4] = [Simd::Scalar, Simd::Avx2, Simd::Avx512, Simd::Neon];

    /// Return the levels that this machine supports, best last.
    pub fn available() -> Vec<Simd> {
        Simd::LEVELS.into_iter().filter(|level| level.is_available()).collect()
    }

    /// Return the best level of this machine.
    pub fn best() -> Simd {
        Simd::LEVELS.into_iter().rfind(|level| level.is_available()).expect("the scalar level is always there")
    }

    /// Check a level given by a caller.
    ///
    /// # Panics
    /// If the machine lacks the level.
    pub(crate) fn check(self) {
        assert!(self.is_available(), "{self:?} is not available on this machine");
    }

    fn is_available(self) -> bool {
        match self {
            Simd::Scalar => true,
            #[cfg(target_arch = "x86_64")]
            Simd::Avx2 => x86::has_avx2(),
            #[cfg(target_arch = "x86_64")]
            Simd::Avx512 => x86::has_avx512(),
            #[cfg(target_arch = "aarch64")]
            Simd::Neon => true,
            _ => false,
        }
    }

    /// Return the number of centroids in a panel.
    pub(crate) fn panel_width(self) -> usize {
        match self {
            Simd::Avx512 => 48,
            Simd::Scalar | Simd::Avx2 | Simd::Neon => 16,
        }
    }

    /// Run `job` with the vectors of this level.
    pub(crate) fn run<J: VectorJob>(self, job: J) -> J::Output {
        match self {
            // SAFETY: `Threads` refuses a level that the machine lacks, so the instructions exist.
            #[cfg(target_arch = "x86_64")]
            Simd::Avx512 => unsafe { x86::run_avx512(job) },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            Simd::Avx2 => unsafe { x86::run_avx2(job) },
            // SAFETY: as above.
            #[cfg(target_arch = "aarch64")]
            Simd::Neon => unsafe { neon::run(job) },
            _ => job.run::<scalar::F32x4, 2, 4>(),
        }
    }

    /// Whether products of bytes are faster than products of f32.
    pub(crate) fn has_bytes(self) -> bool {
        self != Simd::Neon
    }

    /// Run `job` with the byte products of this level. AVX-512 uses VNNI if available.
    pub(crate) fn run_bytes<J: ByteJob>(self, job: J) -> J::Output {
        match self {
            // SAFETY: as for `run`; VNNI was detected.
            #[cfg(target_arch = "x86_64")]
            Simd::Avx512 if x86_bytes::has_vnni() => unsafe { x86_bytes::run_vnni(job) },
            // SAFETY: as for `run`; a machine with AVX-512 has AVX2.
            #[cfg(target_arch = "x86_64")]
            Simd::Avx512 | Simd::Avx2 => unsafe { x86_bytes::run_avx2(job) },
            _ => job.run::<bytes::I32x4, 2, 4>(),
        }
    }
}

/// Prefetch the memory of `value` into the cache.
#[inline(always)]
pub(crate) fn prefetch<T>(value: &T) {
    // SAFETY: every x86-64 has this instruction, which changes nothing.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(value).cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = value;
}
