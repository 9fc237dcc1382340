//! Where lines come from: a person with an editor, or a pipe.

use std::{
    borrow::Cow,
    cell::RefCell,
    fs::OpenOptions,
    io::{self, BufRead, BufReader, ErrorKind, Write},
    os::unix::fs::OpenOptionsExt,
    path::PathBuf,
    rc::Rc,
};

use bobbin_client::{Target, Transport, error_text};
use rustyline::{
    Cmd, ColorMode, CompletionType, ConditionalEventHandler, Config, Context, Editor, Event,
    EventContext, EventHandler, Helper, KeyEvent, Modifiers, Movement, RepeatCount,
    completion::Completer,
    error::ReadlineError,
    highlight::{CmdKind, Highlighter},
    hint::Hinter,
    history::DefaultHistory,
    validate::Validator,
};

use super::{
    completion::{self, ServerLookups, Suggestion, suggestions},
    docs::Docs,
    front::{Front, Suspension},
    hint, history, letters,
    menu::{self, Choice},
};
use crate::terminal;

/// Lines, one after the other.
pub enum LineSource {
    Typed(Box<Typed>),
    Piped(BufReader<io::Stdin>),
}

/// What a request for a line gave.
pub enum LineRead {
    Text(Vec<u8>),
    End,
    /// There is no more, because of an error that has been said.
    Failed,
}

impl LineSource {
    pub fn open() -> Self {
        if terminal::is_typed()
            && let Some(typed) = Typed::open()
        {
            return Self::Typed(Box::new(typed));
        }
        Self::Piped(BufReader::new(io::stdin()))
    }

    /// The next line. A pipe gets no prompt.
    pub fn next(&mut self, prompt: &str) -> LineRead {
        match self {
            Self::Typed(typed) => loop {
                match typed.read_line(prompt) {
                    Ok(line) => break LineRead::Text(letters::bytes(&line)),
                    Err(ReadlineError::Eof | ReadlineError::Interrupted) => break LineRead::End,
                    Err(ReadlineError::Io(error)) if error.kind() == ErrorKind::InvalidData => {
                        complain!("Error: that is not UTF-8. Write such bytes as \"\\xfc\".");
                    }
                    Err(error) => {
                        complain!("Error: {error}");
                        break LineRead::Failed;
                    }
                }
            },
            Self::Piped(input) => {
                let mut line = Vec::new();
                match input.read_until(b'\n', &mut line) {
                    Ok(0) => LineRead::End,
                    Err(error) => {
                        complain!("Error: {}", error_text(&error));
                        LineRead::Failed
                    }
                    Ok(_) => {
                        line.pop_if(|byte| *byte == b'\n');
                        LineRead::Text(line)
                    }
                }
            }
        }
    }

    /// Whether a line, or the end, is there without waiting for the descriptor.
    pub fn has_buffered(&self) -> bool {
        match self {
            Self::Typed(typed) => typed.front.as_ref().is_some_and(Front::has_buffered),
            Self::Piped(input) => !input.buffer().is_empty(),
        }
    }

    /// Keeps a line for the arrow keys, and for the next session unless it is secret.
    pub fn remember(&mut self, line: &[u8], secret: bool) {
        if let Self::Typed(typed) = self {
            typed.remember(line, secret);
        }
    }

    pub fn clear_screen(&mut self) {
        if let Self::Typed(typed) = self {
            let _ = typed.editor.clear_screen();
        }
    }

    /// Whether hints and completion are of use.
    pub fn is_typed(&self) -> bool {
        matches!(self, Self::Typed(_))
    }

    pub fn set_docs(&mut self, docs: Option<Rc<Docs>>) {
        if let Self::Typed(typed) = self
            && let Some(assistant) = typed.editor.helper_mut()
        {
            assistant.docs = docs;
        }
    }

    /// Where completion may ask for keys and the like.
    pub fn set_place(&mut self, target: Target, transport: Transport) {
        if let Self::Typed(typed) = self
            && let Some(assistant) = typed.editor.helper_mut()
        {
            assistant.lookups.get_mut().go_to(target, transport);
        }
    }

    pub fn set_hints(&mut self, hints: bool) {
        if let Self::Typed(typed) = self
            && let Some(assistant) = typed.editor.helper_mut()
        {
            assistant.hints = hints;
        }
    }
}

/// A line editor with its history.
pub struct Typed {
    editor: Editor<Assistant, DefaultHistory>,
    /// What the editor reads by, where the terminal is more than a line printer.
    front: Option<Front>,
    file: Option<PathBuf>,
}

