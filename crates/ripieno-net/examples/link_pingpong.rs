//! Measures the latency and throughput of each kind of link, and of memcpy for comparison.
//!
//! `cargo run --release -p ripieno-net --example link_pingpong [ring capacity in KiB]`
//! Results are the best of many batches, because both ends spin and the machine may be busy.

use ripieno_net::links::{DEFAULT_CAPACITY_BYTES, Doorbell, TcpLink, shared_memory, thread};
use ripieno_run::Link;
use std::hint::spin_loop;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::time::Instant;

const HEADER: [u8; 32] = [1; 32];
const PAYLOAD: [u8; 8] = [2; 8];
const ROUND_COUNT: usize = 1_000;
const BATCH_COUNT: usize = 60;
const LARGE_BYTES: [usize; 3] = [1 << 20, 8 << 20, 64 << 20];
const REPEAT_COUNT: usize = 20;
/// Maximum number of bytes per call to a link.
const SEGMENT_BYTES: usize = 256 << 10;
/// Number of checks for data between two yields of the core.
const YIELD_EVERY: u32 = 10_000;
/// Environment variable that marks this process as the peer.
const CHILD: &str = "LINK_PINGPONG_CHILD";

fn main() {
    if std::env::var_os(CHILD).is_some() {
        return shared_memory_child();
    }
    let capacity_bytes = match std::env::args().nth(1) {
        Some(text) => text.parse::<usize>().expect("the ring capacity in KiB") << 10,
        None => DEFAULT_CAPACITY_BYTES,
    };
    println!("rings of {} KiB; half a round trip of 40 B; GB/s one way, best of {REPEAT_COUNT}", capacity_bytes >> 10);
    println!("{:<16}{:>10}{:>12}{:>12}{:>12}", "", "40 B, ns", "1 MiB", "8 MiB", "64 MiB");
    let copies = LARGE_BYTES.map(memcpy_gb_per_s);
    println!("{:<16}{:>10}{:>12.2}{:>12.2}{:>12.2}", "memcpy", "", copies[0], copies[1], copies[2]);
    between_threads(capacity_bytes);
    over_shared_memory(capacity_bytes);
    over_tcp();
}

fn between_threads(capacity_bytes: usize) {
    let (first, second) = (Doorbell::new().unwrap(), Doorbell::new().unwrap());
    let (mut here, mut there) = thread::pair(capacity_bytes, first.waker(), second.waker()).unwrap();
    let peer = std::thread::spawn(move || answer(&mut there));
    measure("threads", &mut here);
    peer.join().unwrap();
}

fn over_shared_memory(capacity_bytes: usize) {
    let (here, there) = UnixStream::pair().unwrap();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .env(CHILD, "1")
        .stdin(Stdio::from(OwnedFd::from(there)))
        .spawn()
        .unwrap();
    let doorbell = Doorbell::new().unwrap();
    let mut link = shared_memory::connect(&here, &doorbell.waker(), capacity_bytes).unwrap();
    measure("shared memory", &mut link);
    child.wait().unwrap();
}

fn shared_memory_child() {
    let socket = UnixStream::from(std::io::stdin().as_fd().try_clone_to_owned().unwrap());
    let doorbell = Doorbell::new().unwrap();
    answer(&mut shared_memory::accept(&socket, &doorbell.waker()).unwrap());
}

fn over_tcp() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut here = TcpLink::new(TcpStream::connect(listener.local_addr().unwrap()).unwrap()).unwrap();
    let mut there = TcpLink::new(listener.accept().unwrap().0).unwrap();
    let peer = std::thread::spawn(move || answer(&mut there));
    measure("TCP, loopback", &mut here);
    peer.join().unwrap();
}

fn measure(name: &str, link: &mut dyn Link) {
    let latency_ns = best(BATCH_COUNT, || {
        let started = Instant::now();
        for _ in 0..ROUND_COUNT {
            send_small(link);
            receive_small(link);
        }
        started.elapsed().as_secs_f64() * 1e9 / (2 * ROUND_COUNT) as f64
    });
    let data = vec![3u8; LARGE_BYTES[2]];
    let rates = LARGE_BYTES.map(|bytes| {
        let seconds = best(REPEAT_COUNT, || {
            let started = Instant::now();
            send_large(link, &data[..bytes]);
            receive_small(link);
            started.elapsed().as_secs_f64()
        });
        bytes as f64 / seconds / 1e9
    });
    println!("{name:<16}{latency_ns:>10.0}{:>12.2}{:>12.2}{:>12.2}", rates[0], rates[1], rates[2]);
}

fn answer(link: &mut dyn Link) {
    for _ in 0..BATCH_COUNT * ROUND_COUNT {
        receive_small(link);
        send_small(link);
    }
    let mut data = vec![0u8; LARGE_BYTES[2]];
    for bytes in LARGE_BYTES {
        for _ in 0..REPEAT_COUNT {
            receive_large(link, &mut data[..bytes]);
            send_small(link);
        }
    }
}

fn send_small(link: &mut dyn Link) {
    assert_eq!(link.send(&[&HEADER, &PAYLOAD]), Ok(40));
    link.flush().unwrap();
}

fn receive_small(link: &mut dyn Link) {
    let mut header = [0; 32];
    spin(|| {
        let peeked = link.peek(40).unwrap();
        let is_complete = peeked.len() >= 40;
        if is_complete {
            header.copy_from_slice(&peeked[..32]);
        }
        is_complete
    });
    assert_eq!(header, HEADER);
    link.consume(40);
    link.flush().unwrap();
}

fn send_large(link: &mut dyn Link, mut data: &[u8]) {
    spin(|| {
        let sent = link.send(&[&data[..data.len().min(SEGMENT_BYTES)]]).unwrap();
        link.flush().unwrap();
        data = &data[sent..];
        data.is_empty()
    });
}

fn receive_large(link: &mut dyn Link, into: &mut [u8]) {
    let mut done = 0;
    spin(|| {
        let end = into.len().min(done + SEGMENT_BYTES);
        done += link.receive(&mut into[done..end]).unwrap();
        link.flush().unwrap();
        done == into.len()
    });
}

fn memcpy_gb_per_s(bytes: usize) -> f64 {
    let (from, mut to) = (vec![1u8; bytes], vec![0u8; bytes]);
    let seconds = best(REPEAT_COUNT, || {
        let started = Instant::now();
        to.copy_from_slice(std::hint::black_box(&from));
        std::hint::black_box(&to);
        started.elapsed().as_secs_f64()
    });
    bytes as f64 / seconds / 1e9
}

fn best(count: usize, mut run: impl FnMut() -> f64) -> f64 {
    (0..count).map(|_| run()).fold(f64::INFINITY, f64::min)
}

/// Spin and yield the core at intervals: the machine may have fewer cores than link ends.
fn spin(mut done: impl FnMut() -> bool) {
    let mut tries = 0u32;
    while !done() {
        tries += 1;
        if tries % YIELD_EVERY == YIELD_EVERY - 1 {
            std::thread::yield_now();
        }
        spin_loop();
    }
}
