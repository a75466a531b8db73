//! Which vector instructions the kernels use; chosen at run time, once per [`Threads`](crate::Threads).

/// A level of vector instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Simd {
    /// Plain Rust, on every machine.
    Scalar,
    /// AVX2 with FMA (x86-64).
    Avx2,
    /// AVX-512 F, DQ, BW and VL (x86-64).
    Avx512,
    /// NEON (arm64).
    Neon,
}

impl Simd {
    /// The levels this machine can run, the best one last.
    pub fn available() -> Vec<Simd> {
        vec![Simd::Scalar]
    }

    /// The best level of this machine.
    pub fn best() -> Simd {
        *Simd::available().last().expect("the scalar level is always there")
    }
}
