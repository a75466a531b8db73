//! Shared memory between processes: transfers work, no files remain, and a faulty peer cannot do harm.

use ripieno_net::links::{Doorbell, RingLink, receive_fds, send_fds, shared_memory};
use ripieno_run::{Link, LinkError};
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const CAPACITY_BYTES: usize = 64 << 10;
const DEADLINE: Duration = Duration::from_secs(30);
/// Environment variable with the role of a child process.
const ROLE: &str = "SHARED_MEMORY_TEST_ROLE";

/// The program of a child process; not a test of its own.
#[test]
fn child() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let socket = UnixStream::from(std::io::stdin().as_fd().try_clone_to_owned().unwrap());
    let mut doorbell = Doorbell::new().unwrap();
    let mut link = shared_memory::accept(&socket, &doorbell.waker()).unwrap();
    match role.as_str() {
        "echo" => echo(&mut link, &mut doorbell),
        "flood" => flood(&mut link),
        _ => unreachable!("a role is echo or flood"),
    }
}

#[test]
fn processes_exchange_messages_and_sleep_in_between() {
    let (mut child, mut link, mut doorbell) = spawn("echo");
    for round in 0..500u64 {
        let message = round.to_le_bytes().repeat(1 + round as usize * 7 % 3_000);
        send_all(&mut link, &mut doorbell, &message);
        let mut answer = vec![0; message.len()];
        receive_all(&mut link, &mut doorbell, &mut answer);
        assert!(answer == message, "message {round} is echoed unchanged");
    }
    drop(link);
    assert!(child.wait().unwrap().success(), "the child sees the close and ends");
}

#[test]
fn a_peer_killed_in_the_middle_leaves_memory_usable_and_no_files() {
    let before = shared_files();
    let (mut child, mut link, _doorbell) = spawn("flood");
    let mut bytes = [0; 5_000];
    let mut received = 0;
    while received < 10 << 20 {
        received += link.receive(&mut bytes).unwrap();
        link.flush().unwrap();
    }
    child.kill().unwrap();
    child.wait().unwrap();

    while link.receive(&mut bytes).unwrap() > 0 {}
    assert_eq!(link.receive(&mut bytes), Ok(0), "only the socket reports a death");
    while link.send(&[&bytes]).unwrap() > 0 {}
    link.flush().unwrap();
    drop(link);
    assert_eq!(shared_files(), before);
}

#[test]
fn a_peer_that_corrupts_the_indices_causes_at_most_an_error() {
    let interesting = [0, 1, 63, 4096, 1 << 16, (1 << 16) + 1, 1 << 32, 1 << 62, 1 << 63, (1 << 63) + 7, u64::MAX];
    // Words of several slots and packets of the first ring.
    let ring_words = 64 * 8 + 2 * 16;
    let words = (0..16).chain(63 * 8..ring_words).flat_map(|word| [word, ring_words + word]);
    for word in words {
        for value in interesting {
            let (mut link, memory) = with_raw_peer();
            assert_eq!(link.send(&[&[7; 100]]), Ok(100));
            memory.write_all_at(&u64::to_ne_bytes(value), word * 8).unwrap();

            let mut bytes = vec![0; 2 * CAPACITY_BYTES];
            for _ in 0..3 {
                let peeked = link.peek(64).map(<[u8]>::len);
                assert_within_ring(peeked.clone());
                link.consume(peeked.map_or(0, |count| count.min(10)));
                assert_within_ring(link.receive(&mut bytes));
                // A peer with a false read position only corrupts the bytes sent to it.
                let _ = link.send(&[&bytes]);
                link.flush().unwrap();
            }
        }
    }
}

#[test]
fn a_peer_cannot_shrink_the_memory() {
    let (mut link, memory) = with_raw_peer();
    assert!(memory.set_len(0).is_err(), "the memory is sealed");
    assert_eq!(link.send(&[&[1; 10]]), Ok(10));
}

