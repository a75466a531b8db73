//! Degrees of a butterfly: the size of the exchange groups of each layer.

use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;
use core::str::FromStr;

/// The degree of each layer from the top, and the number of folded ranks.
///
/// Folding is for numbers of ranks without small factors. With `q` the product of the degrees, ranks `0..q` take part
/// in the layers. Folded rank `q + i` sends all its rows to rank `i` before the first layer and receives its results
/// after the last. The text form is `8x4x2`, or `5x4x3+1` with `1` folded rank. A single rank has the degrees `1`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Degrees {
    layers: Vec<usize>,
    folded: usize,
}

impl Degrees {
    /// The largest prime that [`Degrees::smooth`] uses as a degree.
    const LARGEST_PRIME: usize = 7;
    /// The largest degree that [`Degrees::smooth`] forms from several primes.
    const LARGEST_DEGREE: usize = 8;

    /// Create degrees from layers of degree at least 2 and a number of folded ranks.
    pub fn new(layers: Vec<usize>, folded: usize) -> Result<Degrees, InvalidDegrees> {
        let invalid = |reason| InvalidDegrees { text: format_degrees(&layers, folded), reason };
        if layers.iter().any(|&degree| degree < 2) {
            return Err(invalid("every degree must be at least 2"));
        }
        let product = layers.iter().try_fold(1_usize, |product, &degree| product.checked_mul(degree));
        let product = product.filter(|&product| product <= u32::MAX as usize);
        let product = product.ok_or_else(|| invalid("their product exceeds the largest number of ranks"))?;
        if folded > product {
            return Err(invalid("there are more folded ranks than other ranks"));
        }
        Ok(Degrees { layers, folded })
    }

    /// Create one layer: each of `p` ranks exchanges with all others.
    pub fn direct(p: usize) -> Degrees {
        assert!(p > 0, "the number of ranks is positive");
        Degrees { layers: if p == 1 { Vec::new() } else { vec![p] }, folded: 0 }
    }

    /// Create layers of degree 2 for the largest power of two up to `p`. The remaining ranks are folded.
    pub fn binary(p: usize) -> Degrees {
        assert!(p > 0, "the number of ranks is positive");
        let layer_count = p.ilog2();
        Degrees { layers: vec![2; layer_count as usize], folded: p - (1 << layer_count) }
    }

    /// Return every ordered factorization of `p` into factors of at least 2, without folding. For `p = 1` there is one,
    /// without layers.
    pub fn all(p: usize) -> Vec<Degrees> {
        assert!(p > 0, "the number of ranks is positive");
        factorizations(p).into_iter().map(|layers| Degrees { layers, folded: 0 }).collect()
    }

    /// Create degrees for any `p`: for the largest `q <= p` without a prime factor above 7, with `p - q` folded ranks.
    ///
    /// The layers are the largest divisors up to 8, largest first.
    pub fn smooth(p: usize) -> Degrees {
        let q = smooth_part(p);
        let mut layers = Vec::new();
        let mut rest = q;
        while rest > 1 {
            let degree = (2..=Self::LARGEST_DEGREE).rev().find(|degree| rest.is_multiple_of(*degree));
            let degree = degree.expect("a number without a prime factor above 7 has a divisor up to 8");
            layers.push(degree);
            rest /= degree;
        }
        layers.sort_unstable_by(|a, b| b.cmp(a));
        Degrees { layers, folded: p - q }
    }

    /// Return every ordered factorization of the `q` of [`Degrees::smooth`], with `p - q` folded ranks.
    pub fn all_smooth(p: usize) -> Vec<Degrees> {
        let q = smooth_part(p);
        factorizations(q).into_iter().map(|layers| Degrees { layers, folded: p - q }).collect()
    }

    /// Parse the degrees of `p` ranks: `direct`, `binary`, or the text form.
    pub fn named(text: &str, p: usize) -> Result<Degrees, InvalidDegrees> {
        match text {
            "direct" => Ok(Degrees::direct(p)),
            "binary" => Ok(Degrees::binary(p)),
            _ => {
                let mismatch = InvalidDegrees { text: text.into(), reason: "they do not match the number of ranks" };
                text.parse::<Degrees>().and_then(|d| if d.world_size() == p { Ok(d) } else { Err(mismatch) })
            }
        }
    }

    /// Return the degree of each layer, from the top.
    pub fn layers(&self) -> &[usize] {
        &self.layers
    }

    /// Return the number of folded ranks, which take no part in the layers.
    pub fn folded(&self) -> usize {
        self.folded
    }

    /// Return the number of ranks in the layers: `q`.
    pub fn core_size(&self) -> usize {
        self.layers.iter().product()
    }

    /// Return the number of all ranks: `p`.
    pub fn world_size(&self) -> usize {
        self.core_size() + self.folded
    }
}

/// Return the largest number up to `p` without a prime factor above 7.
fn smooth_part(p: usize) -> usize {
    assert!(p > 0, "the number of ranks is positive");
    let is_smooth = |&number: &usize| {
        let mut rest = number;
        for factor in 2..=Degrees::LARGEST_PRIME {
            while rest.is_multiple_of(factor) {
                rest /= factor;
            }
        }
        rest == 1
    };
    (1..=p).rev().find(is_smooth).expect("1 has no prime factor")
}

