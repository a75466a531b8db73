//! Real worlds of ranks over TCP, with and without TLS. Proxies between the ranks change the bytes of one connection.
//!
//! A seed determines the connection, the direction, the place and the change: a flipped bit, a wrong length, a copy of
//! earlier bytes, other bytes, missing bytes, or a closed connection. The store of rank 0, control connections, links
//! for collectives and links for messages all pass through the proxies. The tests check:
//! - no thread panics, and no allocation exceeds `ALLOCATION_BYTES_MAX`;
//! - every rank gets a result, or an error that names a rank of the changed connection, before the time limit;
//! - no result is wrong. Without TLS, payloads have no checksum, so only changes outside of payloads are checked;
//! - a wait ends only by its time limit if bytes are missing or lengths differ. An attacker can always delay data.
//!
//! `RIPIENO_SEED=n` runs seed `n` alone. `RIPIENO_SEEDS=n` runs the first `n` seeds of each kind.

use hmac::{Hmac, KeyInit, Mac};
use ripieno::net::exchange::{TcpStore, ThreadExchange};
use ripieno::net::{Config, Encryption, Endpoint, Exchange, LinkPolicy, NetError, Token};
use ripieno::{BufferMemory, Communicator, Element, Error, Op};
use ripieno_fuzz::FuzzRandom;
use sha2::{Digest, Sha256};
use std::alloc::{GlobalAlloc, Layout, System};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const WORLD_SIZE: usize = 3;
/// Elements per rank in each round.
const LENGTHS: [usize; 3] = [1, 60, 4000];
const SECRET: &str = "test";
/// The worlds mostly wait.
const PARALLEL_WORLD_COUNT: usize = 12;
const HEARTBEAT_TIMEOUT: Duration = Duration::from_secs(3);
/// Time after which a rank gives up.
const CALL_LIMIT: Duration = Duration::from_secs(12);
/// Limit of a world, which includes the times to connect and to close.
const WORLD_LIMIT: Duration = Duration::from_secs(60);
/// The largest buffer of a connection is smaller, and so is every message.
const ALLOCATION_BYTES_MAX: usize = 17 << 20;
/// Every byte of a payload without TLS.
const MARK: u8 = 0x5a;
/// Bytes that a change of one place covers.
const PLACE_BYTES: usize = 8;
/// Earlier bytes that a proxy can repeat.
const HISTORY_BYTES: usize = 4096;

/// An allocator that records the largest allocation.
struct RecordingAllocator;

static LARGEST_BYTES: AtomicUsize = AtomicUsize::new(0);

// SAFETY: all calls go to the system's allocator.
unsafe impl GlobalAlloc for RecordingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LARGEST_BYTES.fetch_max(layout.size(), Relaxed);
        // SAFETY: the caller upholds the requirements of the system's allocator.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: the caller upholds the requirements of the system's allocator.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: RecordingAllocator = RecordingAllocator;

/// A change of the bytes of one direction of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    /// Flip a bit.
    Flip { bit: u32 },
    /// Replace eight bytes by a number.
    Overwrite { number: u64 },
    /// Insert a copy of bytes that have passed.
    Repeat { length: usize },
    /// Insert other bytes.
    Insert { length: usize },
    /// Leave out bytes.
    Drop { length: usize },
    /// Close the connection.
    Cut,
}

impl Change {
    fn drawn(random: &mut FuzzRandom) -> Change {
        let numbers = [0, 1 << 16, 1 << 31, 1 << 32, 1 << 40, (1 << 63) - 1, 1 << 63, u64::MAX];
        let length = 1 + random.below(200);
        match random.below(8) {
            0..3 => Change::Flip { bit: random.below(8) as u32 },
            3 | 4 => Change::Overwrite { number: numbers[random.below(numbers.len())] },
            5 => [Change::Repeat { length }, Change::Insert { length }][random.below(2)],
            6 => Change::Drop { length },
            _ => Change::Cut,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Change::Flip { .. } => "flipped bits",
            Change::Overwrite { .. } => "wrong numbers",
            Change::Repeat { .. } => "repeated bytes",
            Change::Insert { .. } => "inserted bytes",
            Change::Drop { .. } => "missing bytes",
            Change::Cut => "closed connections",
        }
    }

    /// Return whether the connection has as many bytes as without the change.
    fn keeps_length(self) -> bool {
        matches!(self, Change::Flip { .. } | Change::Overwrite { .. })
    }
}

/// The change of a world, shared by its proxies.
struct CorruptionPlan {
    change: Change,
    encrypted: bool,
    /// Number of the changed connection, in the order of accepted connections.
    connection: usize,
    /// Whether to change the bytes from the caller.
    is_from_caller: bool,
    /// Number of bytes before the change.
    offset: usize,
    accepted_count: AtomicUsize,
    /// The ranks of the changed connection.
    changed: Mutex<Option<(usize, usize)>>,
    is_over: AtomicBool,
}