#[test]
fn memory_that_could_shrink_or_has_a_wrong_size_is_rejected() {
    let unsealed = rustix::fs::memfd_create("unsealed", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    rustix::fs::ftruncate(&unsealed, 1 << 20).unwrap();
    let doorbell = Doorbell::new().unwrap();
    let page = doorbell.waker();
    let [eventfd, page_fd] = page.fds();
    for hostile in [unsealed.as_fd(), page_fd, eventfd] {
        let (here, there) = UnixStream::pair().unwrap();
        send_fds(&here, &[hostile, eventfd, page_fd]).unwrap();
        assert!(shared_memory::accept(&there, &doorbell.waker()).is_err());
    }
}

#[test]
fn a_wrong_number_of_descriptors_is_rejected() {
    let (here, there) = UnixStream::pair().unwrap();
    let doorbell = Doorbell::new().unwrap();
    send_fds(&here, &doorbell.waker().fds()).unwrap();
    assert!(receive_fds::<3>(&there).is_err());
    drop(here);
    assert!(receive_fds::<3>(&there).is_err(), "a closed socket gives no descriptors");
}

/// Return a link to a peer that accesses the memory as a file.
fn with_raw_peer() -> (RingLink, File) {
    let (here, there) = UnixStream::pair().unwrap();
    let doorbell = Doorbell::new().unwrap();
    let offer = shared_memory::offer(&here, &doorbell.waker(), CAPACITY_BYTES).unwrap();
    let [memory, _eventfd, _page]: [OwnedFd; 3] = receive_fds(&there).unwrap();
    (offer.into_link(doorbell.waker()), File::from(memory))
}

fn assert_within_ring(moved: Result<usize, LinkError>) {
    assert!(moved.clone().unwrap_or(0) <= CAPACITY_BYTES, "{moved:?} is more than a ring holds");
}

fn spawn(role: &str) -> (Child, RingLink, Doorbell) {
    let (here, there) = UnixStream::pair().unwrap();
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["shared_memory::child", "--exact", "--nocapture"])
        .env(ROLE, role)
        .stdin(Stdio::from(OwnedFd::from(there)))
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let doorbell = Doorbell::new().unwrap();
    let link = shared_memory::connect(&here, &doorbell.waker(), CAPACITY_BYTES).unwrap();
    (child, link, doorbell)
}

/// Send all received bytes back until the peer closes.
fn echo(link: &mut RingLink, doorbell: &mut Doorbell) {
    let mut bytes = [0; 1_000];
    let mut count = 0;
    loop {
        let mut received = Ok(0);
        retry_until(doorbell, || {
            received = link.receive(&mut bytes);
            link.flush().unwrap();
            received != Ok(0)
        });
        match received {
            Ok(received) => count = received,
            Err(_) => break,
        }
        send_all(link, doorbell, &bytes[..count]);
    }
    assert!(count > 0, "bytes arrive before the close");
}

/// Send until the process is killed.
fn flood(link: &mut RingLink) {
    let started = Instant::now();
    while started.elapsed() < DEADLINE {
        link.send(&[&[9; 3_000]]).unwrap();
        link.flush().unwrap();
    }
}

fn send_all(link: &mut RingLink, doorbell: &mut Doorbell, mut message: &[u8]) {
    retry_until(doorbell, || {
        let sent = link.send(&[message]).unwrap();
        link.flush().unwrap();
        message = &message[sent..];
        message.is_empty()
    });
}

fn receive_all(link: &mut RingLink, doorbell: &mut Doorbell, into: &mut [u8]) {
    let mut done = 0;
    retry_until(doorbell, || {
        done += link.receive(&mut into[done..]).unwrap();
        link.flush().unwrap();
        done == into.len()
    });
}

/// Retry until `done` returns true; sleep in between.
fn retry_until(doorbell: &mut Doorbell, mut done: impl FnMut() -> bool) {
    let started = Instant::now();
    while !done() {
        doorbell.prepare();
        if done() {
            doorbell.cancel();
            return;
        }
        doorbell.wait([], DEADLINE).unwrap();
        doorbell.cancel();
        assert!(started.elapsed() < DEADLINE, "a wake-up was lost");
    }
}

/// Return the names in `/dev/shm` that may belong to this program.
fn shared_files() -> Vec<String> {
    let names = std::fs::read_dir("/dev/shm").unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut ours: Vec<_> = names.filter(|name| name.contains("ripieno")).collect();
    ours.sort();
    ours
}
