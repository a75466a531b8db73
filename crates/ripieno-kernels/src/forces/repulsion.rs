//! Exact repulsion between all pairs of points, with each pair computed once for both points.
//!
//! Points are divided into blocks of rows. A block interacts with itself and, in strips, with all points after it. The
//! contribution of a strip to a sum is accumulated in f32 and rounded to an integer multiple of `1/fixed_point_scale`.
//! Integers can be added in any order. So threads and ranks can process the blocks in any order, and the bits of a sum
//! depend only on the positions and the SIMD level.
//!
//! Cost: half of all pairs, `4·k + 4` operations each in `k` dimensions; for each thread, `n·k` integers.

use super::strip::{STRIP_POINTS, Strip, Weights, repel};
use crate::pairs::{MAX_DIMENSIONS, PositionTable};
use crate::panels::{PanelLine, floats, floats_mut};
use crate::simd::{Vector, VectorJob};
use crate::{Matrix, Threads};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Points of a block.
const BLOCK_POINTS: usize = 256;
/// Estimated cost of a pair in vectorized operations.
const PAIR_OPERATIONS: usize = 16;
/// Upper bound on one repulsion, since the distance of two points is at least 0.01.
const MAX_REPULSION: f64 = 100.0;
/// The contribution of a strip is less than `2^17`, and must be less than `2^51` to be rounded by [`to_fixed_point`].
const MAX_FRACTION_BITS: u32 = 33;

/// A share of the blocks, for one of several ranks.
#[derive(Clone, Copy, Debug)]
pub struct BlockShare {
    /// Index of the share.
    pub index: usize,
    /// Number of shares.
    pub count: usize,
}

impl BlockShare {
    /// Return the blocks of this share. Later blocks have fewer points after them, so blocks are assigned in
    /// alternating directions.
    fn blocks(self, block_count: usize) -> Vec<usize> {
        let is_mine = |block: usize| {
            let at = block % (2 * self.count);
            at == self.index || at == 2 * self.count - 1 - self.index
        };
        (0..block_count).filter(|&block| is_mine(block)).collect()
    }
}

/// Return the scale of the integer sums of [`repulsion`]: the integer that represents 1, for this number of points. It
/// is a power of two, small enough that no sum overflows.
pub fn fixed_point_scale(point_count: usize) -> f64 {
    let greatest = (MAX_REPULSION * point_count.max(1) as f64).log2().ceil() as u32;
    f64::from(MAX_FRACTION_BITS.min(62 - greatest.min(62))).exp2()
}

/// Compute for each point `x` the sum of `(x − y)/‖x − y‖²` over points `y` as scaled integers. Distances below 0.01
/// count as 0.01.
///
/// `out` receives the repulsion of a share of the pairs. The results of all shares add up to the sums over all points.
///
/// # Panics
/// If the shapes do not fit, or the share's index is out of range.
pub fn repulsion(all: Matrix<f32>, share: BlockShare, out: &mut [i64], threads: &Threads) {
    let (count, k) = (all.rows(), all.columns());
    assert!(k <= MAX_DIMENSIONS, "{k} dimensions, of {MAX_DIMENSIONS}");
    assert!(share.index < share.count, "share {} of {}", share.index, share.count);
    assert_eq!(out.len(), count * k, "a sum for every point and dimension");
    let table = PositionTable::of(all);
    let blocks = share.blocks(count.div_ceil(BLOCK_POINTS));
    let mut buffers = vec![vec![0i64; table.stride * k]; threads.count()];
    let operations = PAIR_OPERATIONS * blocks.len() * BLOCK_POINTS * count / 2 / threads.count();
    let taken = AtomicUsize::new(0);
    // Free threads take the next block; the longest blocks come first.
    threads.for_each(buffers.iter_mut().collect(), operations, RepulsionScratch::default, |scratch, buffer| {
        while let Some(&block) = blocks.get(taken.fetch_add(1, Ordering::Relaxed)) {
            let pairs = BlockPairs { all, table: &table, block, scale: fixed_point_scale(count), buffer, scratch };
            threads.simd().run(pairs);
        }
    });
    for (point, sums) in out.chunks_exact_mut(k).enumerate() {
        for (axis, sum) in sums.iter_mut().enumerate() {
            *sum = buffers.iter().map(|buffer| buffer[axis * table.stride + point]).sum();
        }
    }
}

/// Buffers of one thread: repulsion on the strip, and weights of a padded last line.
struct RepulsionScratch {
    reactions: Vec<PanelLine>,
    counts: Vec<PanelLine>,
    spreads: Vec<PanelLine>,
}

impl Default for RepulsionScratch {
    fn default() -> RepulsionScratch {
        let lines = || vec![PanelLine::default(); STRIP_POINTS / PanelLine::LEN];
        RepulsionScratch { reactions: Vec::new(), counts: lines(), spreads: lines() }
    }
}

