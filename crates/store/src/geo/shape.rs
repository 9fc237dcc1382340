//! The shape of a search, and the cells that cover it.

use std::ops::Range;

use super::cell::{GeoCell, GeoPosition};
use super::{EARTH_RADIUS, STEPS_MAX, degrees, radians};

/// A circle or a rectangle on the earth.
#[derive(Clone, PartialEq, Debug)]
pub enum Shape {
    Circle {
        centre: GeoPosition,
        radius: f64,
    },
    /// A rectangle along the coordinates.
    Box {
        centre: GeoPosition,
        width: f64,
        height: f64,
    },
    Polygon {
        centre: GeoPosition,
        vertices: Vec<GeoPosition>,
    },
}

/// The ranges of coordinates that contain a shape.
struct Bounds {
    longitude: (f64, f64),
    latitude: (f64, f64),
}

impl Shape {
    /// Distances from a polygon are measured from the mean of its vertices.
    pub fn polygon(vertices: Vec<GeoPosition>) -> Self {
        let (mut x, mut y, mut z) = (0.0, 0.0, 0.0);
        for vertex in &vertices {
            let (longitude, latitude) = (radians(vertex.longitude), radians(vertex.latitude));
            x += latitude.cos() * longitude.cos();
            y += latitude.cos() * longitude.sin();
            z += latitude.sin();
        }
        let centre = GeoPosition {
            longitude: degrees(f64::atan2(y, x)),
            latitude: degrees(f64::atan2(z, (x * x + y * y).sqrt())),
        };
        Self::Polygon { centre, vertices }
    }

    /// The distance of a position from the centre, if it lies in the shape.
    pub fn distance_within(&self, position: GeoPosition) -> Option<f64> {
        match self {
            Self::Circle { centre, radius } => {
                let distance = centre.distance(position);
                (distance <= *radius).then_some(distance)
            }
            Self::Box { centre, width, height } => {
                if position.latitude_distance(*centre) > height / 2.0 {
                    return None;
                }
                let below =
                    GeoPosition { longitude: centre.longitude, latitude: position.latitude };
                let inside = position.distance(below) <= width / 2.0;
                inside.then(|| centre.distance(position))
            }
            Self::Polygon { centre, vertices } => {
                contains(vertices, position).then(|| centre.distance(position))
            }
        }
    }

    /// The ranges of scores that contain all positions in the shape, in the order in which Redis
    /// reads them. A shape as large as the Earth may give the same range twice.
    pub fn score_ranges(&self) -> Vec<Range<u64>> {
        let (centre, bounds) = (self.centre(), self.bounds());
        if GeoPosition::new(centre.longitude, centre.latitude).is_none() {
            // The centre is nearer to a pole than any position can be: Redis finds nothing there.
            return Vec::new();
        }
        let mut steps = steps_for(self.reach(&bounds), centre.latitude);
        let mut cell = GeoCell::around(centre, steps);
        if steps > 1 && !covered_by_neighbours(cell, &bounds) {
            steps -= 1;
            cell = GeoCell::around(centre, steps);
        }
        let needed = |(east, north): (i32, i32)| {
            let area = cell.area();
            steps < 2
                || !(north < 0 && area.latitude.0 < bounds.latitude.0
                    || north > 0 && area.latitude.1 > bounds.latitude.1
                    || east < 0 && area.longitude.0 < bounds.longitude.0
                    || east > 0 && area.longitude.1 > bounds.longitude.1)
        };
        let mut cells: Vec<GeoCell> = Vec::with_capacity(AROUND.len());
        for by in AROUND.into_iter().filter(|&by| needed(by)) {
            let next = cell.neighbour(by.0, by.1);
            // Redis skips a cell that equals the one before it, unless that is the first.
            let again = cells.len() > 1 && cells.last() == Some(&next);
            if !again {
                cells.push(next);
            }
        }
        cells.into_iter().map(GeoCell::scores).collect()
    }

    /// How much work it is to check whether a position lies in the shape. The unit is about the
    /// work for one edge of a polygon.
    pub fn effort(&self) -> usize {
        match self {
            Self::Polygon { vertices, .. } => CIRCLE_EFFORT + vertices.len(),
            _ => CIRCLE_EFFORT,
        }
    }

    fn centre(&self) -> GeoPosition {
        match self {
            Self::Circle { centre, .. }
            | Self::Box { centre, .. }
            | Self::Polygon { centre, .. } => *centre,
        }
    }

    /// A distance that no point of the shape exceeds, measured from the centre.
    fn reach(&self, bounds: &Bounds) -> f64 {
        match self {
            Self::Circle { radius, .. } => *radius,
            Self::Box { width, height, .. } => {
                ((width / 2.0) * (width / 2.0) + (height / 2.0) * (height / 2.0)).sqrt()
            }
            Self::Polygon { centre, .. } => {
                let (west, east) = bounds.longitude;
                let (south, north) = bounds.latitude;
                [(west, north), (east, north), (west, south), (east, south)]
                    .map(|(longitude, latitude)| {
                        centre.distance(GeoPosition { longitude, latitude })
                    })
                    .into_iter()
                    .fold(0.0, f64::max)
            }
        }
    }

