//! A borrowed row-major matrix, and the number types that points and centroids may have.

/// `rows × columns` values, row after row without gaps.
#[derive(Clone, Copy, Debug)]
pub struct Matrix<'a, T> {
    values: &'a [T],
    rows: usize,
    columns: usize,
}

impl<'a, T> Matrix<'a, T> {
    /// Views `values` as `rows × columns`.
    ///
    /// # Panics
    /// If the length is not `rows * columns`, or `columns` is zero.
    pub fn new(values: &'a [T], rows: usize, columns: usize) -> Self {
        assert!(columns > 0, "a matrix has at least one column");
        assert_eq!(values.len(), rows * columns, "{rows} x {columns} values were announced");
        Matrix { values, rows, columns }
    }

    /// The number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// The number of columns, at least one.
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// All values, row after row.
    pub fn values(&self) -> &'a [T] {
        self.values
    }

    /// Row `index`.
    pub fn row(&self, index: usize) -> &'a [T] {
        &self.values[index * self.columns..(index + 1) * self.columns]
    }

    /// The `count` rows from `first` on.
    pub fn row_range(&self, first: usize, count: usize) -> Matrix<'a, T> {
        let values = &self.values[first * self.columns..(first + count) * self.columns];
        Matrix { values, rows: count, columns: self.columns }
    }
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for u8 {}
    impl Sealed for f32 {}
    impl Sealed for f64 {}
}

/// A coordinate of a point: `u8`, `f32` or `f64`.
pub trait Point: sealed::Sealed + Copy + Send + Sync + Into<f64> + 'static {
    /// The type of the centroids of such points: `f64` for `f64`, otherwise `f32`.
    type Centroid: Centroid;

    /// Whether this coordinate is neither infinite nor NaN.
    fn is_finite(self) -> bool;
}

/// A coordinate of a centroid: `f32` or `f64`.
pub trait Centroid: sealed::Sealed + Copy + Send + Sync + Into<f64> + Default + 'static {
    /// The nearest value of this type.
    fn from_f64(value: f64) -> Self;
}

impl Point for u8 {
    type Centroid = f32;

    fn is_finite(self) -> bool {
        true
    }
}

impl Point for f32 {
    type Centroid = f32;

    fn is_finite(self) -> bool {
        f32::is_finite(self)
    }
}

impl Point for f64 {
    type Centroid = f64;

    fn is_finite(self) -> bool {
        f64::is_finite(self)
    }
}

impl Centroid for f32 {
    fn from_f64(value: f64) -> Self {
        value as f32
    }
}

impl Centroid for f64 {
    fn from_f64(value: f64) -> Self {
        value
    }
}