impl CorruptionPlan {
    fn drawn(seed: u64, encrypted: bool) -> CorruptionPlan {
        let random = &mut FuzzRandom::new(seed);
        let offset_bits = random.below(14);
        CorruptionPlan {
            change: Change::drawn(random),
            encrypted,
            connection: random.below(9),
            is_from_caller: random.below(2) == 0,
            offset: random.below(1 << offset_bits),
            accepted_count: AtomicUsize::new(0),
            changed: Mutex::new(None),
            is_over: AtomicBool::new(false),
        }
    }

    /// Return the place of the change in bytes that pass, or `None` if it comes later.
    fn place(&self, bytes: &[u8], passed: usize) -> Option<usize> {
        let first = self.offset.saturating_sub(passed);
        // Changes of payloads without TLS are not detected, by design.
        let is_possible = |at: &usize| self.encrypted || !bytes[*at..*at + PLACE_BYTES].contains(&MARK);
        (first..(bytes.len() + 1).saturating_sub(PLACE_BYTES)).find(is_possible)
    }

    /// Change bytes at a place; `history` has the bytes before them. Return `false` to close the connection.
    fn apply(&self, bytes: &mut Vec<u8>, at: usize, history: &[u8]) -> bool {
        let mut random = FuzzRandom::new(self.offset as u64);
        match self.change {
            Change::Flip { bit } => bytes[at] ^= 1 << bit,
            Change::Overwrite { number } => bytes[at..at + PLACE_BYTES].copy_from_slice(&number.to_le_bytes()),
            Change::Repeat { length } => {
                let earlier = [history, &bytes[..at]].concat();
                let copy = earlier[earlier.len().saturating_sub(length)..].to_vec();
                drop(bytes.splice(at..at, copy));
            }
            Change::Insert { length } => {
                drop(bytes.splice(at..at, (0..length).map(|_| random.below(256) as u8).collect::<Vec<_>>()));
            }
            Change::Drop { length } => drop(bytes.drain(at..(at + length).min(bytes.len()))),
            Change::Cut => return false,
        }
        true
    }

    /// Listen for connections of rank `from`, and connect them with `port` of rank `to`. Return the port.
    fn listen(self: &Arc<CorruptionPlan>, from: usize, to: usize, port: u16) -> u16 {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let own = listener.local_addr().unwrap().port();
        let plan = self.clone();
        std::thread::spawn(move || {
            for caller in listener.incoming().map_while(Result::ok) {
                if plan.is_over.load(Relaxed) {
                    return;
                }
                let number = plan.accepted_count.fetch_add(1, Relaxed);
                // A rank that has ended refuses: the caller sees a closed connection.
                let Ok(rank) = TcpStream::connect(("127.0.0.1", port)) else { continue };
                for (source, target, from_caller) in [(&caller, &rank, true), (&rank, &caller, false)] {
                    let (source, target) = (source.try_clone().unwrap(), target.try_clone().unwrap());
                    let is_changed = number == plan.connection && from_caller == plan.is_from_caller;
                    let plan = plan.clone();
                    std::thread::spawn(move || plan.pass(source, target, is_changed.then_some((from, to))));
                }
            }
        });
        own
    }

    /// Pass bytes on until the end; change them if the ranks of the connection are given.
    fn pass(&self, mut source: TcpStream, mut target: TcpStream, mut ranks: Option<(usize, usize)>) {
        let (mut passed, mut history, mut buffer) = (0, vec![], vec![0; 64 << 10]);
        source.set_nodelay(true).and(target.set_nodelay(true)).unwrap();
        while let Ok(count @ 1..) = source.read(&mut buffer) {
            let mut bytes = buffer[..count].to_vec();
            if let Some((place, pair)) = ranks.and_then(|pair| Some((self.place(&bytes, passed)?, pair))) {
                *self.changed.lock().unwrap() = Some(pair);
                ranks = None;
                if !self.apply(&mut bytes, place, &history) {
                    break;
                }
            }
            passed += count;
            history.extend(&buffer[..count]);
            history.drain(..history.len().saturating_sub(HISTORY_BYTES));
            if target.write_all(&bytes).is_err() {
                break;
            }
        }
        // The end may have closed first.
        let _ = target.shutdown(Shutdown::Both).and(source.shutdown(Shutdown::Both));
    }

