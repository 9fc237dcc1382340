//! The query of a search.

use bobbin_resp::{parse_f64, parse_i64};
use bobbin_store::geo::{GeoPosition, Shape};
use bobbin_store::hash::Hasher;
use bobbin_store::value::SortedSet;

use super::{position, unit};
use crate::engine::command::Failure;

/// The forms of the search commands.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum SearchForm {
    /// GEORADIUS; without `may_store` GEORADIUS_RO.
    Radius {
        may_store: bool,
    },
    /// GEORADIUSBYMEMBER and GEORADIUSBYMEMBER_RO.
    RadiusByMember {
        may_store: bool,
    },
    Search,
    SearchStore,
}

impl SearchForm {
    /// The argument that names where to store the result. In some forms it follows the last STORE
    /// or STOREDIST.
    pub(super) fn stored(self, args: &[&[u8]]) -> Option<usize> {
        let first = match self {
            Self::SearchStore => return Some(1),
            Self::Radius { may_store: true } => 6,
            Self::RadiusByMember { may_store: true } => 5,
            _ => return None,
        };
        let (mut at, mut stored) = (first, None);
        while at + 1 < args.len() {
            let word = args[at];
            if word.eq_ignore_ascii_case(b"store") || word.eq_ignore_ascii_case(b"storedist") {
                at += 1;
                stored = Some(at);
            }
            at += 1;
        }
        stored
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum DistanceOrder {
    Any,
    Nearest,
    Farthest,
}

/// The options of a search.
pub(super) struct Query {
    /// `None`: there is no set to search.
    pub shape: Option<Shape>,
    /// The unit of distances in metres.
    pub metres: f64,
    pub order: DistanceOrder,
    pub count: Option<usize>,
    /// ANY: the first hits are enough.
    pub any: bool,
    pub with_distance: bool,
    pub with_score: bool,
    pub with_position: bool,
    /// The argument that names where to store the result.
    pub store: Option<usize>,
    /// Store distances as scores.
    pub store_distance: bool,
}

/// The centre, as far as it is known.
#[derive(Clone, Copy, PartialEq)]
enum Centre {
    Missing,
    /// A member of a set that does not exist.
    Unknown,
    Member(GeoPosition),
    Given(GeoPosition),
}

enum SearchExtent {
    Missing,
    Radius(f64),
    Box { width: f64, height: f64 },
    Polygon(Vec<GeoPosition>),
}

/// The state of parsing.
struct SearchParser<'a> {
    args: &'a [&'a [u8]],
    form: SearchForm,
    set: Option<(&'a SortedSet, &'a Hasher)>,
    at: usize,
    centre: Centre,
    extent: SearchExtent,
    query: Query,
}

impl Query {
    /// How many of this number of hits are wanted.
    pub(super) fn wanted_of(&self, hits: usize) -> usize {
        self.count.map_or(hits, |count| count.min(hits))
    }

    /// Whether every peer knows the search and finds the same. Only Valkey 9 knows polygons, and
    /// nothing says which of members at the same distance COUNT takes.
    pub(super) fn is_universal(&self) -> bool {
        self.count.is_none() && !matches!(self.shape, Some(Shape::Polygon { .. }))
    }

    pub(super) fn parse(
        args: &[&[u8]],
        form: SearchForm,
        set: Option<(&SortedSet, &Hasher)>,
    ) -> Result<Self, Failure> {
        let query = Self {
            shape: None,
            metres: 1.0,
            order: DistanceOrder::Any,
            count: None,
            any: false,
            with_distance: false,
            with_score: false,
            with_position: false,
            store: form.stored(args),
            store_distance: false,
        };
        let (centre, extent) = (Centre::Missing, SearchExtent::Missing);
        let mut parser = SearchParser { args, form, set, at: 0, centre, extent, query };
        parser.leading()?;
        while parser.at < args.len() {
            let known = parser.option()? || parser.is_search() && parser.search_option()?;
            if !known {
                return Err(Failure::SYNTAX);
            }
        }
        parser.finish()
    }
}

