//! The tests of redis-benchmark and valkey-benchmark, one row each, and a few of the same kind.

/// One test.
#[derive(Clone, Copy, Debug)]
pub struct Test {
    /// What `-t` calls it; the first is its own name, the others select whole groups.
    pub names: &'static [&'static str],
    pub title: &'static str,
    pub request: SuiteRequest,
    /// Whether it runs when no tests are named.
    pub by_default: bool,
}

/// What a test sends. In the words, `%` stands for `:{tag}` where there is a cluster and for
/// nothing where there is none; `@` for `__rand_int__` where there are random keys, and `0` where
/// not.
#[derive(Clone, Copy, Debug)]
pub enum SuiteRequest {
    Inline(&'static str),
    Words(&'static str),
    /// A command and what is repeated ten times behind it.
    Ten(&'static str, &'static str),
    /// FUNCTION LOAD of a library.
    FunctionLoad,
    /// A call of a function, which is loaded first.
    FunctionCall,
}

pub const TESTS: &[Test] = &[
    Test::new(&["ping_inline", "ping"], "PING_INLINE", SuiteRequest::Inline("PING")),
    Test::new(&["ping_mbulk", "ping"], "PING_MBULK", SuiteRequest::Words("PING")),
    Test::words(&["set"], "SET", "SET key%:__rand_int__ __data__"),
    Test::words(&["get"], "GET", "GET key%:__rand_int__"),
    Test::words(&["incr"], "INCR", "INCR counter%:__rand_int__"),
    Test::words(&["lpush"], "LPUSH", "LPUSH mylist% __data__"),
    Test::words(&["rpush"], "RPUSH", "RPUSH mylist% __data__"),
    Test::words(&["lpop"], "LPOP", "LPOP mylist%"),
    Test::words(&["rpop"], "RPOP", "RPOP mylist%"),
    Test::words(&["sadd"], "SADD", "SADD myset% element:__rand_int__"),
    Test::words(&["hset"], "HSET", "HSET myhash% element:__rand_int__ __data__"),
    Test::words(&["spop"], "SPOP", "SPOP myset%"),
    Test::words(&["zadd"], "ZADD", "ZADD myzset% @ element:__rand_1st__"),
    Test::words(&["zpopmin"], "ZPOPMIN", "ZPOPMIN myzset%"),
    Test::new(
        &["lrange", "lrange_100", "lrange_300", "lrange_500", "lrange_600"],
        "LPUSH (needed to benchmark LRANGE)",
        SuiteRequest::Words("LPUSH mylist% __data__"),
    ),
    Test::new(
        &["lrange_100", "lrange"],
        "LRANGE_100 (first 100 elements)",
        SuiteRequest::Words("LRANGE mylist% 0 99"),
    ),
    Test::new(
        &["lrange_300", "lrange"],
        "LRANGE_300 (first 300 elements)",
        SuiteRequest::Words("LRANGE mylist% 0 299"),
    ),
    Test::new(
        &["lrange_500", "lrange"],
        "LRANGE_500 (first 500 elements)",
        SuiteRequest::Words("LRANGE mylist% 0 499"),
    ),
    Test::new(
        &["lrange_600", "lrange"],
        "LRANGE_600 (first 600 elements)",
        SuiteRequest::Words("LRANGE mylist% 0 599"),
    ),
    Test::new(&["mset"], "MSET (10 keys)", SuiteRequest::Ten("MSET", "key%:__rand_int__ __data__")),
    Test::new(&["mget"], "MGET (10 keys)", SuiteRequest::Ten("MGET", "key%:__rand_int__")),
    Test::words(&["xadd"], "XADD", "XADD mystream% * myfield __data__"),
    Test::new(&["function_load"], "FUNCTION LOAD", SuiteRequest::FunctionLoad),
    Test::new(&["fcall"], "FCALL", SuiteRequest::FunctionCall),
    Test::extra(&["xadd_1"], "XADD_1", SuiteRequest::Words("XADD mystream1% * f:1 __data__")),
    Test::extra(
        &["xadd_5"],
        "XADD_5",
        SuiteRequest::Words(
            "XADD mystream5% * f:1 __data__ f:2 __data__ f:3 __data__ f:4 __data__ f:5 __data__",
        ),
    ),
    Test::extra(
        &["xadd_10"],
        "XADD_10",
        SuiteRequest::Words(
            "XADD mystream10% * f:1 __data__ f:2 __data__ f:3 __data__ f:4 __data__ f:5 __data__ \
             f:6 __data__ f:7 __data__ f:8 __data__ f:9 __data__ f:10 __data__",
        ),
    ),
    Test::extra(
        &["zadd_random"],
        "ZADD_RANDOM",
        SuiteRequest::Words("ZADD myzset% @ member:__rand_int__"),
    ),
    Test::extra(
        &["hset_random"],
        "HSET_RANDOM",
        SuiteRequest::Words("HSET myhash% field:__rand_int__ value:__rand_int__"),
    ),
    Test::extra(
        &["set_ex"],
        "SET_EX",
        SuiteRequest::Words("SET key%:__rand_int__ __data__ EX 100"),
    ),
    Test::extra(
        &["multi"],
        "MULTI",
        SuiteRequest::Words(
            "MULTI ; SET key%:__rand_1st__ __data__ ; INCR counter%:__rand_1st__ ; EXEC",
        ),
    ),
    Test::extra(
        &["eval"],
        "EVAL",
        SuiteRequest::Words("EVAL return(redis.call('incr',KEYS[1])) 1 counter%:__rand_int__"),
    ),
];

impl Test {
    const fn new(
        names: &'static [&'static str],
        title: &'static str,
        request: SuiteRequest,
    ) -> Self {
        Self { names, title, request, by_default: true }
    }

    const fn words(
        names: &'static [&'static str],
        title: &'static str,
        words: &'static str,
    ) -> Self {
        Self::new(names, title, SuiteRequest::Words(words))
    }

