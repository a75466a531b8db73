//! Selection of the groups of centroids nearest to a row, by the groups' means.
//!
//! Rows of bytes are compared with the means in bytes, exactly in integers. With `m = 2(q + 64)` and `q` of seven bits
//! and a sign, the nearest mean has the greatest `x·q − Σ(q + 64)²`, for any instructions that compute it. Other rows
//! are compared in f32.
//!
//! Cost of a row: `g·d` for `g` groups, and `g` comparisons.

use super::bytes::{BytePanels, MAX_COLUMNS, STEP};
use crate::panels::{PanelLine, Panels, PointTransform, floats, floats_mut};
use crate::simd::{self, ByteJob, ByteSums, Vector, VectorJob};
use crate::{Centroid, Matrix, Point, Threads};

/// Number of candidate groups per selected group before the candidates are pruned.
const CANDIDATES_PER_PROBE: usize = 3;
/// The offset of `q`, see above.
const OFFSET: f64 = 64.0;

/// The means of groups, prepared for comparisons.
pub(super) enum Means<C> {
    Floats { panels: Panels, transform: PointTransform<C>, count: usize },
    Bytes { panels: BytePanels, offsets: Vec<PanelLine>, count: usize },
}

impl<C: Centroid> Means<C> {
    /// Prepare means for rows of type `P`.
    pub(super) fn new<P: Point<Centroid = C>>(means: Matrix<C>, threads: &Threads) -> Means<C> {
        let (count, columns) = (means.rows(), means.columns());
        if P::as_bytes(&[]).is_none() || !threads.simd().has_bytes() || columns > MAX_COLUMNS {
            let (panels, transform) = Panels::pack_all(means, threads.simd().panel_width(), threads);
            return Means::Floats { panels, transform, count };
        }
        let mut panels = BytePanels::new(count, columns, threads);
        let mut offsets = vec![f32::NEG_INFINITY; panels.count() * panels.width()];
        for (row, offset) in offsets.iter_mut().enumerate().take(count) {
            let mut squares = 0;
            for (column, &value) in means.row(row).iter().enumerate() {
                let half = (0.5 * Into::<f64>::into(value)).round().clamp(0.0, 2.0 * OFFSET - 1.0);
                panels.put(row, column, (half - OFFSET) as i8);
                squares += (half * half) as i32;
            }
            *offset = -(squares as f32);
        }
        let offsets = offsets.chunks_exact(PanelLine::LEN).map(|each| PanelLine::from_fn(|lane| each[lane])).collect();
        Means::Bytes { panels, offsets, count }
    }

    fn count(&self) -> usize {
        match self {
            Means::Floats { count, .. } | Means::Bytes { count, .. } => *count,
        }
    }
}

/// Buffers of a thread for selecting groups for a block of rows.
#[derive(Default)]
pub(super) struct GroupChoiceScratch {
    /// The rows that probe each group. A block has at most 2¹⁶ rows.
    pub probing: Vec<Vec<u16>>,
    /// A tile of rows in f32 or in bytes, its scores, and the candidate groups of a row.
    floats: Vec<f32>,
    bytes: Vec<u8>,
    scores: Vec<PanelLine>,
    keys: Vec<u64>,
}

impl GroupChoiceScratch {
    /// Select the `probes` groups with the nearest means for each row. Ties go to the first group.
    pub(super) fn choose<P: Point>(
        &mut self,
        means: &Means<P::Centroid>,
        points: Matrix<P>,
        probes: usize,
        threads: &Threads,
    ) {
        self.probing.resize(means.count(), Vec::new());
        self.probing.iter_mut().for_each(Vec::clear);
        match means {
            Means::Floats { panels, transform, count } => {
                threads.simd().run(FloatSelection { panels, transform, count: *count, points, probes, choice: self });
            }
            Means::Bytes { panels, offsets, count } => {
                let bytes = P::as_bytes(points.values()).expect("bytes, for which the means were made");
                threads.simd().run_bytes(ByteSelection { panels, offsets, count: *count, bytes, probes, choice: self });
            }
        }
    }

    /// Select the groups of row `row` by its scores in `lines` lines, starting with `first`.
    #[inline(always)]
    fn take(&mut self, row: usize, first: usize, lines: usize, count: usize, probes: usize) {
        let GroupChoiceScratch { probing, scores, keys, .. } = self;
        keys.clear();
        let mut limit = f32::NEG_INFINITY;
        let scores = &floats(&scores[first..first + lines])[..count];
        for (at, scores) in scores.chunks(PanelLine::LEN).enumerate() {
            let greatest = scores.iter().fold(f32::NEG_INFINITY, |max, &score| if score > max { score } else { max });
            // Later groups lose ties.
            if greatest <= limit {
                continue;
            }
            for (lane, &score) in scores.iter().enumerate() {
                if score > limit {
                    keys.push(descending(score.to_bits()) << 32 | (at * PanelLine::LEN + lane) as u64);
                }
            }
            if keys.len() > CANDIDATES_PER_PROBE * probes {
                keys.select_nth_unstable(probes - 1);
                keys.truncate(probes);
                limit = f32::from_bits(descending((keys[probes - 1] >> 32) as u32) as u32);
            }
        }
        if keys.len() > probes {
            keys.select_nth_unstable(probes - 1);
            keys.truncate(probes);
        }
        keys.iter().for_each(|&key| probing[key as u32 as usize].push(row as u16));
    }
}

