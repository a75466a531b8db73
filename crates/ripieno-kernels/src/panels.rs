//! Centroids in the layout for register tiles: in f32, near the origin, side by side in panels.
//!
//! Points and centroids are shifted and scaled before they are rounded to f32. The shift removes a common offset, which
//! would otherwise cost precision in the products. The scale, a power of two, keeps the squares in range.
//! Cost: `2·k·d`, once per pass.

use crate::simd::FEW_COLUMNS;
use crate::threads::Threads;
use crate::{Centroid, Matrix, Point};

/// Sixteen f32 on one cache line.
#[derive(Clone, Copy, Default)]
#[repr(align(64))]
pub(crate) struct PanelLine([f32; PanelLine::LEN]);

impl PanelLine {
    /// Number of values in a line.
    pub(crate) const LEN: usize = 16;

    pub(crate) fn from_fn(value: impl FnMut(usize) -> f32) -> PanelLine {
        PanelLine(std::array::from_fn(value))
    }

    pub(crate) fn values(&self) -> &[f32; PanelLine::LEN] {
        &self.0
    }

    pub(crate) fn as_ptr(&self) -> *const f32 {
        self.0.as_ptr()
    }

    pub(crate) fn as_mut_ptr(&mut self) -> *mut f32 {
        self.0.as_mut_ptr()
    }
}

/// View lines as one slice of values.
pub(crate) fn floats(lines: &[PanelLine]) -> &[f32] {
    // SAFETY: lines are arrays of f32 without gaps, and the length covers all of them.
    unsafe { std::slice::from_raw_parts(lines.as_ptr().cast(), lines.len() * PanelLine::LEN) }
}

/// View lines as one mutable slice of values.
pub(crate) fn floats_mut(lines: &mut [PanelLine]) -> &mut [f32] {
    // SAFETY: as above.
    unsafe { std::slice::from_raw_parts_mut(lines.as_mut_ptr().cast(), lines.len() * PanelLine::LEN) }
}

/// Definition of a score.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ScoreForm {
    /// `x·c − ½‖c‖²`.
    Product,
    /// `−‖x − c‖²`.
    Difference,
}

/// Shift and scale of points and centroids before their conversion to f32.
#[derive(Debug)]
pub(crate) struct PointTransform<C> {
    shift: Vec<C>,
    scale: C,
}

impl<C: Centroid> PointTransform<C> {
    /// Return the transformation for `centroids`. Differences of f32 lose no precision to an offset, so this form is
    /// not shifted.
    fn around(centroids: Matrix<C>, form: ScoreForm) -> PointTransform<C> {
        let shift = match form {
            ScoreForm::Difference if C::IS_F32 => vec![C::default(); centroids.columns()],
            _ => approximate_mean(centroids),
        };
        let mut greatest = C::default();
        for row in centroids.values().chunks_exact(centroids.columns()) {
            for (&value, &shift) in row.iter().zip(&shift) {
                greatest = greatest.maximum((value - shift).magnitude());
            }
        }
        PointTransform { shift, scale: C::from_f64(power_of_two_below(greatest.into())) }
    }

    /// Return the factor by which distances grow in the transformation.
    pub(crate) fn scale(&self) -> f64 {
        self.scale.into()
    }

    /// Write `row` in transformed coordinates.
    #[inline(always)]
    pub(crate) fn apply<P: Point<Centroid = C>>(&self, row: &[P], out: &mut [f32]) {
        for ((out, &value), &shift) in out.iter_mut().zip(row).zip(&self.shift) {
            *out = ((value.widen() - shift) * self.scale).to_f32();
        }
    }
}

/// Return the mean of a sample of the rows. Any central point is sufficient.
pub(crate) fn approximate_mean<C: Centroid>(centroids: Matrix<C>) -> Vec<C> {
    const SAMPLE: usize = 128;
    let step = centroids.rows().div_ceil(SAMPLE).max(1);
    let mut sums = vec![0.0; centroids.columns()];
    for row in (0..centroids.rows()).step_by(step) {
        for (sum, &value) in sums.iter_mut().zip(centroids.row(row)) {
            *sum += value.into();
        }
    }
    let count = centroids.rows().div_ceil(step).max(1) as f64;
    sums.into_iter().map(|sum| C::from_f64(sum / count)).collect()
}

