//! Memory of Java's: direct buffers, by their addresses.

use crate::errors::answered;
use jni::EnvUnowned;
use jni::objects::{Global, JByteBuffer, JClass, JObject};
use jni::sys::jlong;
use ripieno::{BufferMemory, OwnedBuffers};

/// Where a direct buffer begins, and how long it is in bytes.
#[derive(Clone, Copy)]
pub struct DirectRegion {
    at: *mut u8,
    length_bytes: usize,
}

// SAFETY: it is an address; whoever makes a slice of it says why that is sound.
unsafe impl Send for DirectRegion {}

impl DirectRegion {
    pub fn new(at: jlong, length_bytes: jlong) -> DirectRegion {
        // No memory has no address.
        let at = if length_bytes == 0 { std::ptr::NonNull::<u64>::dangling().as_ptr().cast() } else { at as *mut u8 };
        DirectRegion { at, length_bytes: length_bytes as usize }
    }

    pub fn len(self) -> usize {
        self.length_bytes
    }

    /// # Safety
    /// Java holds the buffer for so long, and nobody writes to it.
    pub unsafe fn read<'a>(self) -> &'a [u8] {
        unsafe { std::slice::from_raw_parts(self.at, self.length_bytes) }
    }

    /// # Safety
    /// Java holds the buffer for so long, and nobody else uses it.
    pub unsafe fn write<'a>(self) -> &'a mut [u8] {
        unsafe { std::slice::from_raw_parts_mut(self.at, self.length_bytes) }
    }

    /// The same as elements.
    ///
    /// # Safety
    /// As for [`DirectRegion::read`]; and it begins where such an element may, as all that Java allocates do, and is filled
    /// with values of that type.
    pub unsafe fn elements<'a, T>(self) -> &'a [T] {
        debug_assert!(self.at.cast::<T>().is_aligned());
        unsafe { std::slice::from_raw_parts(self.at.cast(), self.length_bytes / size_of::<T>()) }
    }

    /// The same to write to.
    ///
    /// # Safety
    /// As for [`DirectRegion::write`] and [`DirectRegion::elements`].
    pub unsafe fn elements_mut<'a, T>(self) -> &'a mut [T] {
        debug_assert!(self.at.cast::<T>().is_aligned());
        unsafe { std::slice::from_raw_parts_mut(self.at.cast(), self.length_bytes / size_of::<T>()) }
    }
}

/// Buffers of a call that goes on by itself, and what keeps Java from freeing them.
pub struct HeldBuffers {
    first: DirectRegion,
    second: DirectRegion,
    writes_first: bool,
    _kept: Global<JObject<'static>>,
}

impl HeldBuffers {
    /// `kept` is what the regions lie in.
    pub fn new(
        first: DirectRegion,
        second: DirectRegion,
        writes_first: bool,
        kept: Global<JObject<'static>>,
    ) -> HeldBuffers {
        HeldBuffers { first, second, writes_first, _kept: kept }
    }
}

// SAFETY: direct buffers do not move, and the reference keeps them; that nobody else uses them is what the handle's
// documentation asks of callers.
unsafe impl OwnedBuffers for HeldBuffers {
    fn buffers(&mut self) -> [BufferMemory<'_>; 2] {
        let first = match self.writes_first {
            true => BufferMemory::Write(unsafe { self.first.write() }),
            false => BufferMemory::Read(unsafe { self.first.read() }),
        };
        [first, BufferMemory::Write(unsafe { self.second.write() })]
    }
}

/// Where a direct buffer of any class begins.
#[unsafe(no_mangle)]
extern "system" fn Java_org_ripieno_Native_address<'local>(
    env: EnvUnowned<'local>,
    _class: JClass<'local>,
    buffer: JObject<'local>,
) -> jlong {
    answered(env, |env| {
        // SAFETY: the machine answers for direct buffers of all classes; Java's side has seen that it is one.
        let buffer = unsafe { JByteBuffer::from_raw(env, buffer.into_raw()) };
        Ok(env.get_direct_buffer_address(&buffer)? as jlong)
    })
}
