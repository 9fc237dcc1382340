//! Bars: a few values side by side, each with its interval. They are drawn by the browser's own
//! layout, so that their words keep their size on every screen.

use super::{escape, short};
use crate::statistics::ConfidenceInterval;

/// Groups of bars on one scale, which begins at 0.
#[derive(Clone, Debug)]
pub struct Bars {
    pub title: String,
    pub unit: String,
    pub groups: Vec<BarGroup>,
}

/// Bars that belong together, as those of one number of threads do.
#[derive(Clone, Debug)]
pub struct BarGroup {
    pub name: String,
    pub bars: Vec<Bar>,
}

#[derive(Clone, Debug)]
pub struct Bar {
    pub name: String,
    /// Bars of one number have one colour in all groups.
    pub series: usize,
    pub value: f64,
    pub interval: Option<ConfidenceInterval>,
    /// The rounds behind the value disagree.
    pub is_doubtful: bool,
    /// Some of the replies behind the value were errors.
    pub has_errors: bool,
}

impl Bars {
    pub(super) fn figure(&self) -> String {
        let all = || self.groups.iter().flat_map(|group| &group.bars);
        let most = all().map(Bar::reach).filter(|reach| reach.is_finite()).fold(0.0, f64::max);
        let mut figure = format!(
            "<figure><figcaption>{} <span>{}</span></figcaption>\n",
            escape(&self.title),
            escape(&self.unit)
        );
        for group in &self.groups {
            figure += &format!("<div class=\"group\">{}</div>\n", escape(&group.name));
            for bar in &group.bars {
                figure += &bar.row(most);
            }
        }
        figure + "</figure>\n"
    }
}

impl Bar {
    /// The value, how far it may be off, and whether to believe it.
    pub fn text(&self) -> String {
        let mut text = short(self.value);
        if let Some(interval) = self.interval {
            text += &format!(" ±{}%", percent(interval.relative_half()));
        }
        if self.is_doubtful {
            text += DOUBT;
        }
        if self.has_errors {
            text += ERRORS;
        }
        text
    }

    /// The highest value that is drawn: an interval may reach far beyond what was seen.
    fn reach(&self) -> f64 {
        self.interval.map_or(self.value, |interval| interval.high.min(2.0 * self.value))
    }

    fn row(&self, most: f64) -> String {
        let share =
            |value: f64| if most > 0.0 { (value / most * 100.0).clamp(0.0, 100.0) } else { 0.0 };
        let mut track = format!(
            "<i style=\"width:{:.1}%;background:var(--c{})\"></i>",
            share(self.value),
            self.series % COLOURS
        );
        if let Some(ConfidenceInterval { low, high }) = self.interval {
            let (low, high) = (share(low), share(high));
            track += &format!("<b style=\"left:{low:.1}%;width:{:.1}%\"></b>", high - low);
        }
        format!(
            "<div class=\"bar\"><span class=\"name\" title=\"{name}\">{name}</span>\
             <span class=\"track\">{track}</span><span class=\"value\">{}</span></div>\n",
            escape(&self.text()),
            name = escape(&self.name)
        )
    }
}

/// A share in percent, with a digit behind the point where it is small.
pub(crate) fn percent(share: f64) -> String {
    let percent = share * 100.0;
    if percent >= 9.95 { format!("{percent:.0}") } else { format!("{percent:.1}") }
}

/// What marks values whose rounds disagree.
pub(crate) const DOUBT: &str = " ≠";
/// What marks values behind which there are error replies.
pub(crate) const ERRORS: &str = " !";
pub(super) const COLOURS: usize = 6;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn widths_are_shares_of_the_highest() {
        let bar = |value, interval, is_doubtful| Bar {
            name: "a".into(),
            series: 7,
            value,
            interval,
            is_doubtful,
            has_errors: is_doubtful,
        };
        let whole = bar(80.0, Some(ConfidenceInterval { low: 60.0, high: 100.0 }), false);
        let half = bar(50.0, None, true);
        let group = BarGroup { name: "1 thread".into(), bars: vec![whole, half] };
        let bars = Bars { title: "GET".into(), unit: "a second".into(), groups: vec![group] };
        let text = bars.figure();
        assert!(text.contains("<i style=\"width:80.0%;background:var(--c1)\"></i>"), "{text}");
        assert!(text.contains("<b style=\"left:60.0%;width:40.0%\"></b>"), "{text}");
        assert!(text.contains(">80 ±25%<") && text.contains("width:50.0%"), "{text}");
        assert!(text.contains(">50 ≠ !<"), "{text}");
        // An interval that says nothing does not squeeze the bars.
        let wild = bar(10.0, Some(ConfidenceInterval { low: -500.0, high: 520.0 }), true);
        let group = BarGroup { name: String::new(), bars: vec![wild] };
        let text = Bars { groups: vec![group], ..bars }.figure();
        assert!(text.contains("width:50.0%;") && text.contains("left:0.0%;width:100.0%"), "{text}");
    }

    #[test]
    fn shares() {
        assert_eq!(percent(0.0123), "1.2");
        assert_eq!(percent(0.0996), "10");
        assert_eq!(percent(0.5), "50");
    }
}
