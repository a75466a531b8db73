//! Hashes of keys: 64-bit XXH3 with seed 0, the same on every machine.
//!
//! An integer is hashed as its eight little-endian bytes, a string as its bytes, so other programs can compute the
//! owner of a key. [`part_of`] uses the high bits of a hash; tables use the low bits.
//! Cost: about a nanosecond per integer, half of that in [`hash_ints`] with wide vectors.
//! Source: the specification of XXH3, inputs of 4 to 8 bytes.

use crate::Simd;
use xxhash_rust::xxh3::xxh3_64;

/// Bytes 8 to 15 of the default secret XOR bytes 16 to 23.
const FLIP: u64 = 0xc73a_b174_c5ec_d5a2;
/// The constant of both multiplications in XXH3.
const FACTOR: u64 = 0x9fb2_1c65_1e98_df25;

/// Return the hash of an integer key, which is the hash of its eight little-endian bytes.
#[inline(always)]
pub fn hash_int(key: i64) -> u64 {
    let mixed = (key as u64).rotate_left(32) ^ FLIP;
    let mixed = (mixed ^ mixed.rotate_left(49) ^ mixed.rotate_left(24)).wrapping_mul(FACTOR);
    let mixed = (mixed ^ ((mixed >> 35) + 8)).wrapping_mul(FACTOR);
    mixed ^ (mixed >> 28)
}

/// Append the hashes of integer keys to `into`, with the loop for the given SIMD level.
///
/// # Panics
/// If the machine does not support the level.
pub fn hash_ints(keys: &[i64], simd: Simd, into: &mut Vec<u64>) {
    simd.check();
    match simd {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: `check` has verified that the machine supports the level.
        Simd::Avx512 => unsafe { hash_ints_with_avx512(keys, into) },
        _ => into.extend(keys.iter().map(|&key| hash_int(key))),
    }
}

/// Loop with eight 64-bit multiplications at a time.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512dq")]
fn hash_ints_with_avx512(keys: &[i64], into: &mut Vec<u64>) {
    into.extend(keys.iter().map(|&key| hash_int(key)));
}

/// Return the hash of a string key.
#[inline]
pub fn hash_string(key: &[u8]) -> u64 {
    xxh3_64(key)
}

/// Return the part, out of `part_count`, for a key with the given hash. The high bits decide.
#[inline(always)]
pub fn part_of(hash: u64, part_count: usize) -> usize {
    ((u128::from(hash) * part_count as u128) >> 64) as usize
}

/// Derive another hash from `hash`, for parts within parts.
#[inline(always)]
pub fn rehash(hash: u64) -> u64 {
    hash_int(hash as i64)
}
