//! Line charts as SVG.

use super::{bars::COLOURS, escape, short};

/// A chart of some lines.
#[derive(Clone, Debug)]
pub struct Chart {
    pub title: String,
    pub x: Axis,
    pub y: Axis,
    pub lines: Vec<ChartLine>,
}

#[derive(Clone, Debug)]
pub struct Axis {
    pub title: String,
    pub is_logarithmic: bool,
    /// The values that are named; where there are none, round numbers are.
    pub ticks: Vec<f64>,
}

#[derive(Clone, Debug)]
pub struct ChartLine {
    pub name: String,
    /// From left to right.
    pub points: Vec<(f64, f64)>,
}

impl Chart {
    /// The chart with its title and legend.
    pub(super) fn figure(&self) -> String {
        let mut figure = format!(
            "<figure><figcaption>{}</figcaption>\n<div class=\"legend\">",
            escape(&self.title)
        );
        for (number, line) in self.lines.iter().enumerate() {
            figure += &format!(
                "<span><svg viewBox=\"0 0 28 8\"><line x1=\"0\" x2=\"28\" y1=\"4\" y2=\"4\" \
                 style=\"{}\"/></svg>{}</span>",
                stroke(number),
                escape(&line.name)
            );
        }
        figure + "</div>\n" + &self.svg() + "</figure>\n"
    }

    fn svg(&self) -> String {
        let points = || self.lines.iter().flat_map(|line| &line.points);
        let x = Scale::new(points().map(|point| point.0), self.x.is_logarithmic, false);
        let y = Scale::new(points().map(|point| point.1), self.y.is_logarithmic, true);
        let at_x = |value| LEFT + x.place(value) * (WIDTH - LEFT - RIGHT);
        let at_y = |value| HEIGHT - BOTTOM - y.place(value) * (HEIGHT - TOP - BOTTOM);
        let mut svg = format!(
            "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{}\">\n",
            escape(&self.title)
        );
        for value in y.ticks() {
            let y = at_y(value);
            svg += &format!(
                "<line x1=\"{LEFT}\" x2=\"{}\" y1=\"{y:.1}\" y2=\"{y:.1}\" \
                 style=\"stroke:var(--rule)\"/><text x=\"{}\" y=\"{:.1}\" \
                 text-anchor=\"end\">{}</text>\n",
                WIDTH - RIGHT,
                LEFT - 6.0,
                y + 4.0,
                short(value)
            );
        }
        let named = if self.x.ticks.is_empty() { x.ticks() } else { self.x.ticks.clone() };
        for value in named {
            svg += &format!(
                "<text x=\"{:.1}\" y=\"{}\" text-anchor=\"middle\">{}</text>\n",
                at_x(value),
                HEIGHT - BOTTOM + 16.0,
                short(value)
            );
        }
        svg += &format!(
            "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>\n<text x=\"4\" y=\"12\">{}</text>\n",
            WIDTH - RIGHT,
            HEIGHT - 4.0,
            escape(&self.x.title),
            escape(&self.y.title)
        );
        for (number, line) in self.lines.iter().enumerate() {
            let colour = number % COLOURS;
            let places: Vec<_> = line.points.iter().map(|&(x, y)| (at_x(x), at_y(y))).collect();
            let path: Vec<_> = places.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
            svg += &format!(
                "<polyline points=\"{}\" style=\"fill:none;stroke-linejoin:round;{}\"/>\n",
                path.join(" "),
                stroke(number)
            );
            if places.len() <= DOTS_MAX {
                for ((x, y), point) in places.iter().zip(&line.points) {
                    svg += &format!(
                        "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3.5\" \
                         style=\"fill:var(--c{colour})\"><title>{}: {}</title></circle>\n",
                        escape(&line.name),
                        short(point.1)
                    );
                }
            }
        }
        svg + "</svg>\n"
    }
}

/// How the line of that number is drawn: it can be told from others without its colour.
fn stroke(number: usize) -> String {
    let colour = number % COLOURS;
    format!("stroke:var(--c{colour});stroke-width:2;stroke-dasharray:{}", DASHES[colour])
}

/// From values to places between 0 and 1.
struct Scale {
    low: f64,
    high: f64,
    is_logarithmic: bool,
    step: f64,
}

impl Scale {
    fn new(values: impl Iterator<Item = f64>, is_logarithmic: bool, from_zero: bool) -> Self {
        let (mut low, mut high) = (f64::INFINITY, f64::NEG_INFINITY);
        for value in values.filter(|value| value.is_finite() && (!is_logarithmic || *value > 0.0)) {
            low = low.min(value);
            high = high.max(value);
        }
        if low > high {
            (low, high) = (1.0, 10.0);
        }
        if is_logarithmic {
            let low = 10f64.powf(low.log10().floor());
            let high = 10f64.powf(high.log10().ceil()).max(low * 10.0);
            return Self { low, high, is_logarithmic, step: 10.0 };
        }
        if from_zero {
            low = low.min(0.0);
        }
        if high <= low {
            high = low + 1.0;
        }
        let step = nice((high - low) / TICKS);
        let high = if from_zero { (high / step).ceil() * step } else { high };
        Self { low, high, is_logarithmic, step }
    }

    fn place(&self, value: f64) -> f64 {
        if self.is_logarithmic {
            let value = value.max(self.low);
            return (value / self.low).log10() / (self.high / self.low).log10();
        }
        (value - self.low) / (self.high - self.low)
    }

    fn ticks(&self) -> Vec<f64> {
        let mut ticks = Vec::new();
        let mut tick =
            if self.is_logarithmic { self.low } else { (self.low / self.step).ceil() * self.step };
        while tick <= self.high * (1.0 + 1e-9) && ticks.len() < TICKS_MAX {
            ticks.push(tick);
            tick = if self.is_logarithmic { tick * self.step } else { tick + self.step };
        }
        ticks
    }
}

/// The next of 1, 2, 5, 10, 20, ...
fn nice(step: f64) -> f64 {
    let power = 10f64.powf(step.log10().floor());
    let factor = [1.0, 2.0, 5.0, 10.0].into_iter().find(|factor| factor * power >= step * 0.999);
    factor.unwrap_or(10.0) * power
}

const WIDTH: f64 = 480.0;
const HEIGHT: f64 = 280.0;
const LEFT: f64 = 48.0;
const RIGHT: f64 = 14.0;
const TOP: f64 = 24.0;
const BOTTOM: f64 = 40.0;

const DASHES: [&str; COLOURS] = ["none", "8 4", "2 3", "10 3 2 3", "5 5", "1 5"];
const TICKS: f64 = 5.0;
const TICKS_MAX: usize = 20;
/// Lines of more points are drawn without dots.
const DOTS_MAX: usize = 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scales_begin_and_end_at_round_numbers() {
        let scale = Scale::new([3.0, 870.0].into_iter(), false, true);
        assert_eq!((scale.low, scale.high, scale.step), (0.0, 1000.0, 200.0));
        assert_eq!(scale.place(500.0), 0.5);
        let scale = Scale::new([0.02, 45.0].into_iter(), true, false);
        assert_eq!(scale.ticks().len(), 5);
        assert!((scale.place(1.0) - 0.5).abs() < 1e-9);
        let flat = Scale::new([5.0].into_iter(), false, false);
        assert!(flat.place(5.0).is_finite());
    }
}
