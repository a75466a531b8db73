//! Cost formulas: evaluation of the cost of an algorithm, given as text.
//!
//! A formula consists of `+ - · /`, parentheses, `ceil(…)`, `floor(…)`, `log2 x`, `log4 x`, numbers, and the letters of
//! [`Terms`]. A number or a parenthesis directly before a parenthesis is a factor, as in `2(p-1)`.

use crate::simulate::Model;

/// Values of the letters in a formula.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Terms {
    /// `p`: number of ranks.
    pub p: usize,
    /// `n`: number of bytes.
    pub n: usize,
    /// `k`: number of segments.
    pub k: usize,
    /// `d`: number of peers that a rank sends to.
    pub d: usize,
    /// `alpha`, `beta` and `gamma`.
    pub model: Model,
}

/// Evaluate `formula`.
///
/// # Panics
///
/// If the text is not a valid formula.
pub fn value(formula: &str, terms: &Terms) -> f64 {
    let mut parser = FormulaParser { formula, rest: formula, terms };
    let value = parser.sum();
    parser.skip_spaces();
    if parser.rest.is_empty() { value } else { parser.fail() }
}

/// Whether `formula` depends on the number of segments.
pub fn has_segments(formula: &str) -> bool {
    formula.split(|c: char| !c.is_ascii_alphanumeric()).any(|word| word == "k")
}

struct FormulaParser<'a> {
    formula: &'a str,
    rest: &'a str,
    terms: &'a Terms,
}

impl<'a> FormulaParser<'a> {
    fn sum(&mut self) -> f64 {
        let mut sum = self.product();
        loop {
            if self.accept("+") {
                sum += self.product();
            } else if self.accept("-") {
                sum -= self.product();
            } else {
                return sum;
            }
        }
    }

    fn product(&mut self) -> f64 {
        let mut product = self.factor();
        loop {
            if self.accept("·") || self.rest.starts_with('(') {
                product *= self.factor();
            } else if self.accept("/") {
                product /= self.factor();
            } else {
                return product;
            }
        }
    }

    fn factor(&mut self) -> f64 {
        if self.accept("(") {
            let value = self.sum();
            return if self.accept(")") { value } else { self.fail() };
        }
        let length = self.rest.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(length);
        let Terms { p, n, k, d, model } = *self.terms;
        let value = match word {
            "p" => p as f64,
            "n" => n as f64,
            "k" => k as f64,
            "d" => d as f64,
            "alpha" => model.alpha_s,
            "beta" => model.beta_s_per_byte,
            "gamma" => model.gamma_s_per_byte,
            "ceil" => return self.apply(rest, libm::ceil),
            "floor" => return self.apply(rest, libm::floor),
            "log2" => return self.apply(rest, libm::log2),
            "log4" => return self.apply(rest, |value| libm::log2(value) / 2.0),
            number => match number.parse::<u32>() {
                Ok(number) => f64::from(number),
                Err(_) => self.fail(),
            },
        };
        self.rest = rest;
        value
    }

    /// Apply a function to the factor that follows.
    fn apply(&mut self, rest: &'a str, function: fn(f64) -> f64) -> f64 {
        self.rest = rest;
        self.skip_spaces();
        function(self.factor())
    }

    fn accept(&mut self, sign: &str) -> bool {
        let Some(rest) = self.rest.trim_start().strip_prefix(sign) else { return false };
        self.rest = rest;
        self.skip_spaces();
        true
    }

    fn skip_spaces(&mut self) {
        self.rest = self.rest.trim_start();
    }

    fn fail(&self) -> ! {
        let at = self.formula.len() - self.rest.len();
        panic!("formula {:?}: cannot be parsed from byte {at}, {:?}", self.formula, self.rest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MODEL: Model = Model { alpha_s: 1000.0, beta_s_per_byte: 10.0, gamma_s_per_byte: 1.0 };

    fn evaluated(p: usize, formula: &str) -> f64 {
        value(formula, &Terms { p, n: 12, k: 4, d: 3, model: MODEL })
    }

    #[test]
    fn formulas_are_evaluated() {
        assert_eq!(evaluated(5, "(p-1)·(alpha + n·beta)"), 4.0 * (1000.0 + 120.0));
        assert_eq!(
            evaluated(4, "2(p-1)·alpha + 2(p-1)/p·n·beta + (p-1)/p·n·gamma"),
            6000.0 + 1.5 * 120.0 + 0.75 * 12.0
        );
        assert_eq!(evaluated(5, "(p-2+k)·(alpha + n/k·beta)"), 7.0 * (1000.0 + 30.0));
        assert_eq!(evaluated(9, "(ceil(log2 p) - floor(log2 p))·2 + ceil(log4 p)·d"), 2.0 + 6.0);
        assert_eq!(evaluated(8, "ceil(log2 p) - floor(log2 p)"), 0.0);
    }

    #[test]
    #[should_panic(expected = "formula \"2·(p-1\": cannot be parsed from byte 7")]
    fn an_unclosed_parenthesis_is_reported() {
        evaluated(4, "2·(p-1");
    }

    #[test]
    #[should_panic(expected = "formula \"p·delta\": cannot be parsed from byte 3, \"delta\"")]
    fn an_undefined_letter_is_reported() {
        evaluated(4, "p·delta");
    }

    #[test]
    fn a_formula_with_segments_is_recognized() {
        assert!(has_segments("2(floor(log2 p) - 1 + k)·alpha"));
        assert!(!has_segments("2(p-1)·alpha + n·beta"));
    }
}
