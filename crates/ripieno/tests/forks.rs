//! A forked child does not change its parent's memory. The test has its own program, because a child has only the
//! forking thread.

use ripieno::BufferPool;

const LENGTH_BYTES: usize = 1 << 20;

#[test]
fn a_forked_child_does_not_share_pool_buffers() {
    let pool = BufferPool::default();
    let [mut first, mut second] = [7, 9].map(|value| {
        let mut buffer = pool.take(LENGTH_BYTES).unwrap();
        buffer.bytes_mut().fill(value);
        buffer
    });
    drop(pool.take(LENGTH_BYTES).unwrap());

    // SAFETY: no other thread of this program holds a lock, and the child exits without returning.
    let child = unsafe { libc::fork() };
    if child == 0 {
        drop((first, second));
        let filled = (0..3).map(|_| {
            let mut buffer = pool.take(LENGTH_BYTES).unwrap();
            buffer.bytes_mut().fill(1);
            buffer
        });
        drop(filled.collect::<Vec<_>>());
        drop(pool);
        // SAFETY: `_exit` ends the child at once.
        unsafe { libc::_exit(0) };
    }
    let mut status = 0;
    // SAFETY: waits for this process's own child; `status` is a local variable.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0, "the child exited normally");

    for (buffer, value) in [(&mut first, 7), (&mut second, 9)] {
        assert!(buffer.bytes_mut().iter().all(|byte| *byte == value), "the parent's bytes are {value}");
    }
}
