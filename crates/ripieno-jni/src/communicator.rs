//! Collectives for Java: in place on direct buffers, to their end or by a handle.

use crate::errors::{Thrown, answered};
use crate::meeting::text;
use crate::memory::{DirectRegion, HeldBuffers};
use jni::objects::{JClass, JLongArray, JObject, JString};
use jni::sys::{jboolean, jint, jlong};
use jni::{Env, EnvUnowned};
use ripieno::{BufferMemory, CollectiveTask, Communicator, Element, ElementShape, ElementType, Handle, Op, Whole};

/// The element types by the numbers that `Values` has for them.
const ELEMENTS: [Element; 6] = [Element::I8, Element::I16, Element::I32, Element::I64, Element::F32, Element::F64];

/// The operations in the order of `Op`.
const OPS: [Op; 7] = [Op::Sum, Op::Prod, Op::Min, Op::Max, Op::And, Op::Or, Op::Xor];

/// The communicator at an address.
///
/// # Safety
/// It was made by `meet` and is not freed while this lives: Java frees it when nobody can call it any more.
pub unsafe fn at<'a>(communicator: jlong) -> &'a Communicator {
    unsafe { &*(communicator as *const Communicator) }
}

pub fn element(number: jint) -> Element {
    ELEMENTS[number as usize]
}

pub fn op(number: jint) -> Op {
    OPS[number as usize]
}

/// What a call says beside its memory, as Java gives it.
struct JavaArguments {
    collective: jint,
    op: jint,
    /// A root, a peer or a distance.
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
    ) -> Result<JavaArguments, Thrown> {
        let (counts, in_counts) = (longs(env, counts)?, longs(env, in_counts)?);
        Ok(JavaArguments { collective, op, number: number as usize, counts, in_counts })
    }

    /// The collective, by the number that `Call` has for it, and whether its first buffer is written to.
    fn task(&self, rank: usize) -> (CollectiveTask<'_>, bool) {
        let (root, chunks) = (self.number, &self.counts[..]);
        let op = || op(self.op);
        let task = match self.collective {
            0 => CollectiveTask::Broadcast { root, vector: Whole },
            1 => CollectiveTask::Reduce { op: op(), root, vector: Whole },
            2 => CollectiveTask::Allreduce { op: op(), vector: Whole },
            3 => CollectiveTask::Scan { op: op(), vector: Whole },
            4 => CollectiveTask::Exscan { op: op(), vector: Whole },
            5 => CollectiveTask::Allgather { chunks },
            6 => CollectiveTask::ReduceScatter { chunks, op: op() },
            7 => CollectiveTask::Gather { chunks, root },
            8 => CollectiveTask::Scatter { chunks, root },
            9 => CollectiveTask::Alltoall { out_chunks: chunks, in_chunks: &self.in_counts },
            10 => CollectiveTask::Rotate { distance: self.number, out: Whole, into: Whole },
            11 => CollectiveTask::PointToPoint { from: rank, to: self.number, vector: Whole },
            _ => CollectiveTask::PointToPoint { from: self.number, to: rank, vector: Whole },
        };
        let only_reads = matches!(self.collective, 9..=11);
        (task, !only_reads)
    }
}

fn longs(env: &mut Env<'_>, array: &JLongArray<'_>) -> Result<Vec<usize>, Thrown> {
    if array.is_null() {
        return Ok(Vec::new());
    }
    let mut values = vec![0; array.len(env)?];
    array.get_region(env, 0, &mut values)?;
    match values.iter().find(|&&value| value < 0) {
        Some(value) => Err(Thrown::Input(format!("counts={values:?}: {value} is negative"))),
        None => Ok(values.into_iter().map(|value| value as usize).collect()),
    }
}

