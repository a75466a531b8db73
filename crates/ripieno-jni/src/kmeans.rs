//! K-means kernels for Java, on rows in native memory.

use crate::communicator::element;
use crate::errors::{MethodError, with_exceptions};
use crate::memory::DirectRegion;
use jni::EnvUnowned;
use jni::objects::{JClass, JIntArray, JLongArray};
use jni::sys::{jdouble, jint, jlong};
use ripieno::Element;
use ripieno_kernels::{
    Centroid, DistanceBounds, Matrix, PassOutput, Point, Threads, assign_accumulate_within, first_non_finite, recenter,
    update_min_distances,
};

/// Rows of one element type, append-only, and the distance bounds carried between passes.
struct JavaRows {
    values: RowValues,
    columns: usize,
    bounds: DistanceBounds,
}

enum RowValues {
    F32(Vec<f32>),
    F64(Vec<f64>),
}

/// Bytes per coordinate that the bounds of a row may use, equal to the limit of the Python estimator.
const BOUND_BYTES_PER_VALUE: usize = 4;

/// Call a function on rows of either type.
macro_rules! for_values {
    ($rows:expr, $values:ident => $body:expr) => {
        match &$rows.values {
            RowValues::F32($values) => $body,
            RowValues::F64($values) => $body,
        }
    };
}

/// Return the rows at an address.
///
/// # Safety
/// `newRows` must have created them, they must not be freed during `'a`, and only one thread may use them at a time.
unsafe fn rows_at<'a>(rows: jlong) -> &'a mut JavaRows {
    unsafe { &mut *(rows as *mut JavaRows) }
}

fn matrix<T: Point>(values: &[T], columns: usize) -> Matrix<'_, T> {
    Matrix::new(values, values.len() / columns, columns)
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
        Ok(Box::into_raw(Box::new(JavaRows { values, columns: columns as usize, bounds: DistanceBounds::new(0) }))
            as jlong)
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

/// Return the position, row · columns + column, of the first value that is not finite, or -1.
#[unsafe(no_mangle)]
extern "system" fn Java_org_ripieno_Native_firstNonFinite<'local>(
    env: EnvUnowned<'local>,
    _class: JClass<'local>,
    rows: jlong,
    threads: jint,
) -> jlong {
    with_exceptions(env, |_| {
        // SAFETY: Java passes the address of live rows.
        let rows = unsafe { rows_at(rows) };
        let threads = Threads::new(threads as usize);
        let found = for_values!(rows, values => first_non_finite(matrix(values, rows.columns), &threads));
        Ok(found.map_or(-1, |(row, column)| (row * rows.columns + column) as jlong))
    })
}

/// Copy the row with this number to a buffer.
#[unsafe(no_mangle)]
extern "system" fn Java_org_ripieno_Native_takeRow<'local>(
    env: EnvUnowned<'local>,
    _class: JClass<'local>,
    rows: jlong,
    number: jlong,
    at: jlong,
    bytes: jlong,
) {
    with_exceptions(env, |_| {
        // SAFETY: Java passes the address of live rows; the buffer has the size of a row.
        let (rows, into) = unsafe { (rows_at(rows), DirectRegion::new(at, bytes)) };
        let number = number as usize;
        // SAFETY: The buffer has the element type of the rows.
        unsafe {
            match &rows.values {
                RowValues::F32(values) => into.elements_mut().copy_from_slice(matrix(values, rows.columns).row(number)),
                RowValues::F64(values) => into.elements_mut().copy_from_slice(matrix(values, rows.columns).row(number)),
            }
        }
        Ok(())
    });
}

/// Sum the rows per column, or their squared differences from `mean` if it is not empty, in the order of the rows.
#[unsafe(no_mangle)]
extern "system" fn Java_org_ripieno_Native_columnSums<'local>(
    env: EnvUnowned<'local>,
    _class: JClass<'local>,
    rows: jlong,
    mean: jlong,
    mean_bytes: jlong,
    sums: jlong,
    sums_bytes: jlong,
) {
    with_exceptions(env, |_| {
        // SAFETY: Java passes the address of live rows; `sums` and a present mean have a double per column.
        let (rows, mean, sums) = unsafe {
            (
                rows_at(rows),
                DirectRegion::new(mean, mean_bytes).elements::<f64>(),
                DirectRegion::new(sums, sums_bytes).elements_mut::<f64>(),
            )
        };
        for_values!(rows, values => add_columns(values, mean, sums));
        Ok(())
    });
}

fn add_columns<T: Copy + Into<f64>>(values: &[T], mean: &[f64], sums: &mut [f64]) {
    for row in values.chunks_exact(sums.len()) {
        for (column, (sum, &value)) in sums.iter_mut().zip(row).enumerate() {
            let value: f64 = value.into();
            *sum += mean.get(column).map_or(value, |mean| (value - mean) * (value - mean));
        }
    }
}

