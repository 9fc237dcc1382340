//! The terminal in front of the line editor. The editor takes a byte of no character for a failure,
//! keeps what it has read ahead, and draws the line anew for each character of a long text. So it
//! reads a second terminal. A thread feeds that from the first one while a line is edited: bytes of
//! no character as characters that stand for them, long texts as pasted ones, and what is typed
//! ahead line by line, so that the editor does not keep the next line.

use std::{
    fs::File,
    io::{self, ErrorKind, Write},
    os::{
        fd::{AsFd, OwnedFd},
        unix::net::UnixStream,
    },
    thread,
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fs::{Mode, OFlags, open},
    io::{Errno, FdFlags, fcntl_setfd, ioctl_fionbio, ioctl_fionread, read},
    process::{Signal, kill_current_process_group},
    pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt},
    stdio::{dup2_stdin, stdin},
    termios::{OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcsetattr},
};

use super::letters::{Letters, LineEnds};
use crate::keyboard::{Raw, make_raw};

pub struct Front {
    /// What people type on.
    keyboard: OwnedFd,
    /// Where its keys go. There is none once the keyboard has gone.
    feed: Option<File>,
    /// Where the editor finds them.
    editor: OwnedFd,
    letters: Letters,
    /// What the feed has not taken yet.
    waiting: Vec<u8>,
    /// Where lines end in what the feed takes.
    ends: LineEnds,
    /// When the feed took the end of a line, if the editor may still have to read that.
    line_fed: Option<Instant>,
}

impl Front {
    /// In front of the standard input, a terminal.
    pub fn open() -> io::Result<Self> {
        let keyboard = stdin().try_clone_to_owned()?;
        let feed = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY)?;
        fcntl_setfd(&feed, FdFlags::CLOEXEC)?;
        grantpt(&feed)?;
        unlockpt(&feed)?;
        let name = ptsname(&feed, Vec::new())?;
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        let editor = open(name, flags, Mode::empty())?;
        // The editor asks its terminal which keys end the input, and the like.
        let mut modes = tcgetattr(&keyboard)?;
        make_raw(&mut modes);
        tcsetattr(&editor, OptionalActions::Now, &modes)?;
        ioctl_fionbio(&feed, true)?;
        let feed = Some(File::from(feed));
        Ok(Self {
            keyboard,
            feed,
            editor,
            letters: Letters::default(),
            waiting: Vec::new(),
            ends: LineEnds::default(),
            line_fed: None,
        })
    }

    /// Within `edit` the standard input is the editor's terminal. Where the system gives no thread,
    /// the editor reads the keyboard itself.
    pub fn lead<T>(&mut self, edit: impl FnOnce() -> T) -> T {
        let Ok((raw, end, ended)) = self.begin() else { return edit() };
        let outcome = thread::scope(|scope| {
            if thread::Builder::new().spawn_scoped(scope, || self.pump(&ended)).is_err() {
                return Err(edit);
            }
            let _end = end;
            Ok(edit())
        });
        let _ = dup2_stdin(&self.keyboard);
        drop(raw);
        outcome.unwrap_or_else(|edit| edit())
    }

    fn begin(&self) -> io::Result<(Raw<OwnedFd>, UnixStream, UnixStream)> {
        if self.feed.is_none() {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        let (end, ended) = UnixStream::pair()?;
        let raw = Raw::enter(self.keyboard.try_clone()?)?;
        dup2_stdin(&self.editor)?;
        Ok((raw, end, ended))
    }

    /// Whether keys are here that the editor has not read.
    pub fn has_buffered(&self) -> bool {
        !self.waiting.is_empty() || self.has_fed()
    }

    /// Whether the feed has keys that the editor has not read.
    fn has_fed(&self) -> bool {
        ioctl_fionread(&self.editor).is_ok_and(|count| count > 0)
    }

    /// What has the shell stand still in the background, and the key for it.
    pub fn suspension(&self) -> io::Result<(char, Suspension)> {
        let keyboard = self.keyboard.try_clone()?;
        let modes = tcgetattr(&keyboard)?;
        Ok((
            char::from(modes.special_codes[SpecialCodeIndex::VSUSP]),
            Suspension { keyboard, modes },
        ))
    }

    /// Feeds the editor until the other end of `ended` is closed.
    fn pump(&mut self, ended: &UnixStream) {
        let mut buffer = [0; BUFFER_LEN];
        if !self.has_fed() {
            self.line_fed = None;
        }
        loop {
            // With the line the edit ends, mostly, and the next line is fed to the next one. If it
            // goes on, the editor has read the line a moment later: it takes a while until what was
            // fed is seen here.
            let waits = !self.waiting.is_empty()
                && self.line_fed.is_some_and(|at| at.elapsed() < FEED_MOMENT || self.has_fed());
            let Some(feed) = &mut self.feed else { return };
            let next = match self.waiting.is_empty() {
                true => PollFd::new(&self.keyboard, PollFlags::IN),
                false if waits => PollFd::new(ended, PollFlags::IN),
                false => PollFd::from_borrowed_fd(feed.as_fd(), PollFlags::OUT),
            };
            let mut ready = [PollFd::new(ended, PollFlags::IN), next];
            let moment = match waits {
                true => Some(&LINE_MOMENT),
                false => self.letters.is_pasting().then_some(&PASTE_MOMENT),
            };
            let polled = poll(&mut ready, moment);
            let [has_ended, _] = ready.map(|descriptor| !descriptor.revents().is_empty());
            let done = match polled {
                Ok(0) if self.waiting.is_empty() => {
                    self.letters.end_paste(&mut self.waiting);
                    Ok(())
                }
                Ok(0) | Err(Errno::INTR) => Ok(()),
                Ok(_) if has_ended => return,
                Ok(_) if self.waiting.is_empty() => match read(&self.keyboard, &mut buffer) {
                    Ok(0) => Err(ErrorKind::UnexpectedEof.into()),
                    Ok(len) => {
                        self.letters.take(&buffer[..len], &mut self.waiting);
                        Ok(())
                    }
                    Err(error) => Err(io::Error::from(error)),
                },
                Ok(_) => {
                    let mut ends = self.ends;
                    let line = ends.first_line(&self.waiting);
                    feed.write(line).map(|len| {
                        let taken = self.waiting.drain(..len);
                        let is_end = taken.fold(false, |_, byte| self.ends.take(byte));
                        self.line_fed = is_end.then(Instant::now);
                    })
                }
                Err(error) => Err(error.into()),
            };
            if let Err(error) = done
                && !matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::WouldBlock)
            {
                // The keyboard has gone. With the feed the editor's terminal goes too.
                self.feed = None;
            }
        }
    }
}

/// The keyboard as it was before a line is edited, for as long as the shell stands still.
pub struct Suspension {
    keyboard: OwnedFd,
    modes: Termios,
}

impl Suspension {
    pub fn wait(&self) {
        let Ok(edited) = tcgetattr(&self.keyboard) else { return };
        let _ = tcsetattr(&self.keyboard, OptionalActions::Drain, &self.modes);
        let _ = kill_current_process_group(Signal::TSTP);
        let _ = tcsetattr(&self.keyboard, OptionalActions::Drain, &edited);
    }
}

/// For how long a paste may pause, so that it is drawn as one.
const PASTE_MOMENT: Timespec = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
/// How long it may take until the editor can read what it was fed.
const FEED_MOMENT: Duration = Duration::from_millis(50);
/// How often it is looked whether the editor has read a line.
const LINE_MOMENT: Timespec = Timespec { tv_sec: 0, tv_nsec: 1_000_000 };
const BUFFER_LEN: usize = 4096;