    /// Return the address records of all ranks for `rank`, with proxies in place of all other ranks.
    fn proxied(self: &Arc<CorruptionPlan>, rank: usize, records: Vec<String>) -> Vec<String> {
        let replace = |(peer, record): (usize, String)| {
            if peer == rank {
                return record;
            }
            let port: u16 = field(&record, "\"port\":", ",").parse().unwrap();
            let port_text = format!("\"port\":{}", self.listen(rank, peer, port));
            let record = record.replace(&format!("\"port\":{port}"), &port_text);
            // The seal covers all other fields.
            let proof = format!("\"proof\":\"{}\"", field(&record, "\"proof\":\"", "\""));
            let unsealed = record.replace(&proof, "\"proof\":\"\"");
            let key = Sha256::new().chain_update(b"ripieno token 1\0").chain_update(SECRET).finalize();
            let mut mac = Hmac::<Sha256>::new_from_slice(&key).unwrap();
            mac.update(b"ripieno peer address\0");
            mac.update(unsealed.as_bytes());
            let seal: String = mac.finalize().into_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
            unsealed.replace("\"proof\":\"\"", &format!("\"proof\":\"{seal}\""))
        };
        records.into_iter().enumerate().map(replace).collect()
    }
}

/// Return the text between `before` and `after`.
fn field<'a>(text: &'a str, before: &str, after: &str) -> &'a str {
    text.split_once(before).unwrap().1.split_once(after).unwrap().0
}

/// The exchange of a rank: threads, or the store of rank 0 through a proxy.
fn exchange(plan: &Arc<CorruptionPlan>, config: &Config, threads: &mut ThreadExchange, port: Option<u16>) -> NetResult {
    let rank = config.rank;
    let mut through = |mine: &str| -> Result<Vec<String>, NetError> {
        let records = match port {
            None => threads.exchange(mine),
            Some(port) if rank == 0 => TcpStore::new(config, "127.0.0.1", port).exchange(mine),
            Some(port) => TcpStore::new(config, "127.0.0.1", plan.listen(rank, 0, port)).exchange(mine),
        }?;
        Ok(plan.proxied(rank, records))
    };
    Endpoint::connect(config.clone(), &mut through)
}

type NetResult = Result<Endpoint, NetError>;

/// Return the vector of a rank.
fn vector(plan: &CorruptionPlan, rank: usize, round: usize) -> Vec<u8> {
    let number = if plan.encrypted { (1000 * rank + round) as i64 } else { i64::from_ne_bytes([MARK; 8]) };
    number.to_ne_bytes().repeat(LENGTHS[round])
}

/// Call collectives and pass messages around. Return whether all results are right.
fn program(comm: &Communicator, plan: &CorruptionPlan) -> Result<bool, Error> {
    let (rank, p) = (comm.rank(), comm.world_size());
    let mut is_right = true;
    for (round, length) in LENGTHS.into_iter().enumerate() {
        let of = |rank: usize| vector(plan, rank, round);
        let mut largest = of(rank);
        comm.allreduce(&mut largest, Element::I64, Op::Max, None)?;
        is_right &= largest == of(p - 1);
        let mut value = of(rank);
        comm.broadcast(BufferMemory::Write(&mut value), Element::I64, round % p, None)?;
        is_right &= value == of(round % p);
        let mut all = of(rank).repeat(p);
        comm.allgather(&mut all, Element::I64, &vec![length; p], None)?;
        is_right &= all == (0..p).flat_map(of).collect::<Vec<_>>();
        let mut received = vec![0; of(0).len()];
        let (left, right) = ((rank + p - 1) % p, (rank + 1) % p);
        if rank == 0 {
            comm.send(&of(rank), Element::I64, right)?;
            comm.receive(&mut received, Element::I64, left)?;
        } else {
            comm.receive(&mut received, Element::I64, left)?;
            comm.send(&of(rank), Element::I64, right)?;
        }
        is_right &= received == of(left);
    }
    Ok(is_right)
}

