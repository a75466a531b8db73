//! The threads of a process persist, and a forked child creates its own. In its own test program, because it counts
//! threads and a child has only the forking thread.

use ripieno_kernels::Threads;
use std::collections::BTreeSet;
use std::fs;
use std::sync::Mutex;

/// Return the kernel thread IDs of this process.
fn threads_of_this_process() -> BTreeSet<String> {
    let entries = fs::read_dir("/proc/self/task").unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

/// Return the number of threads that arrive at a barrier of `count`.
fn count_at_barrier(count: usize) -> usize {
    let arrived = Mutex::new(BTreeSet::new());
    Threads::new(count).run(|member| {
        arrived.lock().unwrap().insert(member.index());
        member.wait();
    });
    arrived.into_inner().unwrap().len()
}

#[test]
fn threads_persist_between_kernels_and_a_forked_child_creates_its_own() {
    let before = threads_of_this_process();
    assert_eq!(count_at_barrier(4), 4);
    let created = threads_of_this_process();
    assert_eq!(created.len(), before.len() + 3);
    for count in [2, 4, 3, 1, 4] {
        assert_eq!(count_at_barrier(count), count);
        assert_eq!(threads_of_this_process(), created, "no thread starts or ends");
    }

    // SAFETY: no other thread of this program holds a lock, and the child ends without returning.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let is_right =
            threads_of_this_process().len() == 1 && count_at_barrier(3) == 3 && threads_of_this_process().len() == 3;
        // SAFETY: ends the child at once.
        unsafe { libc::_exit(if is_right { 0 } else { 1 }) };
    }
    let mut status = -1;
    // SAFETY: waits for our own child; `status` is ours.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0, "the child has a team of its own");
    assert_eq!(count_at_barrier(4), 4);
    assert_eq!(threads_of_this_process(), created);
}