fn factorizations(number: usize) -> Vec<Vec<usize>> {
    if number == 1 {
        return vec![Vec::new()];
    }
    let first_factors = (2..=number).filter(|factor| number.is_multiple_of(*factor));
    let with_first =
        |first: usize| factorizations(number / first).into_iter().map(move |rest| [vec![first], rest].concat());
    first_factors.flat_map(with_first).collect()
}

fn format_degrees(layers: &[usize], folded: usize) -> String {
    use fmt::Write;
    let mut text = String::new();
    let mut write = |args: fmt::Arguments<'_>| text.write_fmt(args).expect("writing to a String cannot fail");
    layers.iter().enumerate().for_each(|(i, degree)| write(format_args!("{}{degree}", if i > 0 { "x" } else { "" })));
    if layers.is_empty() {
        write(format_args!("1"));
    }
    if folded > 0 {
        write(format_args!("+{folded}"));
    }
    text
}

impl fmt::Display for Degrees {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format_degrees(&self.layers, self.folded))
    }
}

impl FromStr for Degrees {
    type Err = InvalidDegrees;

    fn from_str(text: &str) -> Result<Degrees, InvalidDegrees> {
        let invalid = |reason| InvalidDegrees { text: text.into(), reason };
        let number = |digits: &str| digits.trim().parse::<usize>().map_err(|_| invalid("not a number"));
        let (layers, folded) = match text.split_once('+') {
            Some((layers, folded)) => (layers, number(folded)?),
            None => (text, 0),
        };
        let layers = match layers.trim() {
            "1" => Vec::new(),
            layers => layers.split('x').map(number).collect::<Result<_, _>>()?,
        };
        Degrees::new(layers, folded).map_err(|error| invalid(error.reason))
    }
}

/// Error: the degrees do not form a butterfly.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidDegrees {
    text: String,
    reason: &'static str,
}

impl fmt::Display for InvalidDegrees {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "degrees {:?}: {}; expected for example \"8x4x2\", or \"5x4x3+1\" with one folded rank",
            self.text, self.reason
        )
    }
}

impl core::error::Error for InvalidDegrees {}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn all_returns_the_ordered_factorizations() {
        let all: Vec<String> = Degrees::all(12).iter().map(Degrees::to_string).collect();
        assert_eq!(all, ["2x2x3", "2x3x2", "2x6", "3x2x2", "3x4", "4x3", "6x2", "12"]);
        assert_eq!(Degrees::all(1), [Degrees::direct(1)]);
        assert_eq!(Degrees::all(13), [Degrees::direct(13)]);
        // Ordered factorizations of 2^5: compositions of 5.
        assert_eq!(Degrees::all(32).len(), 16);
    }

    #[test]
    fn binary_degrees_are_twos_for_any_number_of_ranks() {
        let all: Vec<String> = [1, 2, 3, 8, 13].map(|p| Degrees::binary(p).to_string()).to_vec();
        assert_eq!(all, ["1", "2", "2+1", "2x2x2", "2x2x2+5"]);
        assert!((1..100).all(|p| Degrees::binary(p).world_size() == p));
    }

    #[test]
    fn named_degrees_match_the_number_of_ranks() {
        assert_eq!(Degrees::named("direct", 6), Ok(Degrees::direct(6)));
        assert_eq!(Degrees::named("binary", 6), Ok(Degrees::binary(6)));
        assert_eq!(Degrees::named("5x4x3+1", 61), "5x4x3+1".parse());
        assert!(Degrees::named("8x4x2", 63).unwrap_err().to_string().contains("8x4x2"));
    }

    #[test]
    fn smooth_degrees_are_small_for_every_number_of_ranks() {
        for p in 1..=2000 {
            let degrees = Degrees::smooth(p);
            assert_eq!(degrees.world_size(), p);
            assert!(degrees.layers().iter().all(|&degree| (2..=8).contains(&degree)), "{degrees}");
            assert!(degrees.layers().is_sorted_by(|a, b| a >= b), "{degrees}");
            // Smooth numbers are dense: few ranks are folded.
            assert!(degrees.folded() * 8 <= p, "{degrees}");
            assert!(Degrees::new(degrees.layers().to_vec(), degrees.folded()).is_ok());
        }
        assert_eq!(Degrees::smooth(61).to_string(), "6x5x2+1");
        assert!(Degrees::all_smooth(61).contains(&"5x4x3+1".parse().unwrap()));
    }

    #[test]
    fn the_encoding_round_trips() {
        for p in 1..=70 {
            for degrees in Degrees::all(p).into_iter().chain(Degrees::all_smooth(p)) {
                assert_eq!(degrees.to_string().parse(), Ok(degrees));
            }
        }
    }

    #[test]
    fn invalid_degrees_are_rejected() {
        for text in ["", "x", "8x", "8x1", "0", "8x4+33", "1+2", "4+", "-2", "65536x65536x65536x65536x65536"] {
            let error = text.parse::<Degrees>().unwrap_err().to_string();
            assert!(error.contains("8x4x2"), "{error}");
        }
    }
}