impl Typed {
    fn open() -> Option<Self> {
        let colours =
            if terminal::has_colours() { ColorMode::Enabled } else { ColorMode::Disabled };
        let config = Config::builder()
            .max_history_size(HISTORY_LINES_MAX)
            .and_then(|config| config.history_ignore_dups(true))
            .ok()?
            .completion_type(CompletionType::List)
            .completion_show_all_if_ambiguous(true)
            .color_mode(colours)
            // Pasted lines are commands one by one, not one text with line feeds in it.
            .bracketed_paste(false)
            .build();
        let mut editor = Editor::with_config(config).ok()?;
        editor.set_helper(Some(Assistant::default()));
        let clear = EventHandler::Conditional(Box::new(ClearLine));
        editor.bind_sequence(KeyEvent::ctrl('C'), clear);
        let front = terminal::can_edit().then(Front::open).and_then(Result::ok);
        // Without a key (`stty susp undef`) the code is 0, which is that of other keys.
        let suspension = front.as_ref().and_then(|front| front.suspension().ok());
        if let Some((key, suspension)) = suspension.filter(|(key, _)| *key != '\0') {
            let suspend = EventHandler::Conditional(Box::new(Suspend(suspension)));
            editor.bind_sequence(KeyEvent::new(key, Modifiers::NONE), suspend);
        }
        let file = history::file();
        let text = file.as_ref().and_then(|file| std::fs::read(file).ok()).unwrap_or_default();
        for line in text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            let _ = editor.add_history_entry(letters::characters(line));
        }
        Some(Self { editor, front, file })
    }

    fn read_line(&mut self, prompt: &str) -> rustyline::Result<String> {
        if let Some(assistant) = self.editor.helper_mut() {
            assistant.prompt_len = prompt.chars().count();
        }
        match &mut self.front {
            Some(front) => front.lead(|| self.editor.readline(prompt)),
            None => self.editor.readline(prompt),
        }
    }

    fn remember(&mut self, line: &[u8], secret: bool) {
        let _ = self.editor.add_history_entry(letters::characters(line));
        if secret {
            return;
        }
        // A history that cannot be written is no reason to complain at every line.
        let _ = self.append(line);
    }

    /// Other shells may write to the file too: it is only appended to, and shortened now and then.
    fn append(&self, line: &[u8]) -> io::Result<()> {
        let Some(file) = &self.file else { return Ok(()) };
        let line = line.iter().map(|byte| if *byte == b'\n' { b' ' } else { *byte });
        let line: Vec<u8> = line.chain([b'\n']).collect();
        let mut open = OpenOptions::new();
        open.append(true).create(true).mode(HISTORY_MODE).open(file)?.write_all(&line)?;
        let text = std::fs::read(file)?;
        let lines = text.split_inclusive(|byte| *byte == b'\n');
        let surplus = lines.clone().count().saturating_sub(HISTORY_LINES_MAX);
        if surplus > HISTORY_LINES_MAX / 10 {
            std::fs::write(file, lines.skip(surplus).collect::<Vec<_>>().concat())?;
        }
        Ok(())
    }
}

/// Ctrl-C forgets what has been typed. Only where nothing has it ends the shell, as it always did.
struct ClearLine;

impl ConditionalEventHandler for ClearLine {
    fn handle(
        &self,
        _event: &Event,
        _count: RepeatCount,
        _positive: bool,
        context: &EventContext<'_>,
    ) -> Option<Cmd> {
        (!context.line().is_empty()).then_some(Cmd::Kill(Movement::WholeBuffer))
    }
}

/// The editor would only set its own terminal's modes back.
struct Suspend(Suspension);

impl ConditionalEventHandler for Suspend {
    fn handle(
        &self,
        _event: &Event,
        _count: RepeatCount,
        _positive: bool,
        _context: &EventContext<'_>,
    ) -> Option<Cmd> {
        self.0.wait();
        Some(Cmd::Repaint)
    }
}

/// Completes and hints from what the server documents.
#[derive(Default)]
struct Assistant {
    docs: Option<Rc<Docs>>,
    hints: bool,
    lookups: RefCell<ServerLookups>,
    /// The columns before the line.
    prompt_len: usize,
}

impl Helper for Assistant {}
impl Validator for Assistant {}

impl Completer for Assistant {
    type Candidate = Suggestion;

    fn complete(
        &self,
        line: &str,
        position: usize,
        _context: &Context<'_>,
    ) -> rustyline::Result<(usize, Vec<Suggestion>)> {
        let Some(docs) = &self.docs else { return Ok((0, Vec::new())) };
        let before = &line[..position];
        let (start, found) = suggestions(docs, &self.lookups, before);
        if found.len() < 2 || !menu::is_possible() {
            return Ok((start, found));
        }
        let column = (self.prompt_len + before.chars().count()) % completion::width();
        let narrow = |typed: &str| {
            let (narrowed, found) = suggestions(docs, &self.lookups, &[before, typed].concat());
            if narrowed == start { found } else { Vec::new() }
        };
        // A single suggestion is what the editor puts there.
        Ok(match menu::choose(found, completion::width() - column, narrow) {
            Choice::Taken(suggestion) => (start, vec![suggestion]),
            Choice::Typed(typed) => {
                (start, vec![Suggestion::of(&[&before[start..], &typed].concat())])
            }
            Choice::Forgotten => (0, vec![Suggestion::of("")]),
        })
    }
}

impl Hinter for Assistant {
    type Hint = String;

    fn hint(&self, line: &str, position: usize, _context: &Context<'_>) -> Option<String> {
        let docs = self.docs.as_ref().filter(|_| self.hints && position == line.len())?;
        let hint = hint::hint(docs, line).filter(|hint| !hint.is_empty())?;
        let blank = line.ends_with(|c: char| c.is_ascii_whitespace());
        Some(if blank { hint } else { format!(" {hint}") })
    }
}

impl Highlighter for Assistant {
    fn highlight<'l>(&self, line: &'l str, _position: usize) -> Cow<'l, str> {
        letters::shown(line).map_or(Cow::Borrowed(line), Cow::Owned)
    }

    fn highlight_char(&self, line: &str, _position: usize, _kind: CmdKind) -> bool {
        letters::shown(line).is_some()
    }

    fn highlight_hint<'h>(&self, hint: &'h str) -> Cow<'h, str> {
        Cow::Owned(format!("\x1b[90m{hint}\x1b[0m"))
    }
}

const HISTORY_LINES_MAX: usize = 1000;
/// Only for its owner: commands may say more than intended.
const HISTORY_MODE: u32 = 0o600;
