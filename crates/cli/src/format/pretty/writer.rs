//! Indented lines, in colours where the terminal has them.

/// What is written of one value.
pub struct PrettyWriter<'i> {
    output: Vec<u8>,
    /// What lines after the first start with.
    indent: &'i str,
    depth: usize,
    colours: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Colour {
    Remark,
    Name,
    Text,
    Number,
    /// `true`, `null` and the like.
    Word,
}

/// The text has more lines than anybody reads.
#[derive(Debug)]
pub struct TooLong;

impl<'i> PrettyWriter<'i> {
    pub fn new(indent: &'i str, colours: bool) -> Self {
        Self { output: Vec::new(), indent, depth: 0, colours }
    }

    /// An empty one for the same place.
    pub fn begin(&self) -> Self {
        Self::new(self.indent, self.colours)
    }

    pub fn into_bytes(self) -> Vec<u8> {
        self.output
    }

    pub fn plain(&mut self, bytes: &[u8]) {
        self.output.extend_from_slice(bytes);
    }

    pub fn colour(&mut self, colour: Colour, bytes: &[u8]) {
        if !self.colours {
            return self.plain(bytes);
        }
        let code = match colour {
            Colour::Remark => "90",
            Colour::Name => "34",
            Colour::Text => "32",
            Colour::Number => "33",
            Colour::Word => "35",
        };
        self.output.extend(format!("\x1b[{code}m").bytes());
        self.plain(bytes);
        self.plain(b"\x1b[0m");
    }

    /// Begins a line.
    pub fn line(&mut self) -> Result<(), TooLong> {
        self.check()?;
        self.output.push(b'\n');
        self.output.extend_from_slice(self.indent.as_bytes());
        self.output.extend(std::iter::repeat_n(b' ', INDENT * self.depth));
        Ok(())
    }

    /// Writes the bracket that opens a list which is not empty.
    pub fn open(&mut self, bracket: u8) -> Result<(), TooLong> {
        self.output.push(bracket);
        self.depth += 1;
        self.line()
    }

    pub fn close(&mut self, bracket: u8) -> Result<(), TooLong> {
        self.depth = self.depth.saturating_sub(1);
        self.line()?;
        self.output.push(bracket);
        Ok(())
    }

    /// Whether it has become too long.
    pub fn check(&self) -> Result<(), TooLong> {
        if self.output.len() > OUTPUT_LEN_MAX { Err(TooLong) } else { Ok(()) }
    }
}

const INDENT: usize = 2;
const OUTPUT_LEN_MAX: usize = 8 << 20;
