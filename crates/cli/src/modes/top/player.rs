//! Shows a recording as if it happened now: the same news as from a server, at their time.

use std::{
    fs::File,
    io::BufReader,
    os::unix::ffi::OsStrExt,
    path::Path,
    sync::mpsc::{Receiver, RecvTimeoutError, SyncSender},
    time::{Duration, Instant},
};

use bobbin_client::error_text;

use super::{
    recording::{RecordingHeader, RecordingLine, RecordingReader},
    sampler::{News, Sampler, SamplerOrder},
};

/// A recording, opened and not shown yet.
pub struct Recording {
    pub header: RecordingHeader,
    reader: RecordingReader<BufReader<File>>,
    /// 2 is twice as fast as it happened; `None` as fast as it can be read.
    speed: Option<f64>,
}

impl Recording {
    /// What `--replay FILE [SPEED]` says. The error is for the user.
    pub fn open(words: &[Vec<u8>]) -> Result<Self, String> {
        let (path, speed) = match words {
            [path] => (path, 1.0),
            [path, speed] => {
                let speed = std::str::from_utf8(speed).ok().and_then(|text| text.parse().ok());
                let speed = speed.filter(|speed: &f64| SPEEDS.contains(speed));
                (path, speed.ok_or("The speed is a number from 0.01 to 1000.")?)
            }
            _ => return Err("--replay takes a file, and perhaps a speed.".into()),
        };
        let path = Path::new(std::ffi::OsStr::from_bytes(path));
        let file = File::open(path)
            .map_err(|error| format!("{}: {}", path.display(), error_text(&error)))?;
        let (reader, header) = RecordingReader::open(BufReader::new(file))?;
        Ok(Self { header, reader, speed: Some(speed) })
    }

    /// Without any wait between the looks.
    pub fn at_once(mut self) -> Self {
        self.speed = None;
        self
    }

    /// Starts telling the news.
    pub fn play(self) -> Sampler {
        Sampler::start_with(move |orders, news| self.tell(orders, news))
    }

    fn tell(mut self, orders: &Receiver<SamplerOrder>, news: &SyncSender<News>) {
        let mut shown = Duration::ZERO;
        loop {
            let (at, told) = match self.reader.next() {
                Ok(Some(RecordingLine::Sample(sample))) => (sample.at, News::Sample(sample)),
                Ok(Some(RecordingLine::Lost { at, reason })) => (at, News::Lost(reason)),
                Ok(None) => {
                    let _ = news.send(News::Notice("The recording ends here.".into()));
                    break;
                }
                Err(fault) => {
                    let _ = news.send(News::Notice(fault));
                    break;
                }
            };
            let gap = pause(at.saturating_sub(shown), self.speed);
            shown = at;
            if wait(gap, orders, news).is_err() || news.send(told).is_err() {
                return;
            }
        }
        if self.speed.is_some() {
            // The last look stays until the user leaves.
            while orders.recv().is_ok_and(|order| answer(&order, news).is_ok()) {}
        }
    }
}

/// How long a time between two looks takes in the replay.
fn pause(gap: Duration, speed: Option<f64>) -> Duration {
    speed.map_or(Duration::ZERO, |speed| gap.div_f64(speed).min(GAP_MAX))
}

/// No thread listens any more.
#[derive(Debug)]
struct Gone;

/// Lets time pass, but none while what is shown is frozen.
fn wait(
    gap: Duration,
    orders: &Receiver<SamplerOrder>,
    news: &SyncSender<News>,
) -> Result<(), Gone> {
    let mut until = Instant::now() + gap;
    let mut frozen_since = None;
    loop {
        let patience = match frozen_since {
            Some(_) => GAP_MAX,
            None => until.saturating_duration_since(Instant::now()),
        };
        match orders.recv_timeout(patience) {
            Ok(SamplerOrder::Freeze(true)) => frozen_since = Some(Instant::now()),
            Ok(SamplerOrder::Freeze(false)) => {
                until +=
                    frozen_since.take().map_or(Duration::ZERO, |since: Instant| since.elapsed());
            }
            Ok(order) => answer(&order, news)?,
            Err(RecvTimeoutError::Timeout) if frozen_since.is_none() => return Ok(()),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return Err(Gone),
        }
    }
}

/// A recording can be asked for nothing else.
fn answer(order: &SamplerOrder, news: &SyncSender<News>) -> Result<(), Gone> {
    match order {
        SamplerOrder::Kill(_) => {
            let notice = "This is a recording: nobody can be disconnected.".to_owned();
            news.send(News::Notice(notice)).map_err(|_| Gone)
        }
        SamplerOrder::Ask(_) | SamplerOrder::Freeze(_) => Ok(()),
    }
}

/// While nothing was recorded, nothing is shown for so long at most.
const GAP_MAX: Duration = Duration::from_secs(10);
const SPEEDS: std::ops::RangeInclusive<f64> = 0.01..=1000.0;

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::sync_channel;

    #[test]
    fn times_between_looks() {
        let second = Duration::from_secs(1);
        for (gap, speed, expected) in [
            (second, Some(1.0), second),
            (60 * second, Some(60.0), second),
            (second, Some(0.5), 2 * second),
            (3600 * second, Some(1.0), 10 * second),
            (second, Some(0.01), 10 * second),
            (second, None, Duration::ZERO),
        ] {
            assert_eq!(pause(gap, speed), expected, "{gap:?} {speed:?}");
        }
    }

    #[test]
    fn what_is_frozen_waits() {
        let (order, orders) = sync_channel(9);
        let (tell, news) = sync_channel(9);
        for given in [true, false].map(SamplerOrder::Freeze) {
            order.send(given).unwrap();
            order.send(SamplerOrder::Kill(7)).unwrap();
        }
        assert!(wait(Duration::ZERO, &orders, &tell).is_ok());
        let told = news.try_iter().filter(|told| matches!(told, News::Notice(_)));
        assert_eq!(told.count(), 2, "each refusal is told");
        // Frozen for ever: it ends with who freezes it.
        order.send(SamplerOrder::Freeze(true)).unwrap();
        drop(order);
        assert!(wait(Duration::ZERO, &orders, &tell).is_err());
    }

    #[test]
    fn speeds() {
        let of = |words: &[&str]| {
            let words = Vec::from_iter(words.iter().map(|word| word.as_bytes().to_vec()));
            Recording::open(&words).err().unwrap_or_default()
        };
        for speed in ["0", "0.009", "1001", "fast", "nan", "-1"] {
            assert_eq!(of(&["/nowhere", speed]), "The speed is a number from 0.01 to 1000.");
        }
        for speed in ["0.01", "60", "1000"] {
            assert!(of(&["/nowhere", speed]).contains("No such file"), "{speed}");
        }
        assert!(of(&[]).contains("takes a file"));
    }
}
