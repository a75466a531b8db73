//! Packet curve: the time that a packet occupies its sender, by packet size, and the additional waiting time of
//! receivers.
//!
//! The curve assumes several packets sent back to back to different ranks.

use crate::simulate::Model;
use alloc::vec::Vec;

/// Number of concurrent peers up to which the curve alone gives the cost of a packet; see
/// [`PacketCurve::with_contention`].
pub const UNCONTENDED_PEER_COUNT: usize = 8;

/// Fraction of the best throughput above which a packet counts as efficient.
pub const EFFICIENT_SHARE: f64 = 0.8;

/// Seconds per packet as a function of its bytes, linear between measured points.
#[derive(Clone, Debug, PartialEq)]
pub struct PacketCurve {
    /// Points `(bytes, seconds)`, at least one. The bytes ascend and the seconds do not descend.
    points: Vec<(f64, f64)>,
    latency_s: f64,
    contention_s: f64,
}

impl PacketCurve {
    /// Return the default curve for ranks that share the memory of a node, without a measurement: 1 us per packet, 4
    /// GB/s, 2 us latency.
    pub fn memory() -> PacketCurve {
        PacketCurve::line(1e-6, 0.25e-9, 2e-6)
    }

    /// Return the default curve for ranks on different nodes, without a measurement: 10 us per packet, 10 Gbit/s, 50 us
    /// latency.
    pub fn network() -> PacketCurve {
        PacketCurve::line(10e-6, 0.8e-9, 50e-6)
    }

    /// Create a linear curve: each packet takes `alpha_s` plus `beta_s_per_byte` per byte, and the last arrives
    /// `latency_s` later.
    pub fn line(alpha_s: f64, beta_s_per_byte: f64, latency_s: f64) -> PacketCurve {
        // From a size with a transfer time of alpha to one with the best throughput.
        let point = |bytes: f64| (bytes, alpha_s + bytes * beta_s_per_byte);
        PacketCurve { points: [1.0, 1e12].map(point).to_vec(), latency_s, contention_s: 0.0 }
    }

    /// Create the curve through points `(bytes, seconds)`.
    ///
    /// A larger packet never takes less time: seconds below earlier ones are raised to them. Return `None` unless
    /// there is a point, the bytes ascend, bytes and seconds are positive, the latency is not negative, and all numbers
    /// are finite.
    pub fn through(mut points: Vec<(f64, f64)>, latency_s: f64) -> Option<PacketCurve> {
        let positive = |value: f64| value > 0.0 && value.is_finite();
        let is_valid = !points.is_empty()
            && latency_s >= 0.0
            && latency_s.is_finite()
            && points.iter().all(|&(bytes, seconds)| positive(bytes) && positive(seconds))
            && points.windows(2).all(|pair| pair[0].0 < pair[1].0);
        if !is_valid {
            return None;
        }
        for index in 1..points.len() {
            points[index].1 = points[index].1.max(points[index - 1].1);
        }
        Some(PacketCurve { points, latency_s, contention_s: 0.0 })
    }

    /// Add contention: each peer of a layer beyond [`UNCONTENDED_PEER_COUNT`] adds `contention_s` seconds, not
    /// negative, to every packet. A rank that combines the packets of many senders in a fixed order waits for some of
    /// them.
    pub fn with_contention(self, contention_s: f64) -> PacketCurve {
        assert!(contention_s >= 0.0 && contention_s.is_finite(), "the contention is finite and not negative");
        PacketCurve { contention_s, ..self }
    }

    /// Return the seconds that each peer of a layer beyond [`UNCONTENDED_PEER_COUNT`] adds to every packet.
    pub fn contention_s(&self) -> f64 {
        self.contention_s
    }

    /// Return the points `(bytes, seconds)`.
    pub fn points(&self) -> &[(f64, f64)] {
        &self.points
    }

    /// Return the seconds between the end of a rank's last packet and the arrival of packets sent to it at the same
    /// time.
    pub fn latency_s(&self) -> f64 {
        self.latency_s
    }

