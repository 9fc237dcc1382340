//! Positions on Earth as scores of a sorted set, and the ranges of scores that a search has to
//! read.
//!
//! A position becomes 52 bits, 26 of its latitude and 26 of its longitude, interleaved. So
//! positions near each other lie in few ranges. The formulas are Redis's, in its order of
//! operations, so scores, distances, and results at the edge of a shape are the same. Longitudes
//! and latitudes are in degrees, distances in metres.

mod cell;
mod shape;

pub use cell::{GeoCell, GeoPosition};
pub use shape::Shape;

/// Bits of each coordinate in a score.
const STEPS_MAX: u32 = 26;
/// Mean radius of Earth, in metres.
const EARTH_RADIUS: f64 = 6_372_797.560_856;
pub const LONGITUDE_MAX: f64 = 180.0;
/// The projection ends at this latitude.
pub const LATITUDE_MAX: f64 = 85.051_128_78;

impl GeoPosition {
    /// `None`: the map has no such position.
    pub fn new(longitude: f64, latitude: f64) -> Option<Self> {
        let on_map = (-LONGITUDE_MAX..=LONGITUDE_MAX).contains(&longitude)
            && (-LATITUDE_MAX..=LATITUDE_MAX).contains(&latitude);
        on_map.then_some(Self { longitude, latitude })
    }

    /// The score of this position in a sorted set.
    pub fn score(self) -> u64 {
        GeoCell::around(self, STEPS_MAX).bits
    }

    /// The middle of the cell that a score stands for. Any score is allowed.
    pub fn from_score(score: f64) -> Self {
        let area = GeoCell { bits: to_bits(score), steps: STEPS_MAX }.area();
        let middle = |(min, max): (f64, f64), bound: f64| ((min + max) / 2.0).clamp(-bound, bound);
        Self {
            longitude: middle(area.longitude, LONGITUDE_MAX),
            latitude: middle(area.latitude, LATITUDE_MAX),
        }
    }

    /// The standard geohash, which uses other bounds: 11 characters, the last of which is always
    /// `0`.
    pub fn geohash(self) -> [u8; 11] {
        let bits = cell::interleave(
            cell::fraction(self.latitude, 90.0, STEPS_MAX),
            cell::fraction(self.longitude, 180.0, STEPS_MAX),
        );
        let mut text = [ALPHABET[0]; 11];
        for (at, letter) in text[..10].iter_mut().enumerate() {
            *letter = ALPHABET[(bits >> (52 - 5 * (at + 1))) as usize & 31];
        }
        text
    }

    /// The distance along the great circle.
    pub fn distance(self, other: Self) -> f64 {
        let (longitude, other_longitude) = (radians(self.longitude), radians(other.longitude));
        let v = ((other_longitude - longitude) / 2.0).sin();
        if v.abs() <= SAME_MERIDIAN {
            return self.latitude_distance(other);
        }
        let (latitude, other_latitude) = (radians(self.latitude), radians(other.latitude));
        let u = ((other_latitude - latitude) / 2.0).sin();
        let a = u * u + latitude.cos() * other_latitude.cos() * v * v;
        2.0 * EARTH_RADIUS * a.sqrt().asin()
    }

    /// The distance along the meridian.
    fn latitude_distance(self, other: Self) -> f64 {
        EARTH_RADIUS * (radians(other.latitude) - radians(self.latitude)).abs()
    }
}

/// Converts any score to bits, as C does on x86-64: ZADD may have set it.
fn to_bits(score: f64) -> u64 {
    const HALF: f64 = (1u64 << 63) as f64;
    if score < HALF {
        score as i64 as u64
    } else if score < 2.0 * HALF {
        (score - HALF) as u64 | 1 << 63
    } else {
        0
    }
}

fn radians(degrees: f64) -> f64 {
    degrees * (std::f64::consts::PI / 180.0)
}

fn degrees(radians: f64) -> f64 {
    radians / (std::f64::consts::PI / 180.0)
}

/// The sine of half a difference of longitudes below this counts as zero: some nanometres.
const SAME_MERIDIAN: f64 = 1e-15;
const ALPHABET: &[u8; 32] = b"0123456789bcdefghjkmnpqrstuvwxyz";

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const PALERMO: GeoPosition = GeoPosition { longitude: 13.361389, latitude: 38.115556 };
    const CATANIA: GeoPosition = GeoPosition { longitude: 15.087269, latitude: 37.502669 };

    #[test]
    fn known_places() {
        assert_eq!(PALERMO.score(), 3_479_099_956_230_698);
        assert_eq!(CATANIA.score(), 3_479_447_370_796_909);
        let stored = |place: GeoPosition| GeoPosition::from_score(place.score() as f64);
        assert_eq!(&stored(PALERMO).geohash(), b"sqc8b49rny0");
        assert_eq!(&stored(CATANIA).geohash(), b"sqdtr74hyu0");
        let distance = stored(PALERMO).distance(stored(CATANIA));
        assert_eq!(format!("{distance:.4}"), "166274.1516");
        assert!(GeoPosition::new(181.0, 0.0).is_none() && GeoPosition::new(0.0, 86.0).is_none());
        assert!(GeoPosition::new(f64::NAN, 0.0).is_none());
        assert!(GeoPosition::from_score(0.0).longitude < -179.9);
    }

    fn position() -> impl Strategy<Value = GeoPosition> {
        (-LONGITUDE_MAX..=LONGITUDE_MAX, -LATITUDE_MAX..=LATITUDE_MAX)
            .prop_map(|(longitude, latitude)| GeoPosition { longitude, latitude })
    }

    proptest! {
        #[test]
        fn a_score_is_within_a_metre(place in position()) {
            let stored = GeoPosition::from_score(place.score() as f64);
            prop_assert!(place.distance(stored) < 1.0);
        }

        #[test]
        fn no_score_panics(score: f64) {
            let place = GeoPosition::from_score(score);
            place.geohash();
            prop_assert!(place.latitude.abs() <= LATITUDE_MAX);
        }

        /// Near the poles, and for a shape as large as the Earth, Redis's cells do not cover all of
        /// it.
        #[test]
        fn the_cells_of_a_circle_cover_it(
            longitude in -150.0..150.0f64,
            latitude in -60.0..60.0f64,
            radius in 1.0..500_000.0f64,
            angle in 0.0..std::f64::consts::TAU,
            part in 0.0..0.999f64,
        ) {
            let centre = GeoPosition { longitude, latitude };
            let circle = Shape::Circle { centre, radius };
            let (north, east) = (angle.cos() * part * radius, angle.sin() * part * radius);
            let inside = GeoPosition {
                latitude: latitude + degrees(north / EARTH_RADIUS),
                longitude: longitude + degrees(east / EARTH_RADIUS / radians(latitude).cos()),
            };
            prop_assume!(circle.distance_within(inside).is_some());
            let score = inside.score();
            prop_assert!(circle.score_ranges().iter().any(|range| range.contains(&score)));
        }
    }
}
