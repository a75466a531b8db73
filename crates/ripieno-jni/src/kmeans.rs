//! K-means for Java, on rows in native memory.

use crate::communicator::{self, element};
use crate::errors::{MethodError, with_exceptions};
use crate::memory::DirectRegion;
use jni::objects::{JClass, JDoubleArray, JIntArray, JLongArray};
use jni::sys::{jdouble, jint, jlong};
use jni::{Env, EnvUnowned};
use ripieno::kmeans::{self, Clustering, InitialCentroids, KMeansOptions};
use ripieno::{Communicator, Element, Error};
use ripieno_kernels::{Centroid, Matrix, Threads};

/// Rows of one element type, append-only.
struct JavaRows {
    values: RowValues,
    columns: usize,
}

enum RowValues {
    F32(Vec<f32>),
    F64(Vec<f64>),
}

/// Return the rows at an address.
///
/// # Safety
/// `newRows` must have created them, they must not be freed during `'a`, and only one thread may use them at a time.
unsafe fn rows_at<'a>(rows: jlong) -> &'a mut JavaRows {
    unsafe { &mut *(rows as *mut JavaRows) }
}

/// Create an empty set of rows of this element type.
#[unsafe(no_mangle)]
extern "system" fn Java_org_ripieno_Native_newRows<'local>(
    env: EnvUnowned<'local>,
    _class: JClass<'local>,
    of: jint,
    columns: jint,
) -> jlong {
    with_exceptions(env, |_| {
        let values = match element(of) {
            Element::F32 => RowValues::F32(Vec::new()),
            Element::F64 => RowValues::F64(Vec::new()),
            other => return Err(MethodError::Input(format!("rows of {}: expected float or double", other.name()))),
        };
        Ok(Box::into_raw(Box::new(JavaRows { values, columns: columns as usize })) as jlong)
    })
}

/// Append rows.
#[unsafe(no_mangle)]
extern "system" fn Java_org_ripieno_Native_addRows<'local>(
    env: EnvUnowned<'local>,
    _class: JClass<'local>,
    rows: jlong,
    at: jlong,
    bytes: jlong,
) {
    with_exceptions(env, |_| {
        let region = DirectRegion::new(at, bytes);
        // SAFETY: Java passes the address of live rows; the buffer has elements of the type of the rows.
        unsafe {
            match &mut rows_at(rows).values {
                RowValues::F32(values) => values.extend_from_slice(region.elements()),
                RowValues::F64(values) => values.extend_from_slice(region.elements()),
            }
        }
        Ok(())
    });
}

#[unsafe(no_mangle)]
extern "system" fn Java_org_ripieno_Native_freeRows<'local>(
    env: EnvUnowned<'local>,
    _class: JClass<'local>,
    rows: jlong,
) {
    with_exceptions(env, |_| {
        // SAFETY: Java frees the rows from `newRows` once.
        drop(unsafe { Box::from_raw(rows as *mut JavaRows) });
        Ok(())
    });
}

/// Fit K-means to the rows of all ranks. Write the centroids, the labels, and `[inertia, iteration count]`.
///
/// Without weights, each row has weight 1. Without initial centroids, `init_steps` rounds of k-means|| choose them, or
/// 0 for random rows.
#[unsafe(no_mangle)]
#[allow(clippy::too_many_arguments)]
extern "system" fn Java_org_ripieno_Native_fitKMeans<'local>(
    env: EnvUnowned<'local>,
    _class: JClass<'local>,
    communicator: jlong,
    rows: jlong,
    weights: JDoubleArray<'local>,
    k: jint,
    max_iter: jint,
    tol: jdouble,
    seed: jlong,
    init_steps: jint,
    initial: JDoubleArray<'local>,
    threads: jint,
    centroids: JDoubleArray<'local>,
    labels: JIntArray<'local>,
    totals: JDoubleArray<'local>,
) {
    with_exceptions(env, |env| {
        let (weights, given) = (doubles(env, &weights)?, doubles(env, &initial)?);
        let seed = seed as u64;
        let initial = match (&given, init_steps as usize) {
            (Some(given), _) => InitialCentroids::Given(given),
            (None, 0) => InitialCentroids::Random { seed },
            (None, step_count) => InitialCentroids::Parallel { seed, step_count },
        };
        let options = KMeansOptions { cluster_count: k as usize, max_iter: max_iter as usize, tol, initial };
        // SAFETY: Java passes the addresses of a live communicator and of live rows.
        let (communicator, rows) = unsafe { (communicator::at(communicator), rows_at(rows)) };
        let (weights, threads) = (weights.as_deref(), Threads::new(threads as usize));
        let fitted = match &rows.values {
            RowValues::F32(values) => fit_rows(communicator, values, rows.columns, weights, &options, &threads)?,
            RowValues::F64(values) => fit_rows(communicator, values, rows.columns, weights, &options, &threads)?,
        };
        centroids.set_region(env, 0, &fitted.centroids)?;
        labels.set_region(env, 0, &fitted.labels)?;
        totals.set_region(env, 0, &[fitted.inertia, fitted.iteration_count as f64])?;
        Ok(())
    });
}

