//! What jemalloc says of itself, and what it can be told.

use std::ffi::{CStr, CString};

use tikv_jemalloc_ctl::{epoch, raw, stats, stats_print};

/// Bytes, by how near they are to being given back.
#[derive(Clone, Copy, Default, Debug)]
pub struct Figures {
    pub allocated: usize,
    /// In pages that hold something.
    pub active: usize,
    /// In pages that the kernel has given.
    pub resident: usize,
    /// In pages that the kernel may take back.
    pub muzzy: usize,
}

/// The figures of now. Takes some microseconds for each arena.
pub fn figures() -> Figures {
    // Each fails only if jemalloc was built without statistics; then there is nothing to say.
    let _ = epoch::advance();
    // SAFETY: the control is a `size_t`.
    let muzzy_pages =
        unsafe { raw::read::<usize>(c"stats.arenas.4096.pmuzzy".to_bytes_with_nul()) };
    Figures {
        allocated: stats::allocated::read().unwrap_or(0),
        active: stats::active::read().unwrap_or(0),
        resident: stats::resident::read().unwrap_or(0),
        muzzy: muzzy_pages.unwrap_or(0) * rustix::param::page_size(),
    }
}

/// Gives pages without content back to the kernel; `false` if jemalloc refused.
pub fn purge() -> bool {
    // 4096 stands for all arenas, as MALLCTL_ARENAS_ALL does.
    let name = c"arena.4096.purge";
    // SAFETY: the control takes no value and returns none, so all pointers are null.
    let result = unsafe {
        tikv_jemalloc_sys::mallctl(
            name.as_ptr(),
            std::ptr::null_mut(),
            std::ptr::null_mut(),
            std::ptr::null_mut(),
            0,
        )
    };
    result == 0
}

/// jemalloc's own report.
pub fn report() -> String {
    let mut report = Vec::new();
    match stats_print::stats_print(&mut report, stats_print::Options::default()) {
        Ok(()) => String::from_utf8_lossy(&report).into_owned(),
        Err(error) => format!("The allocator does not report: {error}"),
    }
}

/// Reads a control that is a number, after setting it if a value is given; the error is the system's
/// text. The size of the number is found by trying.
pub fn control_integer(name: &[u8], value: Option<i64>) -> Result<i64, String> {
    let name = control_name(name)?;
    let name = name.as_bytes_with_nul();
    // SAFETY: jemalloc compares the size with that of the control, and any bits are a number.
    unsafe {
        if let Some(value) = value {
            let wrote = raw::write::<i64>(name, value)
                .or_else(|_| raw::write::<i32>(name, value as i32))
                .or_else(|_| raw::write::<u8>(name, u8::from(value != 0)));
            wrote.map_err(text)?;
        }
        raw::read::<i64>(name)
            .or_else(|_| raw::read::<i32>(name).map(i64::from))
            .or_else(|_| raw::read::<u8>(name).map(i64::from))
            .map_err(text)
    }
}

/// Reads a control that is a text.
pub fn control_text(name: &[u8]) -> Result<Vec<u8>, String> {
    let name = control_name(name)?;
    // Only these are texts: reading a number as one would follow it as a pointer.
    let is_text = TEXTS.iter().any(|known| known.to_bytes() == name.as_bytes());
    if !is_text {
        return Err("Invalid argument".into());
    }
    // SAFETY: the listed controls are C strings that live as long as the process.
    let found = unsafe { raw::read::<*const std::ffi::c_char>(name.as_bytes_with_nul()) };
    let pointer = found.map_err(text)?;
    if pointer.is_null() {
        return Ok(Vec::new());
    }
    // SAFETY: as above, and it is not null.
    Ok(unsafe { CStr::from_ptr(pointer) }.to_bytes().to_vec())
}

fn control_name(name: &[u8]) -> Result<CString, String> {
    CString::new(name).map_err(|_| "No such file or directory".into())
}

fn text(error: tikv_jemalloc_ctl::Error) -> String {
    let text = error.to_string();
    // Keep what the system calls it.
    if text.contains("unknown") { "No such file or directory" } else { "Invalid argument" }.into()
}

/// Controls whose value is a text.
const TEXTS: [&CStr; 6] = [
    c"version",
    c"config.malloc_conf",
    c"opt.metadata_thp",
    c"opt.dss",
    c"opt.percpu_arena",
    c"opt.thp",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_of_the_allocator() {
        let figures = figures();
        assert!(figures.allocated > 0 && figures.allocated <= figures.active);
        assert!(control_integer(b"arenas.narenas", None).unwrap() > 0);
        assert!(control_integer(b"no.such", None).is_err());
        assert!(control_text(b"version").unwrap().starts_with(b"5."));
        assert!(control_text(b"arenas.narenas").is_err());
        assert!(purge());
        assert!(report().contains("jemalloc"));
    }
}
