//! Collectives for Java, in place on direct buffers, blocking or with a handle.

use crate::errors::{MethodError, with_exceptions};
use crate::memory::{DirectRegion, HeldBuffers};
use crate::rendezvous::text;
use jni::objects::{JClass, JIntArray, JLongArray, JObject, JString};
use jni::sys::{jboolean, jint, jlong};
use jni::{Env, EnvUnowned};
use ripieno::{
    BufferMemory, CollectiveTask, Communicator, Element, ElementShape, ElementType, Handle, Op, WholeBuffer,
};

/// The element types, indexed by their numbers in `Values`.
const ELEMENTS: [Element; 6] = [Element::I8, Element::I16, Element::I32, Element::I64, Element::F32, Element::F64];

/// The operations in the order of `Op`.
const OPS: [Op; 7] = [Op::Sum, Op::Prod, Op::Min, Op::Max, Op::And, Op::Or, Op::Xor];

/// Return the communicator at an address.
///
/// # Safety
/// `connect`, `split` or `group` must have created it, and it must not be freed during `'a`. Java frees it when no
/// thread can call it any more.
pub unsafe fn at<'a>(communicator: jlong) -> &'a Communicator {
    unsafe { &*(communicator as *const Communicator) }
}

pub fn element(number: jint) -> Element {
    ELEMENTS[number as usize]
}

pub fn op(number: jint) -> Op {
    OPS[number as usize]
}

/// The arguments of a call apart from its memory, as Java passes them.
struct JavaArguments {
    collective: jint,
    op: jint,
    /// The root, the peer or the distance, depending on the collective.
    number: usize,
    counts: Vec<usize>,
    in_counts: Vec<usize>,
}

impl JavaArguments {
    fn new(
        env: &mut Env<'_>,
        [collective, op]: [jint; 2],
        number: jlong,
        [counts, in_counts]: [&JLongArray<'_>; 2],
    ) -> Result<JavaArguments, MethodError> {
        let (counts, in_counts) = (counts_of(env, counts)?, counts_of(env, in_counts)?);
        Ok(JavaArguments { collective, op, number: number as usize, counts, in_counts })
    }

    /// Return the collective for its number in `CallArguments`, and whether it writes its first buffer.
    fn task(&self, rank: usize) -> (CollectiveTask<'_>, bool) {
        let (root, chunks) = (self.number, &self.counts[..]);
        let op = || op(self.op);
        let task = match self.collective {
            0 => CollectiveTask::Broadcast { root, vector: WholeBuffer },
            1 => CollectiveTask::Reduce { op: op(), root, vector: WholeBuffer },
            2 => CollectiveTask::Allreduce { op: op(), vector: WholeBuffer },
            3 => CollectiveTask::Scan { op: op(), vector: WholeBuffer },
            4 => CollectiveTask::Exscan { op: op(), vector: WholeBuffer },
            5 => CollectiveTask::Allgather { chunks },
            6 => CollectiveTask::ReduceScatter { chunks, op: op() },
            7 => CollectiveTask::Gather { chunks, root },
            8 => CollectiveTask::Scatter { chunks, root },
            9 => CollectiveTask::Alltoall { out_chunks: chunks, in_chunks: &self.in_counts },
            10 => CollectiveTask::Rotate { distance: self.number, out: WholeBuffer, into: WholeBuffer },
            11 => CollectiveTask::PointToPoint { from: rank, to: self.number, vector: WholeBuffer },
            _ => CollectiveTask::PointToPoint { from: self.number, to: rank, vector: WholeBuffer },
        };
        let only_reads = matches!(self.collective, 9..=11);
        (task, !only_reads)
    }
}

fn counts_of(env: &mut Env<'_>, array: &JLongArray<'_>) -> Result<Vec<usize>, MethodError> {
    if array.is_null() {
        return Ok(Vec::new());
    }
    let mut values = vec![0; array.len(env)?];
    array.get_region(env, 0, &mut values)?;
    match values.iter().find(|&&value| value < 0) {
        Some(value) => Err(MethodError::Input(format!("counts={values:?}: {value} is negative"))),
        None => Ok(values.into_iter().map(|value| value as usize).collect()),
    }
}

/// Run a collective until it completes.
#[unsafe(no_mangle)]
#[allow(clippy::too_many_arguments)]
extern "system" fn Java_org_ripieno_Native_run<'local>(
    env: EnvUnowned<'local>,
    _class: JClass<'local>,
    communicator: jlong,
    collective: jint,
    operation: jint,
    number: jlong,
    counts: JLongArray<'local>,
    in_counts: JLongArray<'local>,
    of: jint,
    first: jlong,
    first_bytes: jlong,
    second: jlong,
    second_bytes: jlong,
) {
    with_exceptions(env, |env| {
        let arguments = JavaArguments::new(env, [collective, operation], number, [&counts, &in_counts])?;
        // SAFETY: Java passes the address of a live communicator.
        let communicator = unsafe { at(communicator) };
        let (task, writes_first) = arguments.task(communicator.rank());
        let (first, second) = (DirectRegion::new(first, first_bytes), DirectRegion::new(second, second_bytes));
        // SAFETY: Java holds the buffers until this returns.
        let memory = unsafe {
            let first =
                if writes_first { BufferMemory::Write(first.write()) } else { BufferMemory::Read(first.read()) };
            [first, BufferMemory::Write(second.write())]
        };
        let elements = ElementType { element: element(of), shape: ElementShape::Vector };
        Ok(communicator.run(&task, elements, None, memory)?)
    });
}