/// Map the bits of a score to a number that decreases with the score. The mapping is its own inverse.
#[inline(always)]
fn descending(bits: u32) -> u64 {
    u64::from(if bits >> 31 == 0 { !bits & 0x7fff_ffff } else { bits })
}

/// Selection by scores in f32.
struct FloatSelection<'a, P: Point> {
    panels: &'a Panels,
    transform: &'a PointTransform<P::Centroid>,
    count: usize,
    points: Matrix<'a, P>,
    probes: usize,
    choice: &'a mut GroupChoiceScratch,
}

impl<P: Point> VectorJob for FloatSelection<'_, P> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector, const ROWS: usize, const VECTORS: usize>(self) {
        let FloatSelection { panels, transform, count, points, probes, choice } = self;
        let (columns, width) = (points.columns(), panels.width());
        let row_lines = panels.count() * width / PanelLine::LEN;
        choice.floats.resize(ROWS * columns, 0.0);
        choice.scores.resize(ROWS * row_lines, PanelLine::default());
        for first in (0..points.rows()).step_by(ROWS) {
            let rows = points.row_range(first, ROWS.min(points.rows() - first));
            for (row, out) in choice.floats.chunks_exact_mut(columns).take(rows.rows()).enumerate() {
                transform.apply(rows.row(row), out);
            }
            for panel in 0..panels.count() {
                let scores = simd::scores::<V, ROWS, VECTORS>(&choice.floats, panels, panel);
                store_scores(&scores, panel, row_lines, &mut choice.scores);
            }
            (0..rows.rows()).for_each(|row| choice.take(first + row, row * row_lines, row_lines, count, probes));
        }
    }
}

/// Selection by scores of bytes.
struct ByteSelection<'a> {
    panels: &'a BytePanels,
    offsets: &'a [PanelLine],
    count: usize,
    bytes: &'a [u8],
    probes: usize,
    choice: &'a mut GroupChoiceScratch,
}

impl ByteJob for ByteSelection<'_> {
    type Output = ();

    #[inline(always)]
    fn run<B: ByteSums, const ROWS: usize, const VECTORS: usize>(self) {
        let ByteSelection { panels, offsets, count, bytes, probes, choice } = self;
        let (columns, width) = (panels.columns(), panels.width());
        assert_eq!(width, B::Floats::LANES * VECTORS, "the panels are packed for this level");
        let (row_bytes, row_lines) = (columns.next_multiple_of(STEP), panels.count() * width / PanelLine::LEN);
        choice.bytes.clear();
        choice.bytes.resize(ROWS * row_bytes, 0);
        choice.scores.resize(ROWS * row_lines, PanelLine::default());
        for (tile, rows) in bytes.chunks(ROWS * columns).enumerate() {
            for (to, from) in choice.bytes.chunks_exact_mut(row_bytes).zip(rows.chunks_exact(columns)) {
                to[..columns].copy_from_slice(from);
            }
            for panel in 0..panels.count() {
                let sums = panels.products::<B, ROWS, VECTORS>(&choice.bytes, panel);
                let offsets = &floats(offsets)[panel * width..(panel + 1) * width];
                let one = B::Floats::splat(1.0);
                let scores: [[B::Floats; VECTORS]; ROWS] = std::array::from_fn(|row| {
                    std::array::from_fn(|vector| {
                        // SAFETY: a panel has VECTORS vectors of offsets, which are aligned.
                        let offset = unsafe { B::Floats::load(offsets.as_ptr().add(vector * B::Floats::LANES)) };
                        sums[row][vector].to_floats().multiply_add(one, offset)
                    })
                });
                store_scores(&scores, panel, row_lines, &mut choice.scores);
            }
            let rows = 0..rows.len() / columns;
            rows.for_each(|row| choice.take(tile * ROWS + row, row * row_lines, row_lines, count, probes));
        }
    }
}

/// Store the scores of a tile and a panel; each row has `row_lines` lines.
#[inline(always)]
fn store_scores<V: Vector, const ROWS: usize, const VECTORS: usize>(
    scores: &[[V; VECTORS]; ROWS],
    panel: usize,
    row_lines: usize,
    to: &mut [PanelLine],
) {
    for (row, scores) in scores.iter().enumerate() {
        let to = &mut floats_mut(&mut to[row * row_lines..(row + 1) * row_lines])[panel * VECTORS * V::LANES..];
        assert!(to.len() >= VECTORS * V::LANES, "a place for each score");
        for (vector, score) in scores.iter().enumerate() {
            // SAFETY: the target is large enough, and panels start at multiples of a vector, in aligned lines.
            unsafe { score.store(to.as_mut_ptr().add(vector * V::LANES)) };
        }
    }
}