/// The pairs of a block's points with each other and with all points after them.
struct BlockPairs<'a> {
    all: Matrix<'a, f32>,
    table: &'a PositionTable,
    block: usize,
    scale: f64,
    /// Sums of all points, dimension by dimension.
    buffer: &'a mut [i64],
    scratch: &'a mut RepulsionScratch,
}

impl VectorJob for BlockPairs<'_> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector, const ROWS: usize, const VECTORS: usize>(self) {
        match self.all.columns() {
            2 => self.add_up::<V, 2, 4>(),
            3 => self.add_up::<V, 3, 4>(),
            _ => self.add_up::<V, MAX_DIMENSIONS, 1>(),
        }
    }
}

impl BlockPairs<'_> {
    #[inline(always)]
    fn add_up<V: Vector, const K: usize, const TARGETS: usize>(mut self) {
        let (k, count) = (self.all.columns(), self.table.count);
        let first = self.block * BLOCK_POINTS;
        let last = count.min(first + BLOCK_POINTS);
        self.scratch.reactions.resize(STRIP_POINTS / PanelLine::LEN * k, PanelLine::default());
        self.strip::<V, K, TARGETS, false>(first..last, first, last - first);
        for start in (last..count).step_by(STRIP_POINTS) {
            self.strip::<V, K, TARGETS, true>(first..last, start, STRIP_POINTS.min(count - start));
        }
    }

    /// Add the repulsion between the points `rows` and the `taken` points starting at `start`. Without `MUTUAL`, add
    /// only the repulsion on `rows`.
    #[inline(always)]
    fn strip<V: Vector, const K: usize, const TARGETS: usize, const MUTUAL: bool>(
        &mut self,
        rows: std::ops::Range<usize>,
        start: usize,
        taken: usize,
    ) {
        let padded = taken.next_multiple_of(PanelLine::LEN);
        if padded == taken {
            self.rows::<V, K, TARGETS, MUTUAL, false>(rows, start, taken);
        } else {
            // Padding values of the last line have zero weight.
            let counts = floats_mut(&mut self.scratch.counts);
            counts[..taken].fill(1.0);
            counts[taken..padded].fill(0.0);
            self.rows::<V, K, TARGETS, MUTUAL, true>(rows, start, taken);
        }
    }

    #[inline(always)]
    fn rows<V: Vector, const K: usize, const TARGETS: usize, const MUTUAL: bool, const WEIGHTED: bool>(
        &mut self,
        rows: std::ops::Range<usize>,
        start: usize,
        taken: usize,
    ) {
        let (k, stride) = (self.all.columns(), self.table.stride);
        let positions = &floats(&self.table.lines)[start..];
        let strip = Strip { positions, stride, padded: taken.next_multiple_of(PanelLine::LEN) };
        let weights = Weights { counts: floats(&self.scratch.counts), spreads: floats(&self.scratch.spreads) };
        let reactions = floats_mut(&mut self.scratch.reactions);
        let mut row = rows.start;
        while row + TARGETS <= rows.end {
            let targets = std::array::from_fn(|at| self.all.row(row + at));
            let found = repel::<V, K, TARGETS, MUTUAL, WEIGHTED>(targets, &strip, weights, reactions);
            for (at, totals) in found.iter().enumerate() {
                add_row(self.buffer, stride, row + at, &totals[..k], self.scale);
            }
            row += TARGETS;
        }
        for row in row..rows.end {
            let [totals] = repel::<V, K, 1, MUTUAL, WEIGHTED>([self.all.row(row)], &strip, weights, reactions);
            add_row(self.buffer, stride, row, &totals[..k], self.scale);
        }
        if MUTUAL {
            for (axis, reactions) in reactions.chunks_exact_mut(STRIP_POINTS).enumerate() {
                let sums = &mut self.buffer[axis * stride + start..][..taken];
                for (sum, reaction) in sums.iter_mut().zip(&reactions[..taken]) {
                    *sum += to_fixed_point(*reaction, self.scale);
                }
                reactions.fill(0.0);
            }
        }
    }
}

#[inline(always)]
fn add_row(buffer: &mut [i64], stride: usize, row: usize, totals: &[f32], scale: f64) {
    for (axis, &total) in totals.iter().enumerate() {
        buffer[axis * stride + row] += to_fixed_point(total, scale);
    }
}

/// Return the integer nearest to `value · scale`, which must be less than `2^51`.
#[inline(always)]
fn to_fixed_point(value: f32, scale: f64) -> i64 {
    // A number of this size has its ones in the last bits. Not every SIMD level has a conversion instruction.
    const UNITS: f64 = (3u64 << 51) as f64;
    (f64::from(value) * scale + UNITS).to_bits().wrapping_sub(UNITS.to_bits()) as i64
}
