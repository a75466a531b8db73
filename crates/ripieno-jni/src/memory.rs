//! Java memory: direct buffers, identified by their addresses.

use crate::errors::with_exceptions;
use jni::EnvUnowned;
use jni::objects::{Global, JByteBuffer, JClass, JObject};
use jni::sys::jlong;
use ripieno::{BufferMemory, OwnedBuffers};

/// The start address and the length in bytes of a direct buffer.
#[derive(Clone, Copy)]
pub struct DirectRegion {
    at: *mut u8,
    length_bytes: usize,
}

// SAFETY: It is only an address; code that creates a slice from it justifies its soundness.
unsafe impl Send for DirectRegion {}

impl DirectRegion {
    pub fn new(at: jlong, length_bytes: jlong) -> DirectRegion {
        // An empty buffer has no address.
        let at = if length_bytes == 0 { std::ptr::NonNull::<u64>::dangling().as_ptr().cast() } else { at as *mut u8 };
        DirectRegion { at, length_bytes: length_bytes as usize }
    }

    pub fn len(self) -> usize {
        self.length_bytes
    }

    /// # Safety
    /// Java must hold the buffer during `'a`, and no thread may write to it.
    pub unsafe fn read<'a>(self) -> &'a [u8] {
        unsafe { std::slice::from_raw_parts(self.at, self.length_bytes) }
    }

    /// # Safety
    /// Java must hold the buffer during `'a`, and no other code may use it.
    pub unsafe fn write<'a>(self) -> &'a mut [u8] {
        unsafe { std::slice::from_raw_parts_mut(self.at, self.length_bytes) }
    }

    /// Return the buffer as elements.
    ///
    /// # Safety
    /// As for [`DirectRegion::read`]. The address must also be aligned for the type, as all Java allocations are, and
    /// the buffer must contain values of that type.
    pub unsafe fn elements<'a, T>(self) -> &'a [T] {
        debug_assert!(self.at.cast::<T>().is_aligned());
        unsafe { std::slice::from_raw_parts(self.at.cast(), self.length_bytes / size_of::<T>()) }
    }

    /// Return the buffer as mutable elements.
    ///
    /// # Safety
    /// As for [`DirectRegion::write`] and [`DirectRegion::elements`].
    pub unsafe fn elements_mut<'a, T>(self) -> &'a mut [T] {
        debug_assert!(self.at.cast::<T>().is_aligned());
        unsafe { std::slice::from_raw_parts_mut(self.at.cast(), self.length_bytes / size_of::<T>()) }
    }
}

/// The buffers of a background call, and a reference that prevents Java from freeing them.
pub struct HeldBuffers {
    first: DirectRegion,
    second: DirectRegion,
    writes_first: bool,
    _owner: Global<JObject<'static>>,
}

impl HeldBuffers {
    /// `owner` is the Java object that owns the regions.
    pub fn new(
        first: DirectRegion,
        second: DirectRegion,
        writes_first: bool,
        owner: Global<JObject<'static>>,
    ) -> HeldBuffers {
        HeldBuffers { first, second, writes_first, _owner: owner }
    }
}

// SAFETY: Direct buffers do not move, and the reference keeps them alive. The handle's documentation requires callers
// to use them nowhere else.
unsafe impl OwnedBuffers for HeldBuffers {
    fn buffers(&mut self) -> [BufferMemory<'_>; 2] {
        let first = match self.writes_first {
            true => BufferMemory::Write(unsafe { self.first.write() }),
            false => BufferMemory::Read(unsafe { self.first.read() }),
        };
        [first, BufferMemory::Write(unsafe { self.second.write() })]
    }
}

/// Return the start address of a direct buffer of any class.
#[unsafe(no_mangle)]
extern "system" fn Java_org_ripieno_Native_address<'local>(
    env: EnvUnowned<'local>,
    _class: JClass<'local>,
    buffer: JObject<'local>,
) -> jlong {
    with_exceptions(env, |env| {
        // SAFETY: The JVM supports this call for direct buffers of all classes; the Java side has checked that it is
        // one.
        let buffer = unsafe { JByteBuffer::from_raw(env, buffer.into_raw()) };
        Ok(env.get_direct_buffer_address(&buffer)? as jlong)
    })
}
