//! Maps errors to exceptions: `org.ripieno.Failures` creates one from the kind, the message and the failed rank.

use jni::errors::{Error as JniError, ErrorPolicy};
use jni::objects::{JObject, JThrowable, JValue};
use jni::strings::JNIStr;
use jni::sys::jint;
use jni::{Env, EnvUnowned, jni_sig, jni_str};
use ripieno::net::NetError;
use ripieno::{Error, JobFailure};
use std::any::Any;

/// Error of a native method.
#[derive(Debug, thiserror::Error)]
pub enum MethodError {
    /// The JVM has thrown an exception or rejected a request.
    #[error(transparent)]
    Jvm(#[from] JniError),
    /// A collective has failed.
    #[error(transparent)]
    Collective(#[from] Error),
    /// The ranks could not connect to each other.
    #[error(transparent)]
    Rendezvous(#[from] NetError),
    /// An argument is invalid.
    #[error("{0}")]
    Input(String),
}

/// The kinds of exceptions that `Failures.of` creates.
#[derive(Clone, Copy)]
#[repr(i32)]
enum FailureKind {
    Other,
    RankFailed,
    Mismatch,
    Rendezvous,
    Input,
    Closed,
    Interrupted,
    Memory,
    MissingIndices,
}

impl MethodError {
    fn kind(&self) -> FailureKind {
        match self {
            MethodError::Jvm(_) => FailureKind::Other,
            MethodError::Input(_) => FailureKind::Input,
            MethodError::Rendezvous(NetError::Failed(failure)) | MethodError::Collective(Error::Failed(failure)) => {
                match failure {
                    JobFailure::RankFailed { .. } => FailureKind::RankFailed,
                    JobFailure::Mismatch { .. } => FailureKind::Mismatch,
                }
            }
            MethodError::Rendezvous(NetError::Config { .. }) => FailureKind::Input,
            MethodError::Rendezvous(_) => FailureKind::Rendezvous,
            MethodError::Collective(error) => match error {
                Error::Closed => FailureKind::Closed,
                Error::Interrupted => FailureKind::Interrupted,
                Error::Memory { .. } => FailureKind::Memory,
                Error::MissingIndices { .. } => FailureKind::MissingIndices,
                Error::RowsDiffer { .. } => FailureKind::Mismatch,
                Error::NothingFailed
                | Error::Unsupported(_)
                | Error::Argument { .. }
                | Error::Disagreement { .. }
                | Error::Rows { .. } => FailureKind::Input,
                _ => FailureKind::Other,
            },
        }
    }

    /// Return rank, host, cause and traceback of the failed rank, if a rank failed.
    fn failed(&self) -> (jint, &str, &str, &str) {
        match self {
            MethodError::Rendezvous(NetError::Failed(failure)) | MethodError::Collective(Error::Failed(failure)) => {
                match failure {
                    JobFailure::RankFailed { rank, host, cause, traceback } => (*rank as jint, host, cause, traceback),
                    JobFailure::Mismatch { .. } => (-1, "", "", ""),
                }
            }
            _ => (-1, "", "", ""),
        }
    }

    fn throw(&self, env: &mut Env<'_>) -> Result<(), JniError> {
        const FAILURES: &JNIStr = jni_str!("org/ripieno/Failures");
        let (rank, host, cause, traceback) = self.failed();
        let (message, host) = (env.new_string(self.to_string())?, env.new_string(host)?);
        let (cause, traceback) = (env.new_string(cause)?, env.new_string(traceback)?);
        let throwable = env.call_static_method(
            FAILURES,
            jni_str!("of"),
            jni_sig!(
                "(ILjava/lang/String;ILjava/lang/String;Ljava/lang/String;Ljava/lang/String;)Ljava/lang/Throwable;"
            ),
            &[
                JValue::Int(self.kind() as jint),
                (&message).into(),
                JValue::Int(rank),
                (&host).into(),
                (&cause).into(),
                (&traceback).into(),
            ],
        )?;
        let throwable: JObject<'_> = throwable.l()?;
        let throwable: JThrowable<'_> = env.cast_local::<JThrowable>(throwable)?;
        env.throw(throwable)
    }
}

/// Return the result of a native method to Java, or throw its error.
pub fn with_exceptions<'local, T: Default>(
    mut env: EnvUnowned<'local>,
    method: impl FnOnce(&mut Env<'local>) -> Result<T, MethodError>,
) -> T {
    env.with_env(method).resolve::<Throw>()
}

/// Throws the error or the panic of a native method, and returns a value that Java never sees.
struct Throw;

impl<T: Default> ErrorPolicy<T, MethodError> for Throw {
    type Captures<'unowned_env_local: 'native_method, 'native_method> = ();

    fn on_error<'unowned_env_local: 'native_method, 'native_method>(
        env: &mut Env<'unowned_env_local>,
        (): &mut (),
        error: MethodError,
    ) -> Result<T, JniError> {
        if !env.exception_check() {
            // The pending exception is the intended result.
            let _ = error.throw(env);
        }
        Ok(T::default())
    }

    fn on_panic<'unowned_env_local: 'native_method, 'native_method>(
        env: &mut Env<'unowned_env_local>,
        (): &mut (),
        payload: Box<dyn Any + Send>,
    ) -> Result<T, JniError> {
        let text = payload.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| payload.downcast_ref::<&str>().copied()).unwrap_or("unknown reason");
        let _ = env.throw_new(
            jni_str!("java/lang/AssertionError"),
            jni::strings::JNIString::from(format!("a bug in ripieno: {text}")),
        );
        Ok(T::default())
    }
}
