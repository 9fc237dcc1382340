//! Turns commands as people write them for redis-benchmark, with `__rand_int__` and similar
//! placeholders, into templates.

use super::{Numbers, SLOTS_MAX, Template, TemplatePart, Workload, Zipf};

/// What placeholders stand for.
#[derive(Clone, Debug, Default)]
pub struct Placeholders {
    /// Where numbers come from; without it their placeholders stay as they are.
    pub keyspace: Option<KeyRange>,
    /// What `__data__` becomes.
    pub data: Vec<u8>,
    /// Whether `{tag}` becomes a hash tag.
    pub cluster: bool,
}

/// The numbers below `count`, in some order.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct KeyRange {
    pub count: u64,
    pub order: KeyOrder,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum KeyOrder {
    Uniform,
    Sequential,
    Zipf(f64),
    Hot { keys: u64, share: f64 },
}

impl Placeholders {
    /// Adds a template of `commands`, lists of arguments that always go together, to `workload`.
    /// Its replies count in `class`.
    pub fn add(
        &self,
        workload: &mut Workload,
        class: u16,
        commands: &[Vec<Vec<u8>>],
    ) -> Result<(), String> {
        let mut slots = Slots::default();
        let parsed: Vec<Vec<Vec<TemplatePart>>> = commands
            .iter()
            .map(|arguments| {
                arguments.iter().map(|argument| self.parts(argument, &mut slots)).collect()
            })
            .collect();
        if slots.names.len() > SLOTS_MAX {
            return Err(format!("more than {SLOTS_MAX} placeholders in one request"));
        }
        let patterns = match self.keyspace {
            Some(keyspace) => slots.patterns(keyspace, workload),
            None => Vec::new(),
        };
        workload.templates.push(Template::new(class, patterns, &parsed));
        Ok(())
    }

    fn parts(&self, argument: &[u8], slots: &mut Slots) -> Vec<TemplatePart> {
        let mut parts = Vec::new();
        let mut text = Vec::new();
        let mut rest = argument;
        while !rest.is_empty() {
            if let Some(tail) = rest.strip_prefix(b"__data__") {
                text.extend_from_slice(&self.data);
                rest = tail;
                continue;
            }
            let found = if let Some(tail) = rest.strip_prefix(b"{tag}").filter(|_| self.cluster) {
                text.push(b'{');
                Some((TemplatePart::Tag, &b"}"[..], tail))
            } else {
                let name = NAMES.iter().position(|name| rest.starts_with(name));
                name.filter(|_| self.keyspace.is_some()).map(|name| {
                    (TemplatePart::Padded(slots.slot(name)), &b""[..], &rest[NAMES[name].len()..])
                })
            };
            match found {
                Some((part, after, tail)) => {
                    if !text.is_empty() {
                        parts.push(TemplatePart::Text(std::mem::take(&mut text)));
                    }
                    parts.push(part);
                    text.extend_from_slice(after);
                    rest = tail;
                }
                None => {
                    text.push(rest[0]);
                    rest = &rest[1..];
                }
            }
        }
        if !text.is_empty() || parts.is_empty() {
            parts.push(TemplatePart::Text(text));
        }
        parts
    }
}

/// The numbers that one request needs, by the name of their placeholder.
#[derive(Default)]
struct Slots {
    names: Vec<usize>,
}

impl Slots {
    /// `__rand_int__` is another number each time; the others are the same in the whole request.
    fn slot(&mut self, name: usize) -> usize {
        let known = self.names.iter().position(|&known| known == name && name != RAND_INT);
        known.unwrap_or_else(|| {
            self.names.push(name);
            self.names.len() - 1
        })
    }

    /// The pattern of each slot; they are added to the workload.
    fn patterns(&self, keyspace: KeyRange, workload: &mut Workload) -> Vec<usize> {
        let KeyRange { count, order } = keyspace;
        let mut add = |numbers| {
            workload.patterns.push(numbers);
            workload.patterns.len() - 1
        };
        let numbers = match order {
            KeyOrder::Uniform => Numbers::Uniform { low: 0, count },
            KeyOrder::Zipf(exponent) => Numbers::Zipf(Zipf::new(0, count, exponent)),
            KeyOrder::Hot { keys, share } => Numbers::Hot { low: 0, count, hot: keys, share },
            KeyOrder::Sequential => {
                let stride = self.names.iter().filter(|&&name| name == RAND_INT).count() as u64;
                let mut offset = 0;
                return self
                    .names
                    .iter()
                    .map(|&name| {
                        if name != RAND_INT {
                            return add(Numbers::Sequence { low: 0, count, stride: 1, offset: 0 });
                        }
                        offset += 1;
                        add(Numbers::Sequence { low: 0, count, stride, offset: offset - 1 })
                    })
                    .collect();
            }
        };
        if self.names.is_empty() {
            return Vec::new();
        }
        vec![add(numbers); self.names.len()]
    }
}