/// Return `2^-e` with `e` the exponent of `value`, limited to the range of f32; 1 for zero, infinity and NaN.
fn power_of_two_below(value: f64) -> f64 {
    if value == 0.0 || !value.is_finite() {
        return 1.0;
    }
    let exponent = value.log2().floor().clamp(-100.0, 100.0);
    (-exponent).exp2()
}

/// All centroids, packed.
///
/// A panel holds `width` centroids, coordinate after coordinate. The last panel is padded with centroids that never
/// win. Excluded centroids never win either.
pub(crate) struct Panels {
    lines: Vec<PanelLine>,
    half_norms: Vec<PanelLine>,
    depth: usize,
    width: usize,
    form: ScoreForm,
    max_norm: f64,
}

/// A coordinate of a centroid that makes a difference infinite.
const FAR_COORDINATE: f32 = f32::MAX;

impl Panels {
    /// Pack `centroids`, without repetitions of equal ones. Also return the transformation.
    pub(crate) fn pack<C: Centroid>(centroids: Matrix<C>, threads: &Threads) -> (Panels, PointTransform<C>) {
        Panels::packed(centroids, threads.simd().panel_width(), repeated_rows, threads)
    }

    /// Pack all centroids, including equal ones, in panels of `width`.
    pub(crate) fn pack_all<C: Centroid>(
        centroids: Matrix<C>,
        width: usize,
        threads: &Threads,
    ) -> (Panels, PointTransform<C>) {
        Panels::packed(centroids, width, |_, _| Vec::new(), threads)
    }

    /// Pack the centroids except the ones that `excluded` returns, given the half norms.
    fn packed<C: Centroid>(
        centroids: Matrix<C>,
        width: usize,
        excluded: impl Fn(Matrix<C>, &[f64]) -> Vec<usize>,
        threads: &Threads,
    ) -> (Panels, PointTransform<C>) {
        let depth = centroids.columns();
        let form = if depth <= FEW_COLUMNS { ScoreForm::Difference } else { ScoreForm::Product };
        let transform = PointTransform::around(centroids, form);
        let panel_count = centroids.rows().div_ceil(width);
        let mut panels = Panels {
            lines: vec![PanelLine::default(); panel_count * depth * width / PanelLine::LEN],
            half_norms: vec![PanelLine::default(); panel_count * width / PanelLine::LEN],
            depth,
            width,
            form,
            max_norm: 0.0,
        };

        let mut half_norms = vec![f64::INFINITY; panel_count * width];
        let parts =
            panels.lines.chunks_exact_mut(depth * width / PanelLine::LEN).zip(half_norms.chunks_exact_mut(width));
        threads.for_each(parts.enumerate().collect(), depth * width * 16, || vec![0.0; depth], {
            |row: &mut Vec<f32>, (panel, (lines, half_norms))| {
                pack_panel(centroids, &transform, form, panel * width, row, lines, half_norms);
            }
        });
        let max_half_norm = half_norms[..centroids.rows()].iter().fold(0.0, |a: f64, &b| a.max(b));
        panels.max_norm = (2.0 * max_half_norm).sqrt();
        for index in excluded(centroids, &half_norms) {
            half_norms[index] = f64::INFINITY;
            if form == ScoreForm::Difference {
                let panel = panels.panel_mut(index / width);
                store_coordinates(panel, width, index % width, std::iter::repeat_n(FAR_COORDINATE, depth));
            }
        }
        for (line, half_norms) in panels.half_norms.iter_mut().zip(half_norms.chunks_exact(PanelLine::LEN)) {
            *line = PanelLine::from_fn(|lane| half_norms[lane] as f32);
        }
        (panels, transform)
    }

    /// Return the number of columns.
    pub(crate) fn depth(&self) -> usize {
        self.depth
    }

    /// Return the number of centroids in a panel.
    pub(crate) fn width(&self) -> usize {
        self.width
    }

    /// Return the number of panels.
    pub(crate) fn count(&self) -> usize {
        self.half_norms.len() * PanelLine::LEN / self.width
    }

