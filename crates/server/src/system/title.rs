//! What the process is called in lists of processes (`set-proc-title`, `proc-title-template`).
//!
//! Linux shows the memory where the arguments lie, and the environment behind them when the
//! arguments do not end in a zero. Both are ours once the environment's variables have been copied
//! elsewhere; the title is written there.

use std::ffi::{CStr, OsString, c_char};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use bobbin_sync::Mutex;

use crate::config::{Config, OptionId};

static ROOM: Mutex<Option<TitleRoom>> = Mutex::new(None);

struct TitleRoom {
    /// The program, as it was called.
    name: Vec<u8>,
    bytes: &'static mut [u8],
}

/// Takes the memory of the arguments and of the environment for titles. Without it, where there is
/// no such memory, the title stays as it is.
///
/// # Safety
/// There is one thread only, and nothing keeps a pointer to an argument or to a variable of the
/// environment.
pub unsafe fn reserve() {
    let Some((start, end)) = std::fs::read("/proc/self/stat").ok().and_then(|stat| extent(&stat))
    else {
        return;
    };
    let name = std::env::args_os().next().map(OsString::into_vec).unwrap_or_default();
    // SAFETY: the environment is a list of pointers to texts that ends in a null, and nothing else
    // looks at it now.
    unsafe {
        let mut next = libc_environment();
        while !next.is_null() && !(*next).is_null() {
            if (start..end).contains(&(*next as usize)) {
                *next = CStr::from_ptr(*next).to_owned().into_raw();
            }
            next = next.add(1);
        }
    }
    let len = (end - start).min(ROOM_MAX);
    // SAFETY: the kernel has put the arguments and the environment there, in one piece; it stays as
    // long as the process, is writable, and nothing else uses it any more.
    let bytes = unsafe { std::slice::from_raw_parts_mut(start as *mut u8, len) };
    *ROOM.lock() = Some(TitleRoom { name, bytes });
}

/// Shows the title that the configuration asks for.
pub fn show(config: &Config) {
    let mut room = ROOM.lock();
    let Some(room) = room.as_mut().filter(|_| config.set_proc_title()) else { return };
    let title =
        render(&config.proc_title_template(), |variable| value(config, &room.name, variable));
    // The last byte stays zero.
    let len = title.len().min(room.bytes.len() - 1);
    room.bytes.fill(0);
    room.bytes[..len].copy_from_slice(&title[..len]);
}

/// Where arguments and environment begin and end, by fields 48 to 51 of `stat`.
fn extent(stat: &[u8]) -> Option<(usize, usize)> {
    // The name of the program, in parentheses, may be anything.
    let after_name = stat.iter().rposition(|&byte| byte == b')')? + 2;
    let fields = str::from_utf8(stat.get(after_name..)?).ok()?;
    let numbers: Vec<usize> = fields
        .split_whitespace()
        .skip(48 - 3)
        .take(4)
        .filter_map(|text| text.parse().ok())
        .collect();
    let &[arguments, arguments_end, environment, end] = &numbers[..] else { return None };
    let in_one_piece =
        arguments_end == environment && arguments < environment && environment <= end;
    (arguments > 0 && in_one_piece).then_some((arguments, end))
}

/// Fills in `{variables}`; `{{` is a brace. The template has been checked.
fn render(template: &[u8], value: impl Fn(&[u8]) -> Vec<u8>) -> Vec<u8> {
    let (mut title, mut rest) = (Vec::new(), template);
    while let Some(at) = rest.iter().position(|&byte| byte == b'{') {
        title.extend_from_slice(&rest[..at]);
        rest = &rest[at + 1..];
        if let [b'{', after @ ..] = rest {
            title.push(b'{');
            rest = after;
        } else if let Some(end) = rest.iter().position(|&byte| byte == b'}') {
            title.extend(value(&rest[..end]));
            rest = &rest[end + 1..];
        }
    }
    title.extend_from_slice(rest);
    title.truncate(title.trim_ascii_end().len());
    title
}

fn value(config: &Config, name: &[u8], variable: &[u8]) -> Vec<u8> {
    let port = config.port();
    match variable {
        b"title" => name.to_vec(),
        b"port" => port.to_string().into(),
        b"tls-port" => config.tls_port().to_string().into(),
        b"unixsocket" => config.unixsocket().to_vec(),
        b"config-file" => {
            config.file().map(|path| path.as_os_str().as_bytes().to_vec()).unwrap_or_default()
        }
        b"listen-addr" if port == 0 => config.unixsocket().to_vec(),
        b"listen-addr" => {
            let addresses = config.words_of(OptionId::bind);
            let first = addresses.first().map_or("*", |address| address.trim_start_matches('-'));
            format!("{first}:{port}").into()
        }
        // `server-mode`: neither of a cluster nor a sentinel.
        _ => Vec::new(),
    }
}

/// The list of the environment's variables.
///
/// # Safety
/// There is one thread only.
unsafe fn libc_environment() -> *mut *mut c_char {
    unsafe extern "C" {
        static mut environ: *mut *mut c_char;
    }
    // SAFETY: it is the C library's, of this type.
    unsafe { environ }
}

/// A title needs no more, however large the environment is.
const ROOM_MAX: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_the_arguments_lie() {
        let fields: Vec<String> = (4..=52).map(|field| (field * 10).to_string()).collect();
        let stat = |numbers: [&str; 4]| {
            let mut fields = fields.clone();
            for (at, number) in numbers.into_iter().enumerate() {
                number.clone_into(&mut fields[48 - 4 + at]);
            }
            format!("17 (a) b (c) S {}\n", fields.join(" ")).into_bytes()
        };
        assert_eq!(extent(&stat(["100", "150", "150", "300"])), Some((100, 300)));
        assert_eq!(extent(&stat(["100", "150", "160", "300"])), None);
        assert_eq!(extent(&stat(["0", "0", "0", "0"])), None);
        assert_eq!(extent(b"17 (x) S 1 2"), None);
        assert_eq!(extent(b""), None);
    }

    #[test]
    fn variables_are_filled_in() {
        let value = |name: &[u8]| [b"<", name, b">"].concat();
        let shown = |template: &[u8]| String::from_utf8(render(template, value)).unwrap();
        assert_eq!(shown(b"a {title} {{x} {port}  "), "a <title> {x} <port>");
        assert_eq!(shown(b"{unended"), "unended");
    }
}
