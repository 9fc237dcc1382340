//! The data that the commands of `commands.txt` are about. A key is a name, a colon and a number of
//! twelve digits, as the benchmark writes them.

use bobbin_testkit::TestConnection;

use crate::pipeline::Pipeline;
use crate::shell::TaskResult;

/// Fills an empty server.
pub(super) fn fill(control: &mut TestConnection) -> TaskResult {
    let mut pipeline = Pipeline::new(control);
    for number in 0..SMALL {
        let value = "x".repeat(1000);
        pipeline.send(&["SET", &key("string", number), &format!("value-{number}")])?;
        pipeline.send(&["SET", &key("number", number), &number.to_string()])?;
        pipeline.send(&["SET", &key("long", number), &value])?;
        // What SORT looks up.
        pipeline.send(&["SET", &format!("weight:{number}"), &(number * 7 % SMALL).to_string()])?;
        collections(&mut pipeline, "small", number, 10)?;
        // What commands of many keys name, without the twelve digits.
        let other = number.to_string();
        pipeline.send(&["SADD", &format!("tags:{number}"), "red", "green", "blue", &other])?;
        pipeline.send(&["PFADD", &format!("seen:{number}"), "red", "green", "blue", &other])?;
    }
    for number in 0..LARGE {
        collections(&mut pipeline, "middle", number, 100)?;
        collections(&mut pipeline, "large", number, 2000)?;
        let places: Vec<_> = (0..2000).flat_map(place).collect();
        pipeline.send(&[vec!["GEOADD".to_owned(), key("geo", number)], places].concat())?;
        let seen = (0..3000).map(|element| format!("e{}", element + number * 100));
        let add = ["PFADD".to_owned(), key("log", number)];
        pipeline.send(&add.into_iter().chain(seen).collect::<Vec<_>>())?;
        pipeline.send(&["SETRANGE", &key("bits", number), "0", &"U\u{1}".repeat(5000)])?;
        for (name, entries) in [("stream-small", 10), ("stream-large", 2000)] {
            for entry in 1..=entries {
                let (id, reading) = (format!("{entry}-1"), (20 + entry % 10).to_string());
                let sensor = format!("s{entry}");
                let fields = ["temperature", &reading, "sensor", &sensor];
                pipeline.send(&[&["XADD", &key(name, number), &id], &fields[..]].concat())?;
            }
            pipeline.send(&["XGROUP", "CREATE", &key(name, number), "group", "0"])?;
        }
    }
    pipeline.finish()
}

/// One of each collection. What two of a kind have in common depends on their numbers.
fn collections(pipeline: &mut Pipeline<'_>, size: &str, number: usize, len: usize) -> TaskResult {
    let step = number % 3 + 1;
    let mut send = |command: &str, kind: &str, element: &dyn Fn(usize) -> Vec<String>| {
        let head = vec![command.to_owned(), key(&format!("{kind}-{size}"), number)];
        pipeline.send(&[head, (0..len).flat_map(element).collect()].concat())
    };
    send("RPUSH", "list", &|at| vec![format!("element-{at}")])?;
    send("SADD", "set", &|at| vec![format!("member-{}", at * step)])?;
    send("SADD", "integers", &|at| vec![(at * step).to_string()])?;
    send("HSET", "hash", &|at| vec![format!("field-{at}"), format!("value-{at}")])?;
    send("ZADD", "zset", &|at| {
        vec![format!("{}", at as f64 * 1.5), format!("member-{}", at * step)]
    })
}

fn place(at: usize) -> [String; 3] {
    let (longitude, latitude) = (at % 360, at % 170);
    [
        format!("{}", longitude as f64 - 179.5),
        format!("{}", latitude as f64 - 84.7),
        format!("place-{at}"),
    ]
}

fn key(name: &str, number: usize) -> String {
    format!("{name}:{number:012}")
}

const SMALL: usize = 1000;
const LARGE: usize = 20;
