//! The terminal: keys in, frames out, and everything as it was at the end.

use std::{
    io, panic,
    process::ExitCode,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use ratatui::{
    DefaultTerminal,
    crossterm::{cursor, execute},
};
use signal_hook::{
    consts::{SIGHUP, SIGTERM},
    flag, low_level,
};

use super::{
    draw,
    model::{Action, TopModel},
    sampler::{News, Sampler, SamplerOrder},
};
use crate::{interrupt, keyboard::Keyboard, terminal};

/// Shows the model until the user quits or a signal comes.
pub fn run(model: TopModel, sampler: Sampler, started: Instant) -> ExitCode {
    let mut screen = match Screen::open() {
        Ok(screen) => screen,
        Err(error) => {
            complain!("The terminal cannot be used: {error}");
            return ExitCode::FAILURE;
        }
    };
    let shown = screen.show(model, &sampler, started);
    let signal = screen.signal.load(Ordering::SeqCst);
    drop(screen);
    // The thread may be waiting for the server: it ends with the process.
    if let Ok(signal @ 1..) = i32::try_from(signal)
        && let Err(error) = low_level::emulate_default_handler(signal)
    {
        complain!("{error}");
        return ExitCode::FAILURE;
    }
    match shown {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            if terminal::is_terminal() {
                complain!("The terminal failed: {error}");
            }
            ExitCode::FAILURE
        }
    }
}

/// A terminal that shows nothing else. Dropped, it is as it was.
struct Screen {
    /// `None` only while it is dropped.
    terminal: Option<DefaultTerminal>,
    /// The signal that ends the program, or 0.
    signal: Arc<AtomicUsize>,
}

impl Screen {
    fn open() -> io::Result<Self> {
        let signal = Arc::new(AtomicUsize::new(0));
        for ending in [SIGTERM, SIGHUP] {
            flag::register_usize(ending, Arc::clone(&signal), ending.unsigned_abs() as usize)?;
        }
        show_cursor_on_panic();
        // It puts a hook of its own before that one, which takes the terminal back.
        let terminal = ratatui::try_init().inspect_err(|_| ratatui::restore())?;
        Ok(Self { terminal: Some(terminal), signal })
    }

    fn show(&mut self, mut model: TopModel, sampler: &Sampler, started: Instant) -> io::Result<()> {
        let hold = interrupt::hold();
        let mut keyboard = Keyboard::new(io::stdin());
        let (mut silence_s, mut size) = (0, None);
        let mut is_changed = true;
        while !hold.is_pressed() && self.signal.load(Ordering::SeqCst) == 0 {
            model.tick(started.elapsed());
            if let Some(terminal) = &mut self.terminal {
                let (size_now, silence_now_s) = (terminal.size()?, model.silence().as_secs());
                is_changed |= size != Some(size_now) || silence_s != silence_now_s;
                (size, silence_s) = (Some(size_now), silence_now_s);
                if is_changed {
                    terminal.draw(|frame| draw::draw(frame, &model))?;
                }
            }
            let Some(keys) = keyboard.keys(MOMENT)? else { return Ok(()) };
            is_changed = !keys.is_empty();
            for key in keys {
                let order = match model.handle(key) {
                    Action::None => continue,
                    Action::Quit => return Ok(()),
                    Action::Look(view) => SamplerOrder::Ask(view.question()),
                    Action::Kill(id) => SamplerOrder::Kill(id),
                    Action::Freeze(is_frozen) => SamplerOrder::Freeze(is_frozen),
                };
                if sampler.orders.try_send(order).is_err() {
                    model.notice = Some("The server is too slow for that.".into());
                }
            }
            while let Ok(news) = sampler.news.try_recv() {
                is_changed = true;
                match news {
                    News::Sample(sample) => model.take(*sample),
                    News::Lost(reason) => model.lose(reason),
                    News::Notice(notice) => model.notice = Some(notice),
                }
            }
        }
        Ok(())
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let terminal = self.terminal.take();
        if ratatui::try_restore().is_err() {
            // It has gone. Dropped, it would tell that to nobody, and fail.
            std::mem::forget(terminal);
        }
    }
}

fn show_cursor_on_panic() {
    let before = panic::take_hook();
    panic::set_hook(Box::new(move |panic| {
        if let Err(error) = execute!(io::stdout(), cursor::Show) {
            complain!("The cursor is still hidden: {error}");
        }
        before(panic);
    }));
}

/// Between two looks for what is new.
const MOMENT: Duration = Duration::from_millis(50);
