//! Connects ranks for Java: through a Java function, a TCP store or a shared directory.

use crate::errors::{MethodError, with_exceptions};
use jni::objects::{JClass, JObject, JObjectArray, JString};
use jni::sys::{jboolean, jint, jlong};
use jni::{Env, EnvUnowned, JavaVM, jni_sig, jni_str};
use ripieno::net::{Config, Encryption, Endpoint, LinkPolicy, NetError, Ports, Token, exchange};
use ripieno::{Communicator, Overrides};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// The value of a setting that is not set.
const UNSET: jint = -1;

/// Connect to the other ranks. Exactly one of `exchange`, `directory` and `store` is not null.
#[unsafe(no_mangle)]
#[allow(clippy::too_many_arguments)]
extern "system" fn Java_org_ripieno_Native_connect<'local>(
    env: EnvUnowned<'local>,
    _class: JClass<'local>,
    rank: jint,
    world_size: jint,
    token: JString<'local>,
    host: JString<'local>,
    rack: JString<'local>,
    first_port: jint,
    last_port: jint,
    links: jint,
    tls: jint,
    rendezvous_timeout_ms: jlong,
    heartbeat_timeout_ms: jlong,
    exchange: JObject<'local>,
    directory: JString<'local>,
    store_host: JString<'local>,
    store_port: jint,
) -> jlong {
    with_exceptions(env, |env| {
        let token = text(env, &token)?.unwrap_or_default();
        let mut config = Config::new(rank as usize, world_size as usize, Token::from_text("token", &token)?);
        config.host = text(env, &host)?;
        config.rack = text(env, &rack)?;
        config.ports = Ports { first: first_port as u16, last: last_port as u16 };
        config.links = [LinkPolicy::Auto, LinkPolicy::Tcp, LinkPolicy::SharedMemory][links as usize];
        config.tls = Encryption::from_setting((tls != UNSET).then_some(tls != 0));
        config.rendezvous_timeout = Duration::from_millis(rendezvous_timeout_ms as u64);
        config.heartbeat_timeout = Duration::from_millis(heartbeat_timeout_ms as u64);
        let overrides = std::env::var_os("RIPIENO_ALGORITHM").unwrap_or_default();
        let overrides = Overrides::parse(&overrides.to_string_lossy())
            .map_err(|error| MethodError::Input(format!("RIPIENO_ALGORITHM: {error}")))?;
        let (directory, store_host) = (text(env, &directory)?, text(env, &store_host)?);
        let endpoint = match (directory, store_host) {
            (Some(directory), _) => Endpoint::connect(
                config.clone(),
                &mut exchange::DirectoryExchange::new(&config, PathBuf::from(directory)),
            ),
            (None, Some(store)) => {
                Endpoint::connect(config.clone(), &mut exchange::TcpStore::new(&config, &store, store_port as u16))
            }
            (None, None) => {
                Endpoint::connect(config, &mut |own_text: &str| call_exchange(env, rank, &exchange, own_text))
            }
        };
        // An exception that the function has thrown is more precise than the resulting error.
        if env.exception_check() {
            return Err(jni::errors::Error::JavaException.into());
        }
        let communicator = Communicator::new(Box::new(endpoint?));
        communicator.set_overrides(overrides)?;
        communicator.set_interrupt(is_interrupted)?;
        Ok(Box::into_raw(Box::new(communicator)) as jlong)
    })
}

/// Return a new secret for a job.
#[unsafe(no_mangle)]
extern "system" fn Java_org_ripieno_Native_newToken<'local>(
    env: EnvUnowned<'local>,
    _class: JClass<'local>,
) -> JString<'local> {
    with_exceptions(env, |env| Ok(env.new_string(Token::random_text()?)?))
}

/// Convert a Java string, unless it is null.
pub fn text(env: &Env<'_>, string: &JString<'_>) -> Result<Option<String>, MethodError> {
    if string.is_null() { Ok(None) } else { Ok(Some(string.try_to_string(env)?)) }
}

fn call_exchange(
    env: &mut Env<'_>,
    rank: jint,
    exchange: &JObject<'_>,
    own_text: &str,
) -> Result<Vec<String>, NetError> {
    let started = Instant::now();
    let mut call = || -> Result<Vec<String>, MethodError> {
        let own_text = env.new_string(own_text)?;
        let all = env.call_method(
            exchange,
            jni_str!("exchange"),
            jni_sig!("(Ljava/lang/String;)[Ljava/lang/String;"),
            &[(&own_text).into()],
        )?;
        let all = all.l()?;
        if all.is_null() {
            return Err(MethodError::Input("the exchange returned null".to_string()));
        }
        let all: JObjectArray<'_, JString<'_>> = env.cast_local::<JObjectArray<JString>>(all)?;
        let mut texts = Vec::with_capacity(all.len(env)?);
        for index in 0..all.len(env)? {
            let element = all.get_element(env, index)?;
            texts.push(text(env, &element)?.unwrap_or_default());
            env.delete_local_ref(element);
        }
        Ok(texts)
    };
    call().map_err(|error| NetError::Exchange {
        rank: rank as usize,
        cause: error.to_string(),
        elapsed_ms: started.elapsed().as_millis() as u64,
    })
}

/// Return whether the waiting Java thread was interrupted. Ripieno's own threads are never interrupted.
fn is_interrupted() -> bool {
    let query = |env: &mut Env<'_>| -> Result<jboolean, MethodError> {
        let interrupted =
            env.call_static_method(jni_str!("org/ripieno/Failures"), jni_str!("isInterrupted"), jni_sig!("()Z"), &[])?;
        Ok(interrupted.z()?)
    };
    let Ok(jvm) = JavaVM::singleton() else { return false };
    if !jvm.is_thread_attached().unwrap_or(false) {
        return false;
    }
    jvm.attach_current_thread(query).unwrap_or_default()
}