/// Start a collective in the background. `owner` is the Java object that owns its memory.
#[unsafe(no_mangle)]
#[allow(clippy::too_many_arguments)]
extern "system" fn Java_org_ripieno_Native_start<'local>(
    env: EnvUnowned<'local>,
    _class: JClass<'local>,
    communicator: jlong,
    collective: jint,
    operation: jint,
    number: jlong,
    counts: JLongArray<'local>,
    in_counts: JLongArray<'local>,
    of: jint,
    first: jlong,
    first_bytes: jlong,
    second: jlong,
    second_bytes: jlong,
    owner: JObject<'local>,
) -> jlong {
    with_exceptions(env, |env| {
        let arguments = JavaArguments::new(env, [collective, operation], number, [&counts, &in_counts])?;
        // SAFETY: Java passes the address of a live communicator.
        let communicator = unsafe { at(communicator) };
        let (task, writes_first) = arguments.task(communicator.rank());
        let (first, second) = (DirectRegion::new(first, first_bytes), DirectRegion::new(second, second_bytes));
        let held = HeldBuffers::new(first, second, writes_first, env.new_global_ref(owner)?);
        let handle = communicator.start(&task, element(of), None, held)?;
        Ok(Box::into_raw(Box::new(handle)) as jlong)
    })
}

/// Return the handle at an address.
///
/// # Safety
/// `start` must have created it, and it must not be freed during `'a`.
unsafe fn handle_at<'a>(handle: jlong) -> &'a Handle<HeldBuffers> {
    unsafe { &*(handle as *const Handle<HeldBuffers>) }
}

#[unsafe(no_mangle)]
extern "system" fn Java_org_ripieno_Native_join<'local>(
    env: EnvUnowned<'local>,
    _class: JClass<'local>,
    handle: jlong,
) {
    // SAFETY: Java passes the address of a live handle.
    with_exceptions(env, |_| Ok(unsafe { handle_at(handle) }.join()?));
}

#[unsafe(no_mangle)]
extern "system" fn Java_org_ripieno_Native_isDone<'local>(
    env: EnvUnowned<'local>,
    _class: JClass<'local>,
    handle: jlong,
) -> jboolean {
    // SAFETY: Java passes the address of a live handle.
    with_exceptions(env, |_| Ok(unsafe { handle_at(handle) }.is_done()))
}

#[unsafe(no_mangle)]
extern "system" fn Java_org_ripieno_Native_freeHandle<'local>(
    env: EnvUnowned<'local>,
    _class: JClass<'local>,
    handle: jlong,
) {
    with_exceptions(env, |_| {
        // SAFETY: Java frees the handle from `start` once.
        drop(unsafe { Box::from_raw(handle as *mut Handle<HeldBuffers>) });
        Ok(())
    });
}