impl SearchParser<'_> {
    fn is_search(&self) -> bool {
        matches!(self.form, SearchForm::Search | SearchForm::SearchStore)
    }

    /// Parses what precedes the options.
    fn leading(&mut self) -> Result<(), Failure> {
        match self.form {
            SearchForm::Radius { .. } => {
                self.centre = Centre::Given(position(&self.args[2..4])?);
                self.radius(4)?;
                self.at = 6;
            }
            SearchForm::RadiusByMember { .. } => {
                self.centre = self.member(2)?;
                if self.set.is_some() {
                    self.radius(3)?;
                }
                self.at = 5;
            }
            SearchForm::Search => self.at = 2,
            SearchForm::SearchStore => self.at = 3,
        }
        Ok(())
    }

    fn is(&self, word: &str) -> bool {
        self.args[self.at].eq_ignore_ascii_case(word.as_bytes())
    }

    /// Whether at least `more` words follow.
    fn has(&self, more: usize) -> bool {
        self.at + more < self.args.len()
    }

    /// Parses an option of all forms. `false`: it is not one.
    fn option(&mut self) -> Result<bool, Failure> {
        let may_store = matches!(
            self.form,
            SearchForm::Radius { may_store: true } | SearchForm::RadiusByMember { may_store: true }
        );
        if self.is("withdist") {
            self.query.with_distance = true;
        } else if self.is("withhash") {
            self.query.with_score = true;
        } else if self.is("withcoord") {
            self.query.with_position = true;
        } else if self.is("any") {
            self.query.any = true;
        } else if self.is("asc") {
            self.query.order = DistanceOrder::Nearest;
        } else if self.is("desc") {
            self.query.order = DistanceOrder::Farthest;
        } else if self.is("count") && self.has(1) {
            let count = parse_i64(self.args[self.at + 1]).ok_or(Failure::NOT_AN_INTEGER)?;
            if count <= 0 {
                return Err("ERR COUNT must be > 0".into());
            }
            self.query.count = Some(count as usize);
            self.at += 1;
        } else if (self.is("store") || self.is("storedist")) && may_store && self.has(1) {
            self.query.store_distance = self.is("storedist");
            self.at += 1;
        } else if self.is("storedist") && self.form == SearchForm::SearchStore {
            self.query.store_distance = true;
        } else {
            return Ok(false);
        }
        self.at += 1;
        Ok(true)
    }

    /// Parses an option of GEOSEARCH. `false`: it is not one.
    fn search_option(&mut self) -> Result<bool, Failure> {
        let is_polygon = matches!(self.extent, SearchExtent::Polygon(_));
        if self.is("frommember") && self.has(1) && !is_polygon {
            if matches!(self.centre, Centre::Given(_)) {
                return Ok(false);
            }
            self.centre = self.member(self.at + 1)?;
            self.at += 2;
        } else if self.is("fromlonlat") && self.has(2) && !is_polygon {
            if matches!(self.centre, Centre::Member(_) | Centre::Unknown) {
                return Ok(false);
            }
            self.centre = Centre::Given(position(&self.args[self.at + 1..])?);
            self.at += 3;
        } else if self.is("byradius") && self.has(2) {
            if !matches!(self.extent, SearchExtent::Missing | SearchExtent::Radius(_)) {
                return Ok(false);
            }
            self.radius(self.at + 1)?;
            self.at += 3;
        } else if self.is("bybox") && self.has(3) {
            if !matches!(self.extent, SearchExtent::Missing | SearchExtent::Box { .. }) {
                return Ok(false);
            }
            self.sides(self.at + 1)?;
            self.at += 4;
        } else if self.is("bypolygon") && self.has(2) {
            let fits = matches!(self.extent, SearchExtent::Missing | SearchExtent::Polygon(_));
            if !fits || self.centre != Centre::Missing {
                return Ok(false);
            }
            self.polygon()?;
        } else {
            return Ok(false);
        }
        Ok(true)
    }

    /// The position of the member at an argument.
    fn member(&self, at: usize) -> Result<Centre, Failure> {
        let Some((set, hasher)) = self.set else { return Ok(Centre::Unknown) };
        let member = self.args[at];
        match set.score(member, hasher) {
            Some(score) => Ok(Centre::Member(GeoPosition::from_score(score))),
            None => {
                let member = String::from_utf8_lossy(member);
                Err(Failure::format(format!("ERR member {member} does not exist")))
            }
        }
    }

    /// Parses a radius and its unit.
    fn radius(&mut self, at: usize) -> Result<(), Failure> {
        let radius = parse_f64(self.args[at]).ok_or(Failure::new(&"ERR need numeric radius"))?;
        if radius < 0.0 {
            return Err("ERR radius cannot be negative".into());
        }
        self.query.metres = unit(self.args[at + 1])?;
        self.extent = SearchExtent::Radius(radius * self.query.metres);
        Ok(())
    }

    /// Parses a width, a height and their unit.
    fn sides(&mut self, at: usize) -> Result<(), Failure> {
        let width = parse_f64(self.args[at]).ok_or(Failure::new(&"ERR need numeric width"))?;
        let height =
            parse_f64(self.args[at + 1]).ok_or(Failure::new(&"ERR need numeric height"))?;
        if width < 0.0 || height < 0.0 {
            return Err("ERR height or width cannot be negative".into());
        }
        let metres = unit(self.args[at + 2])?;
        self.query.metres = metres;
        self.extent = SearchExtent::Box { width: width * metres, height: height * metres };
        Ok(())
    }

    /// Parses the number of vertices and the vertices.
    fn polygon(&mut self) -> Result<(), Failure> {
        let count = parse_i64(self.args[self.at + 1]).and_then(|count| i32::try_from(count).ok());
        let count = count.ok_or(Failure::new(&"ERR invalid number of vertices"))?;
        let first = self.at + 2;
        let end = usize::try_from(count).ok().filter(|count| *count >= 3).map(|n| first + 2 * n);
        let words = end.and_then(|end| self.args.get(first..end)).ok_or(FEW_VERTICES)?;
        let vertices = words.chunks_exact(2).map(position).collect::<Result<_, _>>()?;
        self.query.metres = 1.0;
        self.extent = SearchExtent::Polygon(vertices);
        self.at = first + words.len();
        Ok(())
    }

    fn finish(mut self) -> Result<Query, Failure> {
        let query = &self.query;
        let shows_more = query.with_distance || query.with_score || query.with_position;
        if query.store.is_some() && shows_more {
            let what = match self.form {
                SearchForm::SearchStore => "GEOSEARCHSTORE",
                _ => "STORE option in GEORADIUS",
            };
            return Err(Failure::format(format!(
                "ERR {what} is not compatible with WITHDIST, WITHHASH and WITHCOORD options"
            )));
        }
        let name = || String::from_utf8_lossy(self.args[0]);
        if self.is_search() {
            let is_polygon = matches!(self.extent, SearchExtent::Polygon(_));
            if self.centre == Centre::Missing && !is_polygon {
                return Err(Failure::format(format!(
                    "ERR exactly one of FROMMEMBER or FROMLONLAT can be specified for {}",
                    name()
                )));
            }
            if matches!(self.extent, SearchExtent::Missing) {
                return Err(Failure::format(format!(
                    "ERR exactly one of BYRADIUS, BYBOX and BYPOLYGON can be specified for {}",
                    name()
                )));
            }
        }
        if query.any && query.count.is_none() {
            return Err("ERR the ANY argument requires COUNT argument".into());
        }
        if query.count.is_some() && query.order == DistanceOrder::Any && !query.any {
            // Only the nearest members are wanted.
            self.query.order = DistanceOrder::Nearest;
        }
        let centre = match self.centre {
            Centre::Member(place) | Centre::Given(place) => Some(place),
            Centre::Missing | Centre::Unknown => None,
        };
        self.query.shape = match (self.extent, centre) {
            (SearchExtent::Polygon(vertices), _) => Some(Shape::polygon(vertices)),
            (SearchExtent::Radius(radius), Some(centre)) => Some(Shape::Circle { centre, radius }),
            (SearchExtent::Box { width, height }, Some(centre)) => {
                Some(Shape::Box { centre, width, height })
            }
            _ => None,
        };
        Ok(self.query)
    }
}

const FEW_VERTICES: Failure =
    Failure::new(&"ERR GEOSEARCH BYPOLYGON must have at least 3 vertices");
