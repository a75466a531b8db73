//! Tests of doorbells: a doorbell wakes its owner only after a call of `wake` or at the timeout.

use ripieno_net::links::{Doorbell, Waker, WatchedDescriptor};
use std::io::Write;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

const LONG: Duration = Duration::from_secs(20);
const SHORT: Duration = Duration::from_millis(20);

#[test]
fn a_parked_rank_without_a_wake_up_wakes_at_the_timeout() {
    let mut doorbell = Doorbell::new().unwrap();
    let started = Instant::now();
    doorbell.prepare();
    assert!(!doorbell.wait([], SHORT).unwrap());
    doorbell.cancel();
    assert!(started.elapsed() >= SHORT);
}

#[test]
fn a_wake_up_between_prepare_and_wait_is_not_lost() {
    let mut doorbell = Doorbell::new().unwrap();
    doorbell.prepare();
    doorbell.waker().wake();
    assert!(doorbell.wait([], LONG).unwrap());
    doorbell.cancel();

    doorbell.prepare();
    assert!(!doorbell.wait([], SHORT).unwrap(), "a wake-up counts once");
    doorbell.cancel();
}

#[test]
fn a_rank_that_does_not_sleep_is_not_disturbed() {
    let mut doorbell = Doorbell::new().unwrap();
    doorbell.waker().wake();
    doorbell.prepare();
    assert!(!doorbell.wait([], SHORT).unwrap());
    doorbell.cancel();
}

#[test]
fn a_waker_works_through_the_descriptors_sent_to_a_peer() {
    let mut doorbell = Doorbell::new().unwrap();
    let own = doorbell.waker();
    let [eventfd, page] = own.fds().map(|fd| fd.try_clone_to_owned().unwrap());
    let peer = Waker::from_fds(eventfd, page).unwrap();
    std::thread::scope(|scope| {
        doorbell.prepare();
        scope.spawn(|| peer.wake());
        assert!(doorbell.wait([], LONG).unwrap());
        doorbell.cancel();
    });
}

#[test]
fn a_watched_socket_wakes_for_bytes_space_and_its_end() {
    let mut doorbell = Doorbell::new().unwrap();
    let (here, mut there) = UnixStream::pair().unwrap();
    let mut sleep = |readable, writable, timeout| {
        doorbell.prepare();
        let woken = doorbell.wait([WatchedDescriptor { fd: here.as_fd(), readable, writable }], timeout).unwrap();
        doorbell.cancel();
        woken
    };
    assert!(!sleep(true, false, SHORT));
    assert!(sleep(false, true, LONG));
    there.write_all(b"x").unwrap();
    assert!(sleep(true, false, LONG));
    drop(there);
    assert!(sleep(false, false, LONG), "the end of a socket always wakes");
}
