//! Pointers that callers of the driver hand in. This and `host.rs` are the only files that follow one.
//!
//! A value of these types exists only as an argument of an exported function. Its caller promised, as CUDA's manual
//! asks, that the pointer is null or points to what the function is said to read or write, until the function returns.

use core::ffi::{CStr, c_char, c_void};

use crate::codes::{Code, Outcome};

/// Where a result goes.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct Out<T>(*mut T);

impl<T> Out<T> {
    pub(super) fn is_null(&self) -> bool {
        self.0.is_null()
    }

    /// Writes a result; [`Code::INVALID_VALUE`] where there is no room for it.
    pub(super) fn set(self, value: T) -> Outcome {
        if self.0.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        // SAFETY: not null, so the caller promised that it can be written.
        unsafe { self.0.write_unaligned(value) };
        Ok(())
    }

    /// Writes a result if somebody wants it.
    pub(super) fn set_if_wanted(self, value: T) {
        let _ = self.set(value);
    }

    /// Writes several results one after the other, as many as the caller made room for.
    pub(super) fn set_all(self, values: &[T]) -> Outcome
    where
        T: Copy,
    {
        for (at, value) in values.iter().enumerate() {
            if self.0.is_null() {
                return Err(Code::INVALID_VALUE);
            }
            // SAFETY: not null, so the caller promised room for as many values as the function is told to write.
            unsafe { self.0.add(at).write_unaligned(*value) };
        }
        Ok(())
    }

    /// Reads what is there, for arguments that go both ways.
    pub(super) fn get(self) -> Outcome<T>
    where
        T: Copy,
    {
        In(self.0.cast_const()).get()
    }

    /// The same place, as a number.
    pub(super) fn address(self) -> usize {
        self.0.expose_provenance()
    }

    /// The same place, taken for another kind of value.
    pub(super) fn cast<U>(self) -> Out<U> {
        Out(self.0.cast())
    }
}

/// Where an argument lies, or several.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct In<T>(*const T);

impl<T> From<Out<T>> for In<T> {
    fn from(out: Out<T>) -> Self {
        Self(out.0.cast_const())
    }
}

impl<T> In<T> {
    /// No argument.
    pub(super) const fn null() -> Self {
        Self(core::ptr::null())
    }
}

impl<T: Copy> In<T> {
    pub(super) fn is_null(&self) -> bool {
        self.0.is_null()
    }

    pub(super) fn get(self) -> Outcome<T> {
        if self.0.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        // SAFETY: not null, so the caller promised that it can be read; `T` is plain data that any bytes make valid.
        Ok(unsafe { self.0.read_unaligned() })
    }

    pub(super) fn list(self, count: usize) -> Outcome<Vec<T>> {
        if count == 0 {
            return Ok(Vec::new());
        }
        if self.0.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        // SAFETY: as for `get`, for `count` values one after the other.
        Ok((0..count).map(|at| unsafe { self.0.add(at).read_unaligned() }).collect())
    }
}

/// A text that ends with a zero.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct Text(*const c_char);

impl Text {
    pub(super) fn get(self) -> Outcome<String> {
        if self.0.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        // SAFETY: not null, so the caller promised a text with a zero at its end.
        let text = unsafe { CStr::from_ptr(self.0) };
        text.to_str().map(str::to_owned).map_err(|_| Code::INVALID_VALUE)
    }
}

/// Memory of the program, which is touched later.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(transparent)]
pub struct Host(*mut c_void);

impl Host {
    pub(super) fn is_null(&self) -> bool {
        self.0.is_null()
    }

    pub(super) fn address(self) -> usize {
        self.0.expose_provenance()
    }

    pub(super) fn pointer(self) -> *mut c_void {
        self.0
    }

    /// What an image of a module begins with.
    pub(super) fn as_text(self) -> Text {
        Text(self.0.cast())
    }

    /// Its first four bytes, as a number.
    pub(super) fn magic(self) -> Outcome<u32> {
        In(self.0.cast::<u32>().cast_const()).get()
    }

    /// Bytes, copied now.
    pub(super) fn bytes(self, count: usize) -> Outcome<Vec<u8>> {
        In(self.0.cast::<u8>().cast_const()).list(count)
    }
}

/// Where the arguments of a kernel lie, one pointer each.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct Arguments(*const Host);

impl Arguments {
    /// No arguments.
    pub(super) const fn null() -> Self {
        Self(core::ptr::null())
    }

    pub(super) fn is_null(&self) -> bool {
        self.0.is_null()
    }

    /// The bytes of one argument.
    pub(super) fn bytes(self, at: usize, count: usize) -> Outcome<Vec<u8>> {
        if self.0.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        // SAFETY: not null, so the caller promised a pointer for each of the kernel's parameters.
        let argument = unsafe { self.0.add(at).read_unaligned() };
        argument.bytes(count)
    }
}