    fn bounds(&self) -> Bounds {
        let (centre, width, height) = match self {
            Self::Circle { centre, radius } => (centre, *radius, *radius),
            Self::Box { centre, width, height } => (centre, width / 2.0, height / 2.0),
            Self::Polygon { vertices, .. } => {
                let range = |coordinate: fn(&GeoPosition) -> f64| {
                    let all = || vertices.iter().map(coordinate);
                    (all().fold(f64::INFINITY, f64::min), all().fold(f64::NEG_INFINITY, f64::max))
                };
                return Bounds {
                    longitude: range(|vertex| vertex.longitude),
                    latitude: range(|vertex| vertex.latitude),
                };
            }
        };
        let high = degrees(height / EARTH_RADIUS);
        // A degree of longitude is shorter near a pole, so that side of the shape is wider in
        // degrees.
        let polar =
            if centre.latitude < 0.0 { centre.latitude - high } else { centre.latitude + high };
        let wide = degrees(width / EARTH_RADIUS / radians(polar).cos());
        Bounds {
            longitude: (centre.longitude - wide, centre.longitude + wide),
            latitude: (centre.latitude - high, centre.latitude + high),
        }
    }
}

/// How many steps a cell may have so that it and its neighbours cover this distance around it.
fn steps_for(reach: f64, latitude: f64) -> u32 {
    if reach == 0.0 {
        return STEPS_MAX;
    }
    let mut steps = 1i32;
    let mut reach = reach;
    while reach < MERCATOR_MAX {
        reach *= 2.0;
        steps += 1;
    }
    steps -= 2;
    // Cells get narrower towards the poles.
    steps -= i32::from(latitude.abs() > 66.0) + i32::from(latitude.abs() > 80.0);
    steps.clamp(1, STEPS_MAX as i32) as u32
}

/// Whether the neighbouring cells reach beyond the bounds on all sides.
fn covered_by_neighbours(cell: GeoCell, bounds: &Bounds) -> bool {
    let area = |east, north| cell.neighbour(east, north).area();
    let (north, south, east, west) = (area(0, 1), area(0, -1), area(1, 0), area(-1, 0));
    let short = north.latitude.1 < bounds.latitude.1
        || south.latitude.0 > bounds.latitude.0
        || east.longitude.1 < bounds.longitude.1
        || west.longitude.0 > bounds.longitude.0;
    !short
}

/// Whether a ray from the position to the east crosses an odd number of edges.
fn contains(vertices: &[GeoPosition], position: GeoPosition) -> bool {
    let mut inside = false;
    let mut from = vertices.len().wrapping_sub(1);
    for (at, a) in vertices.iter().enumerate() {
        let b = &vertices[from];
        from = at;
        if (a.latitude > position.latitude) == (b.latitude > position.latitude) {
            continue;
        }
        let edge = (b.longitude - a.longitude) * (position.latitude - a.latitude)
            / (b.latitude - a.latitude)
            + a.longitude;
        inside ^= position.longitude < edge;
    }
    inside
}

/// The cell itself and its neighbours as (east, north), in the order in which they are read.
const AROUND: [(i32, i32); 9] =
    [(0, 0), (0, 1), (0, -1), (1, 0), (-1, 0), (1, 1), (-1, 1), (1, -1), (-1, -1)];
/// The effort of a circle: sines, cosines and a distance.
const CIRCLE_EFFORT: usize = 16;
/// About half of the equator, in metres.
const MERCATOR_MAX: f64 = 20_037_726.37;

#[cfg(test)]
mod tests {
    use super::*;

    fn at(longitude: f64, latitude: f64) -> GeoPosition {
        GeoPosition { longitude, latitude }
    }

    #[test]
    fn points_in_polygons() {
        let square = [at(0.0, 0.0), at(2.0, 0.0), at(2.0, 2.0), at(0.0, 2.0)];
        assert!(contains(&square, at(1.0, 1.0)));
        assert!(!contains(&square, at(3.0, 1.0)) && !contains(&square, at(1.0, -1.0)));
        let notched = [at(0.0, 0.0), at(4.0, 0.0), at(2.0, 2.0), at(4.0, 4.0), at(0.0, 4.0)];
        assert!(contains(&notched, at(1.0, 2.0)) && !contains(&notched, at(3.0, 2.0)));
    }

    #[test]
    fn small_circles_need_few_cells() {
        let circle = |radius| Shape::Circle { centre: at(15.0, 37.0), radius };
        for radius in [0.0, 1.0, 1000.0, 200_000.0] {
            assert!((1..=9).contains(&circle(radius).score_ranges().len()));
        }
        assert_eq!(circle(0.0).score_ranges().len(), 1);
        assert_eq!(circle(50_000_000.0).score_ranges()[0], 3 << 50..4 << 50);
    }
}