#[unsafe(no_mangle)]
extern "system" fn Java_org_ripieno_Native_barrier<'local>(
    env: EnvUnowned<'local>,
    _class: JClass<'local>,
    communicator: jlong,
) {
    // SAFETY: Java passes the address of a live communicator.
    with_exceptions(env, |_| Ok(unsafe { at(communicator) }.barrier(None)?));
}

/// Split the ranks by color, and return the communicator of this rank's color, or 0 for a negative color.
#[unsafe(no_mangle)]
extern "system" fn Java_org_ripieno_Native_split<'local>(
    env: EnvUnowned<'local>,
    _class: JClass<'local>,
    communicator: jlong,
    color: jint,
    key: jlong,
) -> jlong {
    with_exceptions(env, |_| {
        // SAFETY: Java passes the address of a live communicator.
        let part = unsafe { at(communicator) }.split(u32::try_from(color).ok(), key)?;
        Ok(part.map_or(0, |part| Box::into_raw(Box::new(part)) as jlong))
    })
}

/// Create the communicator of some ranks.
#[unsafe(no_mangle)]
extern "system" fn Java_org_ripieno_Native_group<'local>(
    env: EnvUnowned<'local>,
    _class: JClass<'local>,
    communicator: jlong,
    members: JIntArray<'local>,
) -> jlong {
    with_exceptions(env, |env| {
        let mut ranks = vec![0; members.len(env)?];
        members.get_region(env, 0, &mut ranks)?;
        let members: Option<Vec<usize>> = ranks.iter().map(|&rank| usize::try_from(rank).ok()).collect();
        let Some(members) = members else {
            return Err(MethodError::Input(format!("ranks={ranks:?}: expected ranks of 0 or more")));
        };
        // SAFETY: Java passes the address of a live communicator.
        let group = unsafe { at(communicator) }.group(&members)?;
        Ok(Box::into_raw(Box::new(group)) as jlong)
    })
}

/// Return this rank in a communicator.
#[unsafe(no_mangle)]
extern "system" fn Java_org_ripieno_Native_rank<'local>(
    env: EnvUnowned<'local>,
    _class: JClass<'local>,
    communicator: jlong,
) -> jint {
    // SAFETY: Java passes the address of a live communicator.
    with_exceptions(env, |_| Ok(unsafe { at(communicator) }.rank() as jint))
}

/// Return the number of ranks in a communicator.
#[unsafe(no_mangle)]
extern "system" fn Java_org_ripieno_Native_size<'local>(
    env: EnvUnowned<'local>,
    _class: JClass<'local>,
    communicator: jlong,
) -> jint {
    // SAFETY: Java passes the address of a live communicator.
    with_exceptions(env, |_| Ok(unsafe { at(communicator) }.world_size() as jint))
}

/// Report to the other ranks that this rank cannot continue, with the cause.
#[unsafe(no_mangle)]
extern "system" fn Java_org_ripieno_Native_abort<'local>(
    env: EnvUnowned<'local>,
    _class: JClass<'local>,
    communicator: jlong,
    cause: JString<'local>,
    traceback: JString<'local>,
) {
    with_exceptions(env, |env| {
        let [cause, traceback] = [&cause, &traceback].map(|string| text(env, string));
        let (cause, traceback) = (cause?.unwrap_or_default(), traceback?.unwrap_or_default());
        // SAFETY: Java passes the address of a live communicator.
        unsafe { at(communicator) }.abort(&cause, &traceback);
        Ok(())
    });
}

/// Leave the job normally; later calls fail.
#[unsafe(no_mangle)]
extern "system" fn Java_org_ripieno_Native_close<'local>(
    env: EnvUnowned<'local>,
    _class: JClass<'local>,
    communicator: jlong,
) {
    with_exceptions(env, |_| {
        // SAFETY: Java passes the address of a live communicator.
        unsafe { at(communicator) }.close();
        Ok(())
    });
}

#[unsafe(no_mangle)]
extern "system" fn Java_org_ripieno_Native_free<'local>(
    env: EnvUnowned<'local>,
    _class: JClass<'local>,
    communicator: jlong,
) {
    with_exceptions(env, |_| {
        // SAFETY: Java frees the communicator from `connect`, `split` or `group` once, when no thread can call it any
        // more.
        drop(unsafe { Box::from_raw(communicator as *mut Communicator) });
        Ok(())
    });
}
