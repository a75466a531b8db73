//! Mutations of valid input, as caused by transmission errors or by an attacker.

use crate::random::FuzzRandom;

/// Largest number of mutations of one input.
const MUTATION_COUNT_MAX: usize = 6;
/// Numbers at the limits of integer types, where readers tend to fail.
const EDGE_NUMBERS: [u64; 12] = [
    0,
    1,
    2,
    7,
    u8::MAX as u64,
    i16::MAX as u64,
    u16::MAX as u64,
    1 << 24,
    i32::MAX as u64,
    u32::MAX as u64,
    i64::MAX as u64,
    u64::MAX,
];
/// Tokens inserted into texts.
const TOKENS: [&str; 16] =
    ["\n", "\r\n", " ", "\t", ",", ":", "-", "0", "9223372036854775807", "1e999", "nan", "#", "\"", "\0", "{", "["];

/// Return a mutated element of `pool`, or rarely random bytes.
pub(crate) fn mutated(pool: &[Vec<u8>], longest: usize, random: &mut FuzzRandom) -> Vec<u8> {
    if random.below(64) == 0 {
        let length = random.below(longest + 1).min(random.below(longest + 1));
        return (0..length).map(|_| random.draw() as u8).collect();
    }
    let mut bytes = random.of(pool).clone();
    for _ in 0..=random.below(MUTATION_COUNT_MAX) {
        mutate(&mut bytes, pool, random);
    }
    bytes.truncate(longest);
    bytes
}

fn mutate(bytes: &mut Vec<u8>, pool: &[Vec<u8>], random: &mut FuzzRandom) {
    let at = random.below(bytes.len() + 1);
    let length = (bytes.len() - at).min(1 + random.below(8) * random.below(16));
    match random.below(12) {
        0 | 1 => overwrite(bytes, at, &[1 << random.below(8)], |old, new| old ^ new),
        2 => overwrite(bytes, at, &[random.draw() as u8], |_, new| new),
        3 => overwrite(bytes, at, &number(random), |_, new| new),
        4 => overwrite(bytes, at, &[random.below(16) as u8], u8::wrapping_add),
        5 => overwrite(bytes, at, &[random.below(16) as u8], u8::wrapping_sub),
        6 => bytes.truncate(at),
        7 => drop(bytes.drain(at..at + length)),
        8 => {
            let again = bytes[at..at + length].to_vec();
            insert(bytes, at, &again);
        }
        9 => insert(bytes, at, random.of(&TOKENS).as_bytes()),
        10 => {
            let added: Vec<u8> = (0..length).map(|_| random.draw() as u8).collect();
            insert(bytes, at, &added);
        }
        _ => {
            let other = random.of(pool);
            bytes.truncate(at);
            bytes.extend_from_slice(&other[random.below(other.len() + 1)..]);
        }
    }
}

/// Return an edge number or one of its neighbors, in 1 to 8 bytes of either byte order.
fn number(random: &mut FuzzRandom) -> Vec<u8> {
    let near = random.below(3) as u64;
    let number = random.of(&EDGE_NUMBERS).wrapping_add(near).wrapping_sub(1);
    let mut bytes = number.to_le_bytes()[..*random.of(&[1, 2, 4, 8])].to_vec();
    if random.below(4) == 0 {
        bytes.reverse();
    }
    bytes
}

fn overwrite(bytes: &mut [u8], at: usize, with: &[u8], merge: fn(u8, u8) -> u8) {
    bytes[at..].iter_mut().zip(with).for_each(|(old, &new)| *old = merge(*old, new));
}

fn insert(bytes: &mut Vec<u8>, at: usize, added: &[u8]) {
    bytes.splice(at..at, added.iter().copied());
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn inputs_are_reproducible_and_have_a_bounded_length() {
        let pool = [vec![], b"a valid text".to_vec(), vec![0; 100]];
        let inputs: Vec<Vec<u8>> = (0..5000).map(|seed| mutated(&pool, 120, &mut FuzzRandom::new(seed))).collect();
        let again: Vec<Vec<u8>> = (0..5000).map(|seed| mutated(&pool, 120, &mut FuzzRandom::new(seed))).collect();
        assert_eq!(inputs, again);
        assert!(inputs.iter().all(|input| input.len() <= 120));
        assert!(inputs.iter().collect::<BTreeSet<_>>().len() > 3000, "most inputs differ");
    }
}