    const fn extra(
        names: &'static [&'static str],
        title: &'static str,
        request: SuiteRequest,
    ) -> Self {
        Self { names, title, request, by_default: false }
    }

    /// The tests that a list separated by commas names, in the order of the table; all those that
    /// run by default when there is no list. Blanks around a name and empty names are passed over,
    /// as scripts put lists together.
    pub fn select(list: Option<&str>) -> Result<Vec<&'static Self>, String> {
        let Some(list) = list else {
            return Ok(TESTS.iter().filter(|test| test.by_default).collect());
        };
        let names = list.split(',').map(str::trim).filter(|name| !name.is_empty());
        let wanted: Vec<_> = names.map(str::to_lowercase).collect();
        if wanted.is_empty() {
            return Err("-t names no test; '-t list' shows them".into());
        }
        for name in &wanted {
            if !TESTS.iter().any(|test| test.names.contains(&name.as_str())) {
                return Err(format!("There is no test '{name}'; '-t list' shows them"));
            }
        }
        let is_wanted =
            |test: &&Self| wanted.iter().any(|name| test.names.contains(&name.as_str()));
        Ok(TESTS.iter().filter(is_wanted).collect())
    }

    /// The own names of what a name measures: several for a group. What others only need before
    /// them is left out.
    pub fn members(name: &str) -> Vec<&'static str> {
        let name = name.to_lowercase();
        let is_member =
            |test: &&Self| test.names.contains(&name.as_str()) && !test.prepares_others();
        TESTS.iter().filter(is_member).map(|test| test.names[0]).collect()
    }

    /// Whether it writes what the tests that it is also named by find.
    fn prepares_others(&self) -> bool {
        self.names.len() > 2
    }

    /// The names of all tests.
    pub fn names() -> Vec<&'static str> {
        let mut names = Vec::new();
        for name in TESTS.iter().flat_map(|test| test.names) {
            if !names.contains(name) {
                names.push(*name);
            }
        }
        names
    }
}