    /// Return the seconds of a layer. Every rank sends and receives `packet_count` packets of `packet_bytes`.
    pub fn layer_s(&self, packet_count: usize, packet_bytes: f64) -> f64 {
        match packet_count {
            0 => 0.0,
            count => {
                let contention_s = count.saturating_sub(UNCONTENDED_PEER_COUNT) as f64 * self.contention_s;
                self.latency_s + count as f64 * (self.seconds(packet_bytes) + contention_s)
            }
        }
    }

    /// Return the seconds of a packet. Constant below the first point; beyond the last point the throughput is
    /// constant.
    pub fn seconds(&self, bytes: f64) -> f64 {
        let (last_bytes, last_s) = self.points[self.points.len() - 1];
        if bytes >= last_bytes {
            return last_s * bytes / last_bytes;
        }
        let next = self.points.partition_point(|&(size, _)| size <= bytes);
        if next == 0 {
            return self.points[0].1;
        }
        let ((low, low_s), (high, high_s)) = (self.points[next - 1], self.points[next]);
        low_s + (high_s - low_s) * (bytes - low) / (high - low)
    }

    /// Return the throughput at this packet size in bytes per second.
    pub fn throughput(&self, bytes: f64) -> f64 {
        bytes / self.seconds(bytes)
    }

    /// Return the best throughput of all points in bytes per second.
    pub fn best_throughput(&self) -> f64 {
        self.points.iter().map(|&(bytes, seconds)| bytes / seconds).fold(0.0, f64::max)
    }

    /// Return the size of the smallest efficient packet: it reaches [`EFFICIENT_SHARE`] of the best throughput.
    pub fn efficient_bytes(&self) -> f64 {
        let throughput = EFFICIENT_SHARE * self.best_throughput();
        let reached = self.points.iter().position(|&(bytes, seconds)| bytes / seconds >= throughput);
        let next = reached.expect("the best point reaches the required throughput");
        let (high, high_s) = self.points[next];
        // On a line `T`, `bytes / T(bytes)` equals the required throughput at one size. Below the first point `T` is
        // constant.
        let (low, low_s) = if next == 0 { (0.0, high_s) } else { self.points[next - 1] };
        let slope = (high_s - low_s) / (high - low);
        throughput * (low_s - slope * low) / (1.0 - throughput * slope)
    }

    /// Fit a line: alpha and beta minimize the sum of squared relative deviations, and neither is negative. `gamma` is
    /// [`GAMMA_S_PER_BYTE`].
    pub fn model(&self) -> Model {
        // With weights 1/T: sums of 1/T², b/T², b²/T², 1/T, b/T.
        let mut sums = [0.0; 5];
        for &(bytes, seconds) in &self.points {
            let (one, size) = (1.0 / seconds, bytes / seconds);
            let terms = [one * one, one * size, size * size, one, size];
            sums.iter_mut().zip(terms).for_each(|(sum, term)| *sum += term);
        }
        let [aa, ab, bb, a, b] = sums;
        let determinant = aa * bb - ab * ab;
        let (alpha_s, beta_s_per_byte) = ((a * bb - b * ab) / determinant, (b * aa - a * ab) / determinant);
        let (alpha_s, beta_s_per_byte) = match (alpha_s > 0.0, beta_s_per_byte > 0.0) {
            (true, true) => (alpha_s, beta_s_per_byte),
            (true, false) => (a / aa, 0.0),
            _ => (0.0, b / bb),
        };
        Model { alpha_s, beta_s_per_byte, gamma_s_per_byte: GAMMA_S_PER_BYTE }
    }
}

