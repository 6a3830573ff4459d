//! Exceptions of libtorch.

use std::ffi::{CStr, c_char};

/// A result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// What libtorch threw.
#[derive(Debug, thiserror::Error)]
#[error("{doing}: {text}")]
pub struct Error {
    /// What it was asked for.
    pub doing: &'static str,
    /// Its first line; the lines after it are libtorch's own stack.
    pub text: String,
}

unsafe extern "C" {
    fn stoker_text_free(text: *mut c_char);
}

impl Error {
    /// Takes over the text of an exception.
    ///
    /// # Safety
    /// `text` is null, or a string that ends with 0 and that this crate's C++ allocated and nobody has freed.
    pub(crate) unsafe fn take(doing: &'static str, text: *mut c_char) -> Self {
        if text.is_null() {
            return Self { doing, text: "no memory for the reason".to_owned() };
        }
        // SAFETY: it ends with 0 and lives until it is freed below, as the caller promises.
        let all = unsafe { CStr::from_ptr(text) }.to_string_lossy();
        let first = all.lines().next().unwrap_or_default().to_owned();
        drop(all);
        // SAFETY: allocated by this crate's C++ and freed once, here; nothing borrows it any more.
        unsafe { stoker_text_free(text) };
        Self { doing, text: first }
    }
}
