//! Passing descriptors to another process over a Unix socket.

use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags,
};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

/// At most so many descriptors go in one message.
const MAX_FDS: usize = 8;

/// Sends `fds`, at most 8, with one byte of the stream. On a non-blocking socket `WouldBlock` means try again.
pub fn send_fds(socket: &UnixStream, fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    assert!((1..=MAX_FDS).contains(&fds.len()), "1 to 8 descriptors go in one message");
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    assert!(control.push(SendAncillaryMessage::ScmRights(fds)), "the buffer holds 8 descriptors");
    let byte = [fds.len() as u8];
    rustix::net::sendmsg(socket, &[IoSlice::new(&byte)], &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Receives the `N` descriptors that one `send_fds` has sent.
pub fn receive_fds<const N: usize>(socket: &UnixStream) -> io::Result<[OwnedFd; N]> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0u8];
    let message =
        rustix::net::recvmsg(socket, &mut [IoSliceMut::new(&mut byte)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
    let mut fds = Vec::with_capacity(N);
    for part in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = part {
            fds.extend(rights);
        }
    }
    if message.bytes == 0 {
        return Err(io::Error::new(
            io::ErrorKind::UnexpectedEof,
            "the peer closed the socket before it sent descriptors",
        ));
    }
    if message.flags.contains(ReturnFlags::CTRUNC) {
        // The buffer holds all that a message can have, so this process may have no more.
        return Err(Errno::MFILE.into());
    }
    fds.try_into().map_err(|fds: Vec<OwnedFd>| {
        io::Error::new(io::ErrorKind::InvalidData, format!("the peer sent {} descriptors, expected {N}", fds.len()))
    })
}
