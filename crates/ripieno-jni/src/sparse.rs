//! Sparse reductions for Java.

use crate::communicator::{at, element, op};
use crate::errors::with_exceptions;
use crate::memory::DirectRegion;
use crate::rendezvous::text;
use jni::EnvUnowned;
use jni::objects::{JClass, JString};
use jni::sys::{jboolean, jdouble, jint, jlong};
use ripieno::ElementShape;
use ripieno::sparse::{SparseOptions, SparseReduce, SparseSchema};

/// The value of a size that is not set. Java rejects other negative sizes.
const UNSET: jlong = -1;

/// Configure sparse reductions over int64 indices.
#[unsafe(no_mangle)]
#[allow(clippy::too_many_arguments)]
extern "system" fn Java_org_ripieno_Native_sparse<'local>(
    env: EnvUnowned<'local>,
    _class: JClass<'local>,
    communicator: jlong,
    out_indices: jlong,
    out_bytes: jlong,
    in_indices: jlong,
    in_bytes: jlong,
    size: jlong,
    degrees: JString<'local>,
    missing_is_zero: jboolean,
    dense_above: jdouble,
) -> jlong {
    with_exceptions(env, |env| {
        let degrees = text(env, &degrees)?;
        // SAFETY: Java passes the address of a live communicator.
        let communicator = unsafe { at(communicator) };
        let size = (size != UNSET).then_some(size as u64);
        let options =
            SparseOptions::parse(size, degrees.as_deref(), missing_is_zero, dense_above, communicator.world_size())?;
        // SAFETY: Java holds the buffers until this returns, and has filled them with 64-bit integers.
        let (out_indices, in_indices) = unsafe {
            (
                DirectRegion::new(out_indices, out_bytes).elements::<i64>(),
                DirectRegion::new(in_indices, in_bytes).elements::<i64>(),
            )
        };
        let reduction = communicator.sparse(out_indices, in_indices, &options)?;
        Ok(Box::into_raw(Box::new(reduction)) as jlong)
    })
}

/// Fill `into` with a row per in-index, reduced from `values`, which have a row per out-index.
#[unsafe(no_mangle)]
#[allow(clippy::too_many_arguments)]
extern "system" fn Java_org_ripieno_Native_sparseReduce<'local>(
    env: EnvUnowned<'local>,
    _class: JClass<'local>,
    reduction: jlong,
    of: jint,
    width: jint,
    operation: jint,
    values: jlong,
    values_bytes: jlong,
    into: jlong,
    into_bytes: jlong,
) {
    with_exceptions(env, |_| {
        // SAFETY: `sparse` created it, and it is freed when no thread can call it any more.
        let reduction = unsafe { &*(reduction as *const SparseReduce) };
        let schema =
            SparseSchema { element: element(of), width: width as usize, op: op(operation), row: ElementShape::Vector };
        // SAFETY: Java holds the buffers until this returns.
        let (values, into) =
            unsafe { (DirectRegion::new(values, values_bytes).read(), DirectRegion::new(into, into_bytes).write()) };
        Ok(reduction.reduce(values, into, schema)?)
    });
}

#[unsafe(no_mangle)]
extern "system" fn Java_org_ripieno_Native_sparseDegrees<'local>(
    env: EnvUnowned<'local>,
    _class: JClass<'local>,
    reduction: jlong,
) -> JString<'local> {
    with_exceptions(env, |env| {
        // SAFETY: As above.
        let reduction = unsafe { &*(reduction as *const SparseReduce) };
        Ok(env.new_string(reduction.degrees().to_string())?)
    })
}

#[unsafe(no_mangle)]
extern "system" fn Java_org_ripieno_Native_freeSparse<'local>(
    env: EnvUnowned<'local>,
    _class: JClass<'local>,
    reduction: jlong,
) {
    with_exceptions(env, |_| {
        // SAFETY: Java frees the reduction from `sparse` once.
        drop(unsafe { Box::from_raw(reduction as *mut SparseReduce) });
        Ok(())
    });
}
