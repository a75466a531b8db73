//! The kernels of alternating least squares for Java.

use crate::errors::with_exceptions;
use crate::memory::DirectRegion;
use jni::EnvUnowned;
use jni::objects::{JClass, JDoubleArray};
use jni::sys::{jdouble, jfloat, jint, jlong};
use ripieno_kernels::{self as kernels, Feedback, Ratings, Solver, Threads};

/// Solve for the factors of rows, and write `[squared errors, penalty]`.
///
/// Without a scatter matrix (`gram`), ratings are explicit. With 0 steps, the normal equations are solved.
#[unsafe(no_mangle)]
#[allow(clippy::too_many_arguments)]
extern "system" fn Java_org_ripieno_Native_solveFactors<'local>(
    env: EnvUnowned<'local>,
    _class: JClass<'local>,
    starts: jlong,
    starts_bytes: jlong,
    columns: jlong,
    columns_bytes: jlong,
    values: jlong,
    values_bytes: jlong,
    factors: jlong,
    factors_bytes: jlong,
    rank: jint,
    reg: jfloat,
    alpha: jfloat,
    gram: jlong,
    gram_bytes: jlong,
    conjugate_steps: jint,
    threads: jint,
    out: jlong,
    out_bytes: jlong,
    totals: JDoubleArray<'local>,
) {
    with_exceptions(env, |env| {
        // SAFETY: Java holds these buffers, which have elements of these types, until this returns; `out` is used by
        // this call only.
        let (ratings, factors, gram, out) = unsafe {
            let ratings = Ratings {
                starts: DirectRegion::new(starts, starts_bytes).elements(),
                columns: DirectRegion::new(columns, columns_bytes).elements(),
                values: DirectRegion::new(values, values_bytes).elements(),
            };
            let factors = DirectRegion::new(factors, factors_bytes).elements();
            let gram = DirectRegion::new(gram, gram_bytes).elements();
            (ratings, factors, gram, DirectRegion::new(out, out_bytes).elements_mut())
        };
        let feedback = match gram {
            [] => Feedback::Explicit { reg },
            gram => Feedback::Implicit { reg, alpha, gram },
        };
        let solver = match conjugate_steps as usize {
            0 => Solver::Cholesky,
            steps => Solver::Conjugate { steps },
        };
        let threads = Threads::new(threads as usize);
        let objective = kernels::solve_factors(ratings, factors, rank as usize, feedback, solver, out, &threads);
        totals.set_region(env, 0, &[objective.loss, objective.penalty])?;
        Ok(())
    });
}

/// Compute the scatter matrix of factors, see [`kernels::scatter`].
#[unsafe(no_mangle)]
extern "system" fn Java_org_ripieno_Native_scatterMatrix<'local>(
    env: EnvUnowned<'local>,
    _class: JClass<'local>,
    factors: jlong,
    factors_bytes: jlong,
    rank: jint,
    anchor: jdouble,
    threads: jint,
    out: jlong,
    out_bytes: jlong,
) {
    with_exceptions(env, |_| {
        // SAFETY: As above.
        let (factors, out) = unsafe {
            let out = DirectRegion::new(out, out_bytes).elements_mut();
            (DirectRegion::new(factors, factors_bytes).elements(), out)
        };
        kernels::scatter(factors, rank as usize, anchor, out, &Threads::new(threads as usize));
        Ok(())
    });
}