/// Return a copy of an array that may be null.
fn doubles(env: &Env<'_>, array: &JDoubleArray<'_>) -> Result<Option<Vec<f64>>, MethodError> {
    if array.is_null() {
        return Ok(None);
    }
    let mut values = vec![0.0; array.len(env)?];
    array.get_region(env, 0, &mut values)?;
    Ok(Some(values))
}

/// Fit K-means, and widen the centroids.
fn fit_rows<C: Centroid>(
    communicator: &Communicator,
    values: &[C],
    columns: usize,
    weights: Option<&[f64]>,
    options: &KMeansOptions<'_>,
    threads: &Threads,
) -> Result<Clustering<f64>, Error> {
    let points = Matrix::new(values, values.len() / columns, columns);
    let Clustering { centroids, labels, inertia, iteration_count } =
        kmeans::fit(communicator, points, weights, options, threads)?;
    let centroids = centroids.into_iter().map(Into::into).collect();
    Ok(Clustering { centroids, labels, inertia, iteration_count })
}

/// Append rows from separate columns. Each column has `count` values of its type, starting at its address.
#[unsafe(no_mangle)]
extern "system" fn Java_org_ripieno_Native_addColumns<'local>(
    env: EnvUnowned<'local>,
    _class: JClass<'local>,
    rows: jlong,
    addresses: JLongArray<'local>,
    types: JIntArray<'local>,
    count: jint,
) {
    with_exceptions(env, |env| {
        let (mut at, mut of) = (vec![0; addresses.len(env)?], vec![0; types.len(env)?]);
        addresses.get_region(env, 0, &mut at)?;
        types.get_region(env, 0, &mut of)?;
        // SAFETY: Java passes the address of live rows.
        let rows = unsafe { rows_at(rows) };
        let columns = at.into_iter().zip(of.into_iter().map(element));
        match &mut rows.values {
            RowValues::F32(values) => interleave(values, columns, count as usize, |value| value as f32),
            RowValues::F64(values) => interleave(values, columns, count as usize, |value| value),
        }
        Ok(())
    });
}

/// Append `count` rows.
fn interleave<T: Copy + Default>(
    values: &mut Vec<T>,
    columns: impl ExactSizeIterator<Item = (jlong, Element)>,
    count: usize,
    convert: impl Fn(f64) -> T + Copy,
) {
    let (begin, width) = (values.len(), columns.len());
    values.resize(begin + count * width, T::default());
    for (column, (at, element)) in columns.enumerate() {
        let into = values[begin..].iter_mut().skip(column).step_by(width);
        let bytes = DirectRegion::new(at, (count * element.size_bytes()) as jlong);
        // SAFETY: Java holds the column, which has `count` values of this type, until this returns.
        unsafe {
            match element {
                Element::I8 => fill(into, bytes.elements::<i8>(), |value| convert(f64::from(value))),
                Element::I16 => fill(into, bytes.elements::<i16>(), |value| convert(f64::from(value))),
                Element::I32 => fill(into, bytes.elements::<i32>(), |value| convert(f64::from(value))),
                Element::I64 => fill(into, bytes.elements::<i64>(), |value| convert(value as f64)),
                Element::F32 => fill(into, bytes.elements::<f32>(), |value| convert(f64::from(value))),
                _ => fill(into, bytes.elements::<f64>(), convert),
            }
        }
    }
}

fn fill<'a, S: Copy, T: 'a>(into: impl Iterator<Item = &'a mut T>, from: &[S], convert: impl Fn(S) -> T) {
    into.zip(from).for_each(|(into, &value)| *into = convert(value));
}