/// Seconds to combine or gather a byte by a row map. Measured for rows of 4 bytes, the most expensive size per byte,
/// with the example `row_cost` of `ripieno-run`.
pub const GAMMA_S_PER_BYTE: f64 = 0.13e-9;

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    const ALPHA_S: f64 = 1e-4;
    const BETA_S_PER_BYTE: f64 = 1e-8;

    fn on_the_line(sizes: &[f64]) -> PacketCurve {
        let seconds = |bytes: f64| ALPHA_S + bytes * BETA_S_PER_BYTE;
        PacketCurve::through(sizes.iter().map(|&bytes| (bytes, seconds(bytes))).collect(), 0.0).unwrap()
    }

    #[test]
    fn the_curve_is_linear_between_points_and_extrapolated_conservatively() {
        let curve = on_the_line(&[100.0, 1e4, 1e6]);
        assert!((curve.seconds(5e5) / 5.1e-3 - 1.0).abs() < 1e-12);
        assert_eq!(curve.seconds(1.0), curve.seconds(100.0));
        assert!((curve.throughput(1e9) / curve.best_throughput() - 1.0).abs() < 1e-12);
    }

    #[test]
    fn alpha_and_beta_match_the_line() {
        let model = on_the_line(&[8.0, 1e3, 1e5, 1e7]).model();
        assert!((model.alpha_s / ALPHA_S - 1.0).abs() < 1e-9);
        assert!((model.beta_s_per_byte / BETA_S_PER_BYTE - 1.0).abs() < 1e-9);
        // Packets with a cost per byte only, and packets of equal cost.
        let by_byte = PacketCurve::through(vec![(10.0, 1e-6), (1e3, 1.1e-4)], 0.0).unwrap().model();
        assert_eq!(by_byte.alpha_s, 0.0);
        let level = PacketCurve::through(vec![(10.0, 1e-3), (1e3, 1e-3)], 0.0).unwrap().model();
        assert!((level.alpha_s - 1e-3).abs() < 1e-12 && level.beta_s_per_byte < 1e-15);
    }

    #[test]
    fn the_smallest_efficient_packet_reaches_its_share_of_the_best_throughput() {
        let line = PacketCurve::line(ALPHA_S, BETA_S_PER_BYTE, 0.0);
        for curve in [on_the_line(&[8.0, 1e3, 1e5, 1e7]), on_the_line(&[1e6, 1e7]), line.clone()] {
            let smallest = curve.efficient_bytes();
            let share = |bytes: f64| curve.throughput(bytes) / curve.best_throughput();
            assert!((share(smallest) - EFFICIENT_SHARE).abs() < 1e-6, "{smallest}");
            assert!(share(0.99 * smallest) < EFFICIENT_SHARE);
        }
        // 1e4 bytes take 1e-4 s. With alpha of the same size, four times as many bytes reach four fifths of the
        // throughput.
        assert!((line.efficient_bytes() / 4e4 - 1.0).abs() < 1e-3);
    }

    #[test]
    fn a_layer_waits_once_for_its_last_packet() {
        let curve = PacketCurve::line(ALPHA_S, BETA_S_PER_BYTE, 7.0);
        assert_eq!(curve.layer_s(0, 1e6), 0.0);
        assert!((curve.layer_s(3, 1e4) - (7.0 + 3.0 * 2e-4)).abs() < 1e-12);
    }

    #[test]
    fn concurrent_packets_wait_for_each_other() {
        let curve = PacketCurve::line(ALPHA_S, BETA_S_PER_BYTE, 7.0).with_contention(0.5);
        assert!((curve.layer_s(8, 1e4) - (7.0 + 8.0 * 2e-4)).abs() < 1e-12);
        assert!((curve.layer_s(10, 1e4) - (7.0 + 10.0 * (2e-4 + 1.0))).abs() < 1e-12);
    }

    #[test]
    fn invalid_points_return_none() {
        for points in [vec![], vec![(0.0, 1.0)], vec![(1.0, f64::NAN)], vec![(2.0, 1.0), (2.0, 1.0)]] {
            assert_eq!(PacketCurve::through(points, 0.0), None);
        }
        assert_eq!(PacketCurve::through(vec![(1.0, 1.0)], -1.0), None);
    }
}