/// Run a pass: write labels and squared distances per row, sums and weights per cluster, and return the inertia.
#[unsafe(no_mangle)]
#[allow(clippy::too_many_arguments)]
extern "system" fn Java_org_ripieno_Native_pass<'local>(
    env: EnvUnowned<'local>,
    _class: JClass<'local>,
    rows: jlong,
    centroids: jlong,
    centroids_bytes: jlong,
    labels: jlong,
    labels_bytes: jlong,
    distances: jlong,
    distances_bytes: jlong,
    sums: jlong,
    sums_bytes: jlong,
    weights: jlong,
    weights_bytes: jlong,
    threads: jint,
) -> jdouble {
    with_exceptions(env, |_| {
        // SAFETY: Java passes the address of live rows; labels are int, distances, sums and weights double.
        let (rows, pass) = unsafe {
            let pass = PassOutput {
                labels: DirectRegion::new(labels, labels_bytes).elements_mut(),
                squared_distances: Some(DirectRegion::new(distances, distances_bytes).elements_mut()),
                sums: DirectRegion::new(sums, sums_bytes).elements_mut(),
                weight_sums: DirectRegion::new(weights, weights_bytes).elements_mut(),
            };
            (rows_at(rows), pass)
        };
        let (region, threads) = (DirectRegion::new(centroids, centroids_bytes), Threads::new(threads as usize));
        let JavaRows { values, columns, bounds } = rows;
        let inertia = match values {
            RowValues::F32(values) => pass_over(values, *columns, region, pass, bounds, &threads),
            RowValues::F64(values) => pass_over(values, *columns, region, pass, bounds, &threads),
        };
        Ok(inertia)
    })
}

fn pass_over<C: Centroid>(
    values: &[C],
    columns: usize,
    centroids: DirectRegion,
    pass: PassOutput<'_>,
    bounds: &mut DistanceBounds,
    threads: &Threads,
) -> f64 {
    // SAFETY: The centroids have the element type of the rows.
    let centroids = unsafe { centroids.elements::<C>() };
    assign_accumulate_within(matrix(values, columns), matrix(centroids, columns), None, pass, bounds, threads)
}

/// Discard the distance bounds, because the rows or the series of centroids change.
#[unsafe(no_mangle)]
extern "system" fn Java_org_ripieno_Native_resetBounds<'local>(
    env: EnvUnowned<'local>,
    _class: JClass<'local>,
    rows: jlong,
) {
    with_exceptions(env, |_| {
        // SAFETY: Java passes the address of live rows.
        let rows = unsafe { rows_at(rows) };
        let value_count = for_values!(rows, values => values.len());
        rows.bounds = DistanceBounds::new(BOUND_BYTES_PER_VALUE * value_count);
        Ok(())
    });
}

/// Run a step of seeding: lower the squared distances of the rows with some new centers.
#[unsafe(no_mangle)]
#[allow(clippy::too_many_arguments)]
extern "system" fn Java_org_ripieno_Native_lowerDistances<'local>(
    env: EnvUnowned<'local>,
    _class: JClass<'local>,
    rows: jlong,
    centers: jlong,
    centers_bytes: jlong,
    first_number: jint,
    distances: jlong,
    distances_bytes: jlong,
    closest: jlong,
    closest_bytes: jlong,
    threads: jint,
) {
    with_exceptions(env, |_| {
        // SAFETY: Java passes the address of live rows; distances are double, numbers int.
        let (rows, distances, closest) = unsafe {
            let distances = DirectRegion::new(distances, distances_bytes).elements_mut::<f64>();
            (rows_at(rows), distances, DirectRegion::new(closest, closest_bytes).elements_mut::<i32>())
        };
        let threads = Threads::new(threads as usize);
        let centers = DirectRegion::new(centers, centers_bytes);
        // SAFETY: The centers have the element type of the rows.
        unsafe {
            for_values!(rows, values => update_min_distances(
                matrix(values, rows.columns),
                matrix(centers.elements(), rows.columns),
                first_number,
                distances,
                Some(closest),
                &threads,
            ));
        }
        Ok(())
    });
}

/// Move centroids to the means of their rows. Return the sum of the squared shifts.
#[unsafe(no_mangle)]
#[allow(clippy::too_many_arguments)]
extern "system" fn Java_org_ripieno_Native_recenter<'local>(
    env: EnvUnowned<'local>,
    _class: JClass<'local>,
    of: jint,
    centroids: jlong,
    centroids_bytes: jlong,
    sums: jlong,
    sums_bytes: jlong,
    weights: jlong,
    weights_bytes: jlong,
) -> jdouble {
    with_exceptions(env, |_| {
        let centroids = DirectRegion::new(centroids, centroids_bytes);
        // SAFETY: Java holds the buffers; sums and weights are double, centroids have the given type.
        let moved = unsafe {
            let (sums, weights) =
                (DirectRegion::new(sums, sums_bytes).elements(), DirectRegion::new(weights, weights_bytes).elements());
            match element(of) {
                Element::F32 => recenter::<f32>(centroids.elements_mut(), sums, weights),
                _ => recenter::<f64>(centroids.elements_mut(), sums, weights),
            }
        };
        Ok(moved.squared_shift)
    })
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
