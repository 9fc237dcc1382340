//! What clients ask for, and what they hear.

use super::*;

impl Play<'_> {
    /// Some client asks for something.
    pub(super) fn request(&mut self) {
        let number = self.below(CLIENTS - 1);
        if !self.clients[number].unsent.is_empty() {
            return self.send_more(number);
        }
        if self.clients[number].asked.len() >= PIPELINE {
            return;
        }
        self.next += 1;
        let (token, key) =
            (format!("{}t{}", self.seed, self.next), u64::from(self.random.next_u32()) % KEYS);
        let twins = format!("SET one:{key} {token}\r\nSET two:{key} {token}\r\n");
        let written = self.clients[number].written;
        let kind = self.below(29);
        let (line, asked) = match if self.has_tokens { kind } else { kind.max(13) } {
            0..3 => (format!("RPUSH tokens {token}"), vec![Asked::Written]),
            3..6 => {
                self.keys.insert(token.clone(), key);
                let nothing = || (0..4).map(|_| Asked::Nothing);
                let asked = nothing().chain([Asked::Written]).collect();
                (format!("MULTI\r\nRPUSH tokens {token}\r\n{twins}EXEC"), asked)
            }
            6..8 => {
                self.keys.insert(token.clone(), key);
                let body = "redis.call('set',KEYS[2],ARGV[1]) redis.call('publish','tokens',ARGV[1]) \
                            redis.call('set',KEYS[3],ARGV[1]) return redis.call('rpush',KEYS[1],ARGV[1])";
                let line = format!("EVAL \"{body}\" 3 tokens one:{key} two:{key} {token}");
                (line, vec![Asked::Written])
            }
            8 => (format!("RPUSH tokens {token}\r\nRPUSH mail {token}"), {
                vec![Asked::Written, Asked::Nothing]
            }),
            9 => ("BLPOP mail 1".into(), vec![Asked::Token]),
            10 => ("LRANGE tokens -1 -1".into(), vec![Asked::Token]),
            11 => (format!("GET one:{key}"), vec![Asked::Token]),
            12 => (format!("MULTI\r\nGET two:{key}\r\nEXEC"), {
                vec![Asked::Nothing, Asked::Nothing, Asked::Token]
            }),
            13 | 14 => {
                let cells = self.cells.written(&self.clients[number].cells);
                ("WAITAOF 1 0 500".into(), vec![Asked::Kept(written, cells)])
            }
            15 => (["BGREWRITEAOF", "BGSAVE"][self.below(2)].into(), vec![Asked::Nothing]),
            16 if self.one_in(8) => {
                let lines = ["SHUTDOWN", "SHUTDOWN NOSAVE", "SHUTDOWN FORCE", "SHUTDOWN SAVE"];
                (lines[self.below(4)].into(), vec![Asked::Nothing])
            }
            16 if self.one_in(4) => ("SHUTDOWN ABORT".into(), vec![Asked::Nothing]),
            16..20 => self.read_cell(),
            20 if self.has_tokens => {
                // It writes at its beginning and at its end.
                self.keys.insert(token.clone(), key);
                let body = "redis.call('set',KEYS[2],ARGV[1]) for i = 1, ARGV[2] do redis.call('exists',KEYS[3]) end \
                            redis.call('set',KEYS[3],ARGV[1]) return redis.call('rpush',KEYS[1],ARGV[1])";
                let looks = self.below(60);
                let line = format!("EVAL \"{body}\" 3 tokens one:{key} two:{key} {token} {looks}");
                (line, vec![Asked::Written])
            }
            28 => {
                // Were its parts taken for commands, there would be tokens that nobody wrote.
                let large = "\r\nRPUSH tokens torn".repeat(1_000 + self.below(9_000));
                self.clients[number].unsent = format!("{large}\r\n").into_bytes();
                (format!("*2\r\n$6\r\nEXISTS\r\n${}", large.len()), vec![Asked::Nothing])
            }
            _ => self.write_cell(number, &token),
        };
        self.note(&format!("{number}> {line}").replace("\r\n", " | "));
        let client = &mut self.clients[number];
        client.peer.send(format!("{line}\r\n").as_bytes());
        client.asked.extend(asked);
    }

    /// A client sends more of a command.
    fn send_more(&mut self, number: usize) {
        let len = self.below(60_000).min(self.clients[number].unsent.len());
        self.note(&format!("{number}> ({len} bytes more)"));
        let client = &mut self.clients[number];
        client.peer.send(&client.unsent[..len]);
        client.unsent.drain(..len);
    }

    /// A client reads a cell.
    pub(super) fn read_cell(&mut self) -> (String, Vec<Asked>) {
        if self.cells.len() == 0 {
            return ("PING".into(), vec![Asked::Nothing]);
        }
        let cell = self.below(self.cells.len());
        (self.reading(cell), vec![Asked::Cell(self.cells.read(cell), None)])
    }

    /// The command that reads a cell.
    pub(super) fn reading(&self, cell: usize) -> String {
        match self.cells.is_field(cell) {
            true => format!("HGET fields:{} {cell}", cell % 4),
            false => format!("GET cell:{cell}"),
        }
    }

    /// A client writes a cell of its own, which may go after a while.
    pub(super) fn write_cell(&mut self, number: usize, token: &str) -> (String, Vec<Asked>) {
        let own = self.clients[number].cells.len();
        let cell = if own == 0 || self.cells.len() < CELLS && self.one_in(4) {
            let is_field = self.one_in(3);
            let cell = self.cells.add(is_field);
            self.clients[number].cells.push(cell);
            cell
        } else {
            let at = own - 1 - self.below(own.min(OWN));
            self.clients[number].cells[at]
        };
        let ms: Option<i64> =
            [None, Some(3), Some(20), Some(40), Some(1_500), Some(1_000_000)][self.below(6)];
        let is_set = self.one_in(4);
        let now_ms = self.stage.process.now_ms();
        let Some(writing) = self.cells.write(cell, is_set, ms.map(|ms| now_ms + ms)) else {
            return self.read_cell();
        };
        let value = writing.value;
        let asked = Asked::Cell(writing.asked, writing.is_set.then_some(value));
        let is_field = self.cells.is_field(cell);
        let (key, field) = if is_field {
            (format!("fields:{}", cell % 4), cell.to_string())
        } else {
            (format!("cell:{cell}"), String::new())
        };
        let verb = match (is_field, is_set) {
            (true, true) => "HSET",
            (true, false) => "HINCRBY",
            (false, true) => "SET",
            (false, false) => "INCRBY",
        };
        let change = format!("{verb} {key} {field} {value}");
        let expire = ms.map(|ms| match is_field {
            true => format!("HPEXPIRE {key} {ms} FIELDS 1 {field}\r\n"),
            false => format!("PEXPIRE {key} {ms}\r\n"),
        });
        let nothing = |count: usize| (0..count).map(|_| Asked::Nothing);
        let begins = match self.below(5) {
            0 | 1 => match (ms, is_set && !is_field) {
                (None, _) => return (change, vec![asked]),
                (Some(ms), true) => return (format!("{change} PX {ms}"), vec![asked]),
                _ => {
                    let expire = expire.unwrap_or_default();
                    let line = format!("MULTI\r\n{change}\r\n{expire}EXEC");
                    return (line, nothing(3).chain([asked]).collect());
                }
            },
            2 if self.has_tokens => {
                let count = 3 + usize::from(ms.is_some());
                let expire = expire.unwrap_or_default();
                let line = format!("MULTI\r\n{change}\r\n{expire}RPUSH tokens {token}\r\nEXEC");
                return (line, nothing(count).chain([asked]).collect());
            }
            3 if self.has_functions => "FCALL unit".to_owned(),
            _ => format!("EVAL \"{UNIT}\""),
        };
        let (field, ms) = (
            if is_field { &*field } else { "-" },
            ms.map_or_else(|| "-".into(), |ms: i64| ms.to_string()),
        );
        let looks = self.below(40);
        (format!("{begins} 1 {key} {verb} {field} {value} {ms} {looks}"), vec![asked])
    }

    /// A client is told something.
    pub(super) fn hear(
        &mut self,
        number: usize,
        reply: &ParsedReply,
        always: bool,
    ) -> Result<(), String> {
        let client = &mut self.clients[number];
        let asked = match client.listens {
            true => Asked::Token,
            false => client.asked.pop_front().ok_or("an answer to nothing")?,
        };
        if let ParsedReply::Error(text) = reply {
            self.counts.refused += 1;
            if !KNOWN_ERRORS.iter().any(|known| text.starts_with(known)) {
                return Err(format!("{number} was told {text}"));
            }
            if let Asked::Cell(asked, _) = asked {
                self.cells.refused(asked);
            }
            return Ok(());
        }
        let leaves = reply.leaves();
        let told = match asked {
            Asked::Nothing => 0,
            Asked::Written => match leaves.first() {
                Some(ParsedReply::Integer(length)) => {
                    client.written = *length as usize;
                    client.written
                }
                other => return Err(format!("{number} wrote, and was told {other:?}")),
            },
            Asked::Token => {
                let place = |leaf: &&ParsedReply| match leaf {
                    ParsedReply::Text(text) => self.places.get(text).map(|at| at + 1),
                    _ => None,
                };
                leaves.iter().filter_map(place).max().unwrap_or(0)
            }
            Asked::Kept(written, cells) => {
                if leaves.first() == Some(&&ParsedReply::Integer(1)) {
                    self.promise(written, number, "WAITAOF");
                    self.cells.promise(&cells);
                }
                0
            }
            Asked::Cell(asked, set) => {
                let value = match leaves.first() {
                    Some(ParsedReply::Nil) => None,
                    _ if set.is_some() => set,
                    Some(ParsedReply::Integer(value)) => Some(*value as u64),
                    Some(ParsedReply::Text(text)) => {
                        Some(text.parse().map_err(|_| format!("{number} was told {text}"))?)
                    }
                    other => {
                        return Err(format!("{number} asked for a cell, and was told {other:?}"));
                    }
                };
                self.counts.cells += 1;
                self.counts.gone += usize::from(value.is_none());
                let now_ms = self.stage.process.now_ms();
                self.cells
                    .told(asked, value, now_ms, always)
                    .map_err(|fault| format!("{number}: {fault}"))?;
                0
            }
        };
        if let [ParsedReply::Text(kind), ParsedReply::Text(channel), ParsedReply::Text(key)] =
            &leaves[..]
            && kind == "message"
            && channel.starts_with("__key")
            && let Some(cell) = key.strip_prefix("cell:").and_then(|cell| cell.parse().ok())
        {
            self.counts.heard_gone += usize::from(self.cells.heard_gone(cell, always));
        }
        if always {
            self.promise(told, number, "a reply");
        }
        Ok(())
    }

    pub(super) fn promise(&mut self, tokens: usize, number: usize, by: &str) {
        if tokens > self.promised {
            self.promised = tokens;
            self.promise = format!("{number} was promised {tokens} tokens by {by}");
            self.counts.promised += 1;
        }
    }

    /// Learns which tokens came to be.
    pub(super) fn learn(&mut self) {
        let known = self.tokens.len();
        for token in self.stage.within.tokens_from(known) {
            self.places.insert(token.clone(), self.tokens.len());
            self.tokens.push(token);
        }
    }
}