impl SuiteRequest {
    /// The commands that the test sends, with their placeholders.
    pub fn commands(&self, shape: SuiteShape) -> Vec<Vec<Vec<u8>>> {
        let tag = if shape.cluster { ":{tag}" } else { "" };
        let score = if shape.random_keys { "__rand_int__" } else { "0" };
        let words = |text: &str| -> Vec<Vec<u8>> {
            let word = |word: &str| match word {
                "@" => score.into(),
                _ => word.replace('%', tag).into_bytes(),
            };
            text.split(' ').map(word).collect()
        };
        match self {
            Self::Inline(text) => vec![words(text)],
            Self::Words(text) => text.split(" ; ").map(words).collect(),
            Self::Ten(command, repeated) => {
                let mut arguments = words(command);
                for _ in 0..10 {
                    arguments.extend(words(repeated));
                }
                vec![arguments]
            }
            Self::FunctionLoad => vec![function_load(shape.functions)],
            Self::FunctionCall => {
                let mut arguments = words(&format!("FCALL foo1 {}", shape.fcall_keys));
                arguments
                    .extend((1..=shape.fcall_keys).flat_map(|key| words(&format!("key%{key}"))));
                vec![arguments]
            }
        }
    }

    /// Whether what it measures depends on the keys that are there: those of -r.
    pub fn reads_keys(&self) -> bool {
        match self {
            Self::Words(text) => text.starts_with("GET "),
            Self::Ten(command, _) => *command == "MGET",
            _ => false,
        }
    }

    /// What must have been sent once before the test.
    pub fn preparation(&self) -> Option<Vec<Vec<u8>>> {
        matches!(self, Self::FunctionCall).then(|| function_load(1))
    }
}

/// What a test's commands depend on.
#[derive(Clone, Copy, Debug)]
pub struct SuiteShape {
    pub cluster: bool,
    pub random_keys: bool,
    pub functions: usize,
    pub fcall_keys: usize,
}

fn function_load(functions: usize) -> Vec<Vec<u8>> {
    let mut library = "#!lua name=benchlib\n".to_owned();
    for number in 1..=functions {
        library +=
            &format!("redis.register_function('foo{number}', function(keys) return keys[1] end)\n");
    }
    ["FUNCTION", "LOAD", "REPLACE", &library].map(|word| word.as_bytes().to_vec()).to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_select_tests_and_groups() {
        let titles = |list| -> Vec<_> {
            Test::select(Some(list)).unwrap().iter().map(|test| test.title).collect()
        };
        assert_eq!(titles("get,set"), ["SET", "GET"]);
        assert_eq!(titles(" get, set,,"), ["SET", "GET"]);
        assert!(Test::select(Some(" ,")).is_err());
        assert_eq!(titles("PING"), ["PING_INLINE", "PING_MBULK"]);
        assert_eq!(titles("lrange_300").len(), 2);
        assert_eq!(titles("lrange").len(), 5);
        let lists = ["lrange_100", "lrange_300", "lrange_500", "lrange_600"];
        assert_eq!(Test::members("LRANGE"), lists);
        assert_eq!(Test::members("lrange_300"), ["lrange_300"]);
        assert_eq!(Test::members("ping"), ["ping_inline", "ping_mbulk"]);
        for test in TESTS.iter().filter(|test| !test.prepares_others()) {
            assert_eq!(Test::members(test.names[0]), [test.names[0]]);
        }
        assert!(Test::select(Some("set,nosuch")).is_err());
        assert_eq!(Test::select(None).unwrap().len(), 24);
    }

    #[test]
    fn words_depend_on_the_shape() {
        let shape = SuiteShape { cluster: true, random_keys: false, functions: 2, fcall_keys: 2 };
        let commands = |name: &str| {
            let test = Test::select(Some(name)).unwrap()[0];
            let commands = test.request.commands(shape);
            commands
                .iter()
                .map(|command| {
                    command
                        .iter()
                        .map(|word| String::from_utf8_lossy(word).into_owned())
                        .collect::<Vec<_>>()
                        .join(" ")
                })
                .collect::<Vec<_>>()
        };
        assert_eq!(commands("zadd"), ["ZADD myzset:{tag} 0 element:__rand_1st__"]);
        assert_eq!(commands("fcall"), ["FCALL foo1 2 key:{tag}1 key:{tag}2"]);
        assert_eq!(commands("multi").len(), 4);
        assert!(commands("function_load")[0].contains("foo2"));
        assert_eq!(commands("mget")[0].split(' ').count(), 11);
    }

    #[test]
    fn tests_that_find_what_others_wrote() {
        let reading = TESTS.iter().filter(|test| test.request.reads_keys());
        let names: Vec<_> = reading.map(|test| test.names[0]).collect();
        assert_eq!(names, ["get", "mget"]);
    }
}