/// Runs a collective to its end.
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
    answered(env, |env| {
        let asked = JavaArguments::new(env, [collective, operation], number, [&counts, &in_counts])?;
        // SAFETY: as Java promises.
        let communicator = unsafe { at(communicator) };
        let (task, writes_first) = asked.task(communicator.rank());
        let (first, second) = (DirectRegion::new(first, first_bytes), DirectRegion::new(second, second_bytes));
        // SAFETY: Java holds the buffers until this returns.
        let memory = unsafe {
            let first =
                if writes_first { BufferMemory::Write(first.write()) } else { BufferMemory::Read(first.read()) };
            [first, BufferMemory::Write(second.write())]
        };
        let elements = ElementType { element: element(of), shape: ElementShape::Line };
        Ok(communicator.run(&task, elements, None, memory)?)
    });
}

/// Begins a collective, which goes on by itself; `kept` is what its memory lies in.
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
    kept: JObject<'local>,
) -> jlong {
    answered(env, |env| {
        let asked = JavaArguments::new(env, [collective, operation], number, [&counts, &in_counts])?;
        // SAFETY: as Java promises.
        let communicator = unsafe { at(communicator) };
        let (task, writes_first) = asked.task(communicator.rank());
        let (first, second) = (DirectRegion::new(first, first_bytes), DirectRegion::new(second, second_bytes));
        let held = HeldBuffers::new(first, second, writes_first, env.new_global_ref(kept)?);
        let handle = communicator.start(&task, element(of), None, held)?;
        Ok(Box::into_raw(Box::new(handle)) as jlong)
    })
}

/// The handle at an address.
///
/// # Safety
/// It was made by `start` and is not freed while this lives.
unsafe fn handle_at<'a>(handle: jlong) -> &'a Handle<HeldBuffers> {
    unsafe { &*(handle as *const Handle<HeldBuffers>) }
}

#[unsafe(no_mangle)]
extern "system" fn Java_org_ripieno_Native_join<'local>(
    env: EnvUnowned<'local>,
    _class: JClass<'local>,
    handle: jlong,
) {
    // SAFETY: as Java promises.
    answered(env, |_| Ok(unsafe { handle_at(handle) }.join()?));
}

#[unsafe(no_mangle)]
extern "system" fn Java_org_ripieno_Native_isDone<'local>(
    env: EnvUnowned<'local>,
    _class: JClass<'local>,
    handle: jlong,
) -> jboolean {
    // SAFETY: as Java promises.
    answered(env, |_| Ok(unsafe { handle_at(handle) }.is_done()))
}

#[unsafe(no_mangle)]
extern "system" fn Java_org_ripieno_Native_freeHandle<'local>(
    env: EnvUnowned<'local>,
    _class: JClass<'local>,
    handle: jlong,
) {
    answered(env, |_| {
        // SAFETY: Java frees what `start` made, once.
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
    // SAFETY: as Java promises.
    answered(env, |_| Ok(unsafe { at(communicator) }.barrier(None)?));
}

/// Tells the others that this rank cannot go on, and why.
#[unsafe(no_mangle)]
extern "system" fn Java_org_ripieno_Native_abort<'local>(
    env: EnvUnowned<'local>,
    _class: JClass<'local>,
    communicator: jlong,
    host: JString<'local>,
    cause: JString<'local>,
    traceback: JString<'local>,
) {
    answered(env, |env| {
        let [host, cause, traceback] = [&host, &cause, &traceback].map(|string| text(env, string));
        let (host, cause, traceback) = (host?.unwrap_or_default(), cause?.unwrap_or_default(), traceback?);
        // SAFETY: as Java promises.
        unsafe { at(communicator) }.abort(&host, &cause, &traceback.unwrap_or_default());
        Ok(())
    });
}

/// Leaves the job in good order; what is called afterwards fails.
#[unsafe(no_mangle)]
extern "system" fn Java_org_ripieno_Native_close<'local>(
    env: EnvUnowned<'local>,
    _class: JClass<'local>,
    communicator: jlong,
) {
    answered(env, |_| {
        // SAFETY: as Java promises.
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
    answered(env, |_| {
        // SAFETY: Java frees what `meet` made, once, when nobody can call it any more.
        drop(unsafe { Box::from_raw(communicator as *mut Communicator) });
        Ok(())
    });
}
