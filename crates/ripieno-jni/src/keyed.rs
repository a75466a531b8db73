//! Regroup for Java: takes rows as columns, and returns the rows that this rank owns as columns.

use crate::communicator::{at, element, op};
use crate::errors::{MethodError, with_exceptions};
use crate::memory::DirectRegion;
use jni::EnvUnowned;
use jni::objects::{JClass, JLongArray};
use jni::sys::{jint, jlong};
use ripieno::keyed::{Aggregation, KeyColumn, KeyedBlock, KeyedCombine, KeyedSchema, OwnedKeys, Regroup, Strings};
use ripieno_kernels::Threads;
use std::num::NonZeroUsize;

/// The number of `Combine.CONCAT` in Java.
const CONCAT: jint = -1;

/// Send rows to the owners of their keys, and return the address of the block that this rank owns. Keys are int64, or
/// strings that `offsets` delimits in UTF-8 bytes.
#[unsafe(no_mangle)]
#[allow(clippy::too_many_arguments)]
extern "system" fn Java_org_ripieno_Native_regroup<'local>(
    env: EnvUnowned<'local>,
    _class: JClass<'local>,
    communicator: jlong,
    offsets: jlong,
    offsets_bytes: jlong,
    keys: jlong,
    keys_bytes: jlong,
    of: jint,
    width: jint,
    values: jlong,
    values_bytes: jlong,
    combine: jint,
    threads: jint,
) -> jlong {
    with_exceptions(env, |_| {
        // SAFETY: Java passes the address of a live communicator.
        let communicator = unsafe { at(communicator) };
        let (offsets, keys) = (DirectRegion::new(offsets, offsets_bytes), DirectRegion::new(keys, keys_bytes));
        // SAFETY: Java holds the buffers until this returns, and has filled them with elements of these types.
        let (columns, values) = unsafe {
            let columns = match offsets.len() {
                0 => KeyColumn::Int64(keys.elements::<i64>()),
                _ => KeyColumn::Strings(
                    Strings::new(offsets.elements::<i64>(), keys.read())
                        .map_err(|bad| MethodError::Input(bad.to_string()))?,
                ),
            };
            (columns, DirectRegion::new(values, values_bytes).read())
        };
        let combine = if combine == CONCAT { KeyedCombine::Concat } else { KeyedCombine::Op(op(combine)) };
        let schema =
            KeyedSchema { keys: columns.kind(), element: element(of), width: width as usize, combine, label: 0 };
        let threads = NonZeroUsize::new(threads as usize).unwrap_or(NonZeroUsize::MIN);
        let mut rows = Aggregation::new(schema, communicator.world_size(), None)?;
        rows.add(columns, values, None, &Threads::new(threads.get()))?;
        let mut blocks = Vec::new();
        let options = Regroup { threads, ..Regroup::new(combine) };
        let regrouped = communicator.regroup(rows, &options, &mut |_, block| {
            blocks.push(block);
            Ok(())
        })?;
        Ok(Box::into_raw(Box::new(KeyedBlock::joined(blocks, &regrouped.schema))) as jlong)
    })
}

/// Return the block at an address.
///
/// # Safety
/// `regroup` must have created it, and it must not be freed during `'a`.
unsafe fn block_at<'a>(block: jlong) -> &'a KeyedBlock {
    unsafe { &*(block as *const KeyedBlock) }
}

/// Return the sizes of a block: distinct keys, bytes of string keys, whether keys have row counts, bytes of all values.
#[unsafe(no_mangle)]
extern "system" fn Java_org_ripieno_Native_blockSizes<'local>(
    env: EnvUnowned<'local>,
    _class: JClass<'local>,
    block: jlong,
    sizes: JLongArray<'local>,
) {
    with_exceptions(env, |env| {
        // SAFETY: Java passes the address of a live block.
        let block = unsafe { block_at(block) };
        let string_bytes = match &block.keys {
            OwnedKeys::Int64(_) => 0,
            OwnedKeys::Strings { data, .. } => data.len(),
        };
        let has_counts = jlong::from(block.counts.is_some());
        let key_count = block.keys.view().len() as jlong;
        Ok(sizes.set_region(env, 0, &[key_count, string_bytes as jlong, has_counts, block.values.len() as jlong])?)
    });
}

/// Copy the columns of a block to buffers of these sizes, and free the block.
#[unsafe(no_mangle)]
#[allow(clippy::too_many_arguments)]
extern "system" fn Java_org_ripieno_Native_takeBlock<'local>(
    env: EnvUnowned<'local>,
    _class: JClass<'local>,
    block: jlong,
    offsets: jlong,
    offsets_bytes: jlong,
    keys: jlong,
    keys_bytes: jlong,
    counts: jlong,
    counts_bytes: jlong,
    values: jlong,
    values_bytes: jlong,
) {
    with_exceptions(env, |_| {
        // SAFETY: Java takes the block from `regroup` once.
        let block = unsafe { Box::from_raw(block as *mut KeyedBlock) };
        // SAFETY: Java holds the buffers until this returns.
        unsafe {
            let [offsets, keys, counts, values] =
                [(offsets, offsets_bytes), (keys, keys_bytes), (counts, counts_bytes), (values, values_bytes)]
                    .map(|(at, bytes)| DirectRegion::new(at, bytes));
            match &block.keys {
                OwnedKeys::Int64(own) => keys.elements_mut().copy_from_slice(own),
                OwnedKeys::Strings { offsets: ends, data } => {
                    offsets.elements_mut().copy_from_slice(ends);
                    keys.write().copy_from_slice(data);
                }
            }
            if let Some(own) = &block.counts {
                counts.elements_mut().copy_from_slice(own);
            }
            values.write().copy_from_slice(&block.values);
        }
        Ok(())
    });
}
