//! Passes descriptors to another process over a Unix socket.

use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags,
};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

/// Limit of descriptors per message.
const MAX_FDS: usize = 8;

/// Send `fds`, at most 8, with one byte of the stream. `WouldBlock` on a non-blocking socket means try again.
pub fn send_fds(socket: &UnixStream, fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    assert!((1..=MAX_FDS).contains(&fds.len()), "a message carries 1 to 8 descriptors");
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    assert!(control.push(SendAncillaryMessage::ScmRights(fds)), "the buffer holds 8 descriptors");
    let byte = [fds.len() as u8];
    rustix::net::sendmsg(socket, &[IoSlice::new(&byte)], &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Receive the `N` descriptors of one `send_fds` call.
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
        // The buffer is large enough for any message, so this process has reached its limit of descriptors.
        return Err(Errno::MFILE.into());
    }
    fds.try_into().map_err(|fds: Vec<OwnedFd>| {
        io::Error::new(io::ErrorKind::InvalidData, format!("the peer sent {} descriptors, expected {N}", fds.len()))
    })
}