/// The commands of a line: `MULTI ; 2 SET a b ; EXEC`, where a number repeats the command behind
/// it.
pub fn sequence(words: &[Vec<u8>]) -> Result<Vec<Vec<Vec<u8>>>, String> {
    let mut commands = Vec::new();
    for words in words.split(|word| word == b";") {
        let repeat = std::str::from_utf8(words.first().map_or(b"", |word| word))
            .ok()
            .and_then(|word| word.parse::<usize>().ok());
        let (repeat, words) = match repeat {
            Some(repeat) => (repeat, &words[1..]),
            None => (1, words),
        };
        if words.is_empty() {
            return Err("a command is missing beside ';' or after its number".into());
        }
        if repeat > REPEAT_MAX {
            return Err(format!("a command can be repeated up to {REPEAT_MAX} times"));
        }
        commands.extend(std::iter::repeat_n(words.to_vec(), repeat));
    }
    if commands.is_empty() || commands.len() > REPEAT_MAX {
        return Err(format!("a request needs 1 to {REPEAT_MAX} commands"));
    }
    Ok(commands)
}

const RAND_INT: usize = 0;
const NAMES: [&[u8]; 10] = [
    b"__rand_int__",
    b"__rand_1st__",
    b"__rand_2nd__",
    b"__rand_3rd__",
    b"__rand_4th__",
    b"__rand_5th__",
    b"__rand_6th__",
    b"__rand_7th__",
    b"__rand_8th__",
    b"__rand_9th__",
];
const REPEAT_MAX: usize = 10_000;

#[cfg(test)]
mod tests {
    use super::*;

    /// The bytes of the first `count` requests.
    fn requests(placeholders: &Placeholders, line: &str, count: usize) -> String {
        let words: Vec<_> = line.split(' ').map(|word| word.as_bytes().to_vec()).collect();
        let mut workload = Workload { classes: vec![line.into()], ..Workload::default() };
        placeholders.add(&mut workload, 0, &sequence(&words).unwrap()).unwrap();
        let mut state = workload.state(0, 1, 1, [*b"abc"].into());
        let mut output = Vec::new();
        let mut replies = 0;
        let len = workload.fill(&mut state, 0, count, &mut output, |w| replies += w.replies);
        assert_eq!(replies as usize, count * line.split(" ; ").count());
        let patched = String::from_utf8(output[..len].to_vec()).unwrap();
        // Appending gives the same bytes as patching what is there.
        let mut state = workload.state(0, 1, 1, [*b"abc"].into());
        let mut output = Vec::new();
        for request in 0..count {
            workload.append(&mut state, request as u64, &mut output);
        }
        assert_eq!(patched, String::from_utf8(output).unwrap());
        patched.replace("\r\n", " ")
    }

    fn sequential(count: u64) -> Placeholders {
        Placeholders {
            keyspace: Some(KeyRange { count, order: KeyOrder::Sequential }),
            data: b"xyz".to_vec(),
            cluster: false,
        }
    }

    #[test]
    fn numbers_go_up_by_occurrence() {
        assert_eq!(
            requests(&sequential(3), "S __rand_int__ a:__rand_int__ __rand_1st__ __rand_1st__", 2),
            "*5 $1 S $12 000000000000 $14 a:000000000001 $12 000000000000 $12 000000000000 \
             *5 $1 S $12 000000000002 $14 a:000000000000 $12 000000000001 $12 000000000001 "
        );
    }

    #[test]
    fn without_numbers_the_names_stay() {
        let placeholders = Placeholders { data: b"v".to_vec(), ..Placeholders::default() };
        assert_eq!(
            requests(&placeholders, "SET __rand_int__{tag} __data__", 1),
            "*3 $3 SET $17 __rand_int__{tag} $1 v "
        );
    }

    #[test]
    fn requests_of_several_commands() {
        assert_eq!(
            requests(&sequential(9), "multi ; incr __rand_1st__ ; get __rand_1st__ ; exec", 1),
            "*1 $5 multi *2 $4 incr $12 000000000000 *2 $3 get $12 000000000000 *1 $4 exec "
        );
        let words = |line: &str| -> Vec<Vec<u8>> {
            line.split(' ').map(|word| word.as_bytes().to_vec()).collect()
        };
        assert_eq!(sequence(&words("2 incr x ; get x")).unwrap().len(), 3);
        assert!(sequence(&words("incr x ;")).is_err());
        assert!(sequence(&words("3")).is_err());
        assert!(sequence(&words("99999 incr x")).is_err());
    }

    #[test]
    fn tags_lead_to_a_node() {
        let placeholders = Placeholders { cluster: true, ..Placeholders::default() };
        assert_eq!(requests(&placeholders, "GET k:{tag}", 1), "*2 $3 GET $7 k:{abc} ");
    }
}
