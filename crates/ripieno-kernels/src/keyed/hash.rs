//! The hash of keys: XXH3 of 64 bits with seed 0, the same on every machine.
//!
//! An integer is hashed as its eight little-endian bytes, a string as its bytes, so that other programs can tell where
//! a key lives. [`part_of`] reads the high bits of a hash, tables read the low ones.
//! Cost: about a nanosecond an integer, half of it in [`hash_ints`] with wide vectors.
//! Source: the specification of XXH3, inputs of 4 to 8 bytes.

use crate::Simd;
use xxhash_rust::xxh3::xxh3_64;

/// Two words of the default secret, bytes 8 to 15 and 16 to 23, one combined with the other.
const FLIP: u64 = 0xc73a_b174_c5ec_d5a2;
/// By what XXH3 multiplies, twice.
const FACTOR: u64 = 0x9fb2_1c65_1e98_df25;

/// The hash of an integer key: that of its eight little-endian bytes.
#[inline(always)]
pub fn hash_int(key: i64) -> u64 {
    let mixed = (key as u64).rotate_left(32) ^ FLIP;
    let mixed = (mixed ^ mixed.rotate_left(49) ^ mixed.rotate_left(24)).wrapping_mul(FACTOR);
    let mixed = (mixed ^ ((mixed >> 35) + 8)).wrapping_mul(FACTOR);
    mixed ^ (mixed >> 28)
}

/// Appends the hashes of integer keys to `into`, with the loop of a SIMD level.
///
/// # Panics
/// If the machine lacks the level.
pub fn hash_ints(keys: &[i64], simd: Simd, into: &mut Vec<u64>) {
    simd.check();
    match simd {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the machine has the level.
        Simd::Avx512 => unsafe { hash_ints_with_avx512(keys, into) },
        _ => into.extend(keys.iter().map(|&key| hash_int(key))),
    }
}

/// The loop with multiplications of eight words at a time.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512dq")]
fn hash_ints_with_avx512(keys: &[i64], into: &mut Vec<u64>) {
    into.extend(keys.iter().map(|&key| hash_int(key)));
}

/// The hash of a string key.
#[inline]
pub fn hash_string(key: &[u8]) -> u64 {
    xxh3_64(key)
}

/// The part of a key whose hash is `hash`, out of `part_count`: the high bits decide.
#[inline(always)]
pub fn part_of(hash: u64, part_count: usize) -> usize {
    ((u128::from(hash) * part_count as u128) >> 64) as usize
}

/// Another hash made of `hash`, for parts within parts.
#[inline(always)]
pub fn rehash(hash: u64) -> u64 {
    hash_int(hash as i64)
}