/// Run one world; return a description of its end, or of the violated rule.
fn play(seed: u64, encrypted: bool) -> Result<String, String> {
    let plan = Arc::new(CorruptionPlan::drawn(seed, encrypted));
    let store_port = seed.is_multiple_of(4).then(free_port);
    let begin = Instant::now();
    let ended: Vec<(Result<bool, String>, Option<Communicator>)> = std::thread::scope(|scope| {
        let ranks: Vec<_> = ThreadExchange::group(WORLD_SIZE, Duration::from_secs(20))
            .into_iter()
            .enumerate()
            .map(|(rank, mut threads)| {
                let plan = &plan;
                scope.spawn(move || {
                    let mut config = Config::new(rank, WORLD_SIZE, Token::from_secret(SECRET));
                    config.host = Some("127.0.0.1".to_string());
                    config.links = LinkPolicy::Tcp;
                    config.tls = if encrypted { Encryption::Everywhere } else { Encryption::Off };
                    config.heartbeat_timeout = HEARTBEAT_TIMEOUT;
                    config.rendezvous_timeout = CALL_LIMIT;
                    config.linger = Duration::from_millis(100);
                    let endpoint = match exchange(plan, &config, &mut threads, store_port) {
                        Ok(endpoint) => endpoint,
                        Err(error) => return (Err(error.to_string()), None),
                    };
                    let comm = Communicator::new(Box::new(endpoint));
                    let begin = Instant::now();
                    comm.set_interrupt(move || begin.elapsed() > CALL_LIMIT).unwrap();
                    (program(&comm, plan).map_err(|error| error.to_string()), Some(comm))
                })
            })
            .collect();
        ranks.into_iter().map(|rank| rank.join().expect("no rank panics")).collect()
    });
    let outcomes: Vec<Result<bool, String>> = ended.into_iter().map(|(outcome, _)| outcome).collect();
    plan.is_over.store(true, Relaxed);
    let took = begin.elapsed();
    let changed = *plan.changed.lock().unwrap();
    let described = format!("{:?} of {changed:?} after {} bytes: {outcomes:?} in {took:?}", plan.change, plan.offset);
    let fail = |rule: &str| Err(format!("seed {seed}, tls {encrypted}: {rule}: {described}"));
    let stalled = outcomes.iter().any(|end| matches!(end, Err(error) if error.contains("interrupted")));
    if took > WORLD_LIMIT {
        return fail("it hangs");
    }
    let Some((from, to)) = changed else {
        return if outcomes.iter().all(|end| *end == Ok(true)) {
            Ok("unchanged".to_string())
        } else {
            fail("no fault")
        };
    };
    let may_be_wrong = !encrypted && !plan.change.keeps_length() && plan.change != Change::Cut;
    if outcomes.contains(&Ok(false)) && !may_be_wrong {
        return fail("a result is wrong");
    }
    if stalled && (plan.change == Change::Cut || !encrypted && plan.change.keeps_length()) {
        return fail("a rank waits although no byte is missing");
    }
    for error in outcomes.iter().filter_map(|end| end.as_ref().err()) {
        let names = |rank: usize| error.contains(&format!("rank {rank}")) || error.contains("ranks ");
        if !stalled && !names(from) && !names(to) {
            return fail("an error names another rank");
        }
    }
    let end = match outcomes.iter().any(Result::is_err) {
        _ if stalled => "stalled",
        true => "failed",
        false => "right",
    };
    Ok(format!("{}: {end}", plan.change.name()))
}

/// Return a port that is free now. It is not ephemeral, so no connection of another process takes it.
fn free_port() -> u16 {
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    loop {
        let port = 10_000 + (std::process::id() as usize * 97 + COUNT.fetch_add(1, Relaxed)) % 20_000;
        if TcpListener::bind(("127.0.0.1", port as u16)).is_ok() {
            return port as u16;
        }
    }
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name}={text}: expected a number")))
}

#[test]
fn changed_bytes_cause_errors_that_name_a_rank_and_never_wrong_results() {
    static PANICS: AtomicUsize = AtomicUsize::new(0);
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        PANICS.fetch_add(1, Relaxed);
        hook(panic);
    }));
    let seeds = match number("RIPIENO_SEED") {
        Some(seed) => 2 * seed..2 * seed + 2,
        None => 0..2 * number("RIPIENO_SEEDS").unwrap_or(1000),
    };
    let (next, last) = (AtomicU64::new(seeds.start), seeds.end);
    let counts = Mutex::new(BTreeMap::<String, u64>::new());
    let failures = Mutex::new(vec![]);
    std::thread::scope(|scope| {
        for _ in 0..PARALLEL_WORLD_COUNT {
            scope.spawn(|| {
                while let Some(case) = Some(next.fetch_add(1, Relaxed)).filter(|&case| case < last) {
                    let encrypted = case % 2 == 1;
                    match play(case / 2, encrypted) {
                        Ok(end) => {
                            let key = format!("{}, {end}", if encrypted { "TLS" } else { "plain" });
                            *counts.lock().unwrap().entry(key).or_default() += 1;
                        }
                        Err(failure) => failures.lock().unwrap().push(failure),
                    }
                }
            });
        }
    });
    for (end, count) in &*counts.lock().unwrap() {
        println!("{count} {end}");
    }
    let (failures, largest_bytes) = (failures.into_inner().unwrap(), LARGEST_BYTES.load(Relaxed));
    println!("largest allocation: {largest_bytes} bytes");
    assert!(failures.is_empty(), "{}\nrepeat one: RIPIENO_SEED=…", failures.join("\n"));
    assert_eq!(PANICS.load(Relaxed), 0, "a thread panicked");
    assert!(largest_bytes <= ALLOCATION_BYTES_MAX, "an allocation of {largest_bytes} bytes");
}