    /// Return the definition of scores.
    pub(crate) fn form(&self) -> ScoreForm {
        self.form
    }

    /// Return the greatest transformed norm of a centroid.
    pub(crate) fn max_norm(&self) -> f64 {
        self.max_norm
    }

    /// Return the coordinates of panel `index`.
    #[inline(always)]
    pub(crate) fn panel(&self, index: usize) -> &[PanelLine] {
        let count = self.depth * self.width / PanelLine::LEN;
        &self.lines[index * count..(index + 1) * count]
    }

    fn panel_mut(&mut self, index: usize) -> &mut [PanelLine] {
        let count = self.depth * self.width / PanelLine::LEN;
        &mut self.lines[index * count..(index + 1) * count]
    }

    /// Return `½‖c‖²` of the centroids of panel `index`.
    #[inline(always)]
    pub(crate) fn half_norms(&self, index: usize) -> &[PanelLine] {
        let count = self.width / PanelLine::LEN;
        &self.half_norms[index * count..(index + 1) * count]
    }
}

fn pack_panel<C: Centroid>(
    centroids: Matrix<C>,
    transform: &PointTransform<C>,
    form: ScoreForm,
    first: usize,
    row: &mut [f32],
    lines: &mut [PanelLine],
    half_norms: &mut [f64],
) {
    let width = half_norms.len();
    for (lane, half_norm) in half_norms.iter_mut().enumerate() {
        if first + lane >= centroids.rows() {
            if form == ScoreForm::Difference {
                store_coordinates(lines, width, lane, std::iter::repeat_n(FAR_COORDINATE, row.len()));
            }
            continue;
        }
        let centroid = centroids.row(first + lane);
        transform.apply(centroid, row);
        store_coordinates(lines, width, lane, row.iter().copied());
        *half_norm = 0.5 * transform.squared_norm(centroid);
    }
}

/// Write the coordinates of the centroid at `lane` of a panel.
fn store_coordinates(panel: &mut [PanelLine], width: usize, lane: usize, coordinates: impl Iterator<Item = f32>) {
    let lines = panel[lane / PanelLine::LEN..].iter_mut().step_by(width / PanelLine::LEN);
    for (line, coordinate) in lines.zip(coordinates) {
        line.0[lane % PanelLine::LEN] = coordinate;
    }
}

impl<C: Centroid> PointTransform<C> {
    fn squared_norm(&self, centroid: &[C]) -> f64 {
        let mut sums = [0.0; 8];
        for (values, shifts) in centroid.chunks(8).zip(self.shift.chunks(8)) {
            for ((sum, &value), &shift) in sums.iter_mut().zip(values).zip(shifts) {
                let value: f64 = (value.into() - shift.into()) * self.scale.into();
                *sum += value * value;
            }
        }
        sums.iter().sum()
    }
}

/// Return the centroids that equal one with a lower index. Equal centroids must have equal half norms; any such key
/// suffices.
pub(crate) fn repeated_rows<C: Centroid>(centroids: Matrix<C>, half_norms: &[f64]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..centroids.rows()).collect();
    order.sort_unstable_by(|&a, &b| {
        let by_norm = half_norms[a].total_cmp(&half_norms[b]);
        by_norm.then_with(|| compare(centroids.row(a), centroids.row(b))).then(a.cmp(&b))
    });
    let pairs = order.windows(2).filter(|pair| centroids.row(pair[0]) == centroids.row(pair[1]));
    pairs.map(|pair| pair[1]).collect()
}

/// Not inlined: few of the comparisons of a sort get here.
#[inline(never)]
fn compare<C: Centroid>(a: &[C], b: &[C]) -> std::cmp::Ordering {
    // Adding zero maps -0.0 to 0.0, so that equal rows become adjacent.
    let number = |value: C| -> f64 { Into::<f64>::into(value) + 0.0 };
    let mut orders = a.iter().zip(b).map(|(&a, &b)| number(a).total_cmp(&number(b)));
    orders.find(|order| order.is_ne()).unwrap_or(std::cmp::Ordering::Equal)
}
