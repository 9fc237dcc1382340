//! Rows and columns: what a view lists, in the order and the choice of the user.

use std::cmp::Ordering;

use super::text::width;

pub struct Column {
    pub title: &'static str,
    /// Numbers stand to the right, and the largest come first.
    pub is_number: bool,
    /// It takes the room that others leave, and is always there.
    pub is_wide: bool,
}

pub const fn text(title: &'static str) -> Column {
    Column { title, is_number: false, is_wide: false }
}

pub const fn wide(title: &'static str) -> Column {
    Column { title, is_number: false, is_wide: true }
}

pub const fn number(title: &'static str) -> Column {
    Column { title, is_number: true, is_wide: false }
}

#[derive(Clone, Debug, PartialEq)]
pub enum TableCell {
    Text(String),
    /// What it is sorted by, and what is shown.
    Number(f64, String),
    /// The server does not tell, or not yet.
    Unknown,
}

impl TableCell {
    pub fn of(value: Option<f64>, show: fn(f64) -> String) -> Self {
        value.map_or(Self::Unknown, |number| Self::Number(number, show(number)))
    }

    pub fn count(value: Option<u64>) -> Self {
        Self::of(value.map(|number| number as f64), super::text::count)
    }

    pub fn bytes(value: Option<u64>) -> Self {
        Self::of(value.map(|number| number as f64), super::text::bytes)
    }

    /// A number that is shown whole, such as an ID.
    pub fn whole(value: Option<u64>) -> Self {
        value.map_or(Self::Unknown, |number| Self::Number(number as f64, number.to_string()))
    }

    pub fn seconds(value: Option<u64>) -> Self {
        let show = |seconds| Self::Number(seconds as f64, super::text::duration(seconds));
        value.map_or(Self::Unknown, show)
    }

    pub fn shown(&self) -> &str {
        match self {
            Self::Text(text) | Self::Number(_, text) => text,
            Self::Unknown => "-",
        }
    }

    /// The unknown are after all others, in either direction.
    fn compare(&self, other: &Self, descends: bool) -> Ordering {
        let order = match (self, other) {
            (Self::Unknown, Self::Unknown) => return Ordering::Equal,
            (Self::Unknown, _) => return Ordering::Greater,
            (_, Self::Unknown) => return Ordering::Less,
            (Self::Number(one, _), Self::Number(two, _)) => one.total_cmp(two),
            (one, two) => one.shown().cmp(two.shown()),
        };
        if descends { order.reverse() } else { order }
    }
}

pub struct TableRow {
    /// What stays the same while the row's place changes.
    pub id: String,
    pub cells: Vec<TableCell>,
}

pub struct ViewTable {
    pub columns: &'static [Column],
    pub rows: Vec<TableRow>,
    /// A word about the rows, or about why there are none.
    pub notes: Vec<String>,
}

/// By which column, if by any, and in which direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sort {
    pub column: Option<usize>,
    pub descends: bool,
}

impl Sort {
    /// By a column, in the direction that is expected of it.
    pub fn by(columns: &[Column], place: usize) -> Self {
        let descends = columns.get(place).is_some_and(|column| column.is_number);
        Self { column: Some(place), descends }
    }
}

impl ViewTable {
    pub fn new(columns: &'static [Column]) -> Self {
        Self { columns, rows: Vec::new(), notes: Vec::new() }
    }

    pub fn add(&mut self, id: impl Into<String>, cells: Vec<TableCell>) {
        debug_assert_eq!(cells.len(), self.columns.len());
        self.rows.push(TableRow { id: id.into(), cells });
    }

    /// Leaves the rows in one of whose cells the filter is, whatever its case, and sorts them.
    pub fn arrange(&mut self, sort: Sort, filter: &str) {
        let filter = filter.to_lowercase();
        if !filter.is_empty() {
            let has = |cell: &TableCell| cell.shown().to_lowercase().contains(&filter);
            self.rows.retain(|row| row.cells.iter().any(has));
        }
        if let Some(column) = sort.column.filter(|column| *column < self.columns.len()) {
            self.rows
                .sort_by(|one, two| one.cells[column].compare(&two.cells[column], sort.descends));
        }
    }

    /// The columns for which there is room, and how wide they are. The first, the wide and the
    /// sorted ones stay. Of the others those of which the server tells nothing are left out, and
    /// then those to the right.
    pub fn fit(&self, sort: Sort, room: usize) -> Vec<Fitted> {
        let is_told = |place: usize| {
            let is_known = self.rows.iter().any(|row| row.cells[place] != TableCell::Unknown);
            is_known || place == 0 || sort.column == Some(place)
        };
        let fitted = |(place, column): (usize, &Column)| {
            let cells = self.rows.iter().map(|row| width(row.cells[place].shown()));
            // The mark of the sorted column stands behind its title.
            let widest = cells.max().unwrap_or(0).max(width(column.title) + 1);
            let columns = if column.is_wide { WIDE_MIN } else { widest.min(TEXT_MAX) };
            Fitted { place, columns }
        };
        let told = self.columns.iter().enumerate().filter(|(place, _)| is_told(*place));
        let mut fitted: Vec<_> = told.map(fitted).collect();
        let taken = |fitted: &[Fitted]| fitted.iter().map(|one| one.columns + GAP.len()).sum();
        while room + GAP.len() < taken(&fitted) {
            let is_spare = |one: &Fitted| {
                one.place > 0 && !self.columns[one.place].is_wide && sort.column != Some(one.place)
            };
            let Some(spare) = fitted.iter().rposition(is_spare) else { break };
            fitted.remove(spare);
        }
        let left = (room + GAP.len()).saturating_sub(taken(&fitted));
        if let Some(wide) = fitted.iter_mut().find(|one| self.columns[one.place].is_wide) {
            wide.columns += left;
        }
        fitted
    }

    /// The titles, the sorted one with its direction.
    pub fn head(&self, sort: Sort, fitted: &[Fitted]) -> String {
        let title = |one: &Fitted| {
            let column = &self.columns[one.place];
            let mark = match sort.descends {
                _ if sort.column != Some(one.place) => "",
                true => "▼",
                false => "▲",
            };
            let title = format!("{}{mark}", column.title);
            super::text::fitted(&title, one.columns, column.is_number)
        };
        Vec::from_iter(fitted.iter().map(title)).join(GAP)
    }

    pub fn line(&self, row: &TableRow, fitted: &[Fitted]) -> String {
        let cell = |one: &Fitted| {
            let is_number = self.columns[one.place].is_number;
            super::text::fitted(row.cells[one.place].shown(), one.columns, is_number)
        };
        Vec::from_iter(fitted.iter().map(cell)).join(GAP)
    }
}

/// A column that is shown, and how many columns of the terminal it takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fitted {
    place: usize,
    columns: usize,
}

/// Between two columns.
const GAP: &str = "  ";
const WIDE_MIN: usize = 16;
const TEXT_MAX: usize = 30;

#[cfg(test)]
mod tests {
    use super::*;

    static COLUMNS: &[Column] = &[text("name"), number("size")];

    fn table() -> ViewTable {
        let mut table = ViewTable::new(COLUMNS);
        for (name, size) in [("b", Some(1)), ("A", None), ("c", Some(20)), ("a", Some(3))] {
            table.add(name, vec![TableCell::Text(name.into()), TableCell::count(size)]);
        }
        table
    }

    fn order(sort: Sort, filter: &str) -> String {
        let mut table = table();
        table.arrange(sort, filter);
        table.rows.iter().map(|row| row.id.as_str()).collect()
    }

    #[test]
    fn the_unknown_come_last() {
        assert_eq!(order(Sort::default(), ""), "bAca");
        assert_eq!(order(Sort::by(COLUMNS, 1), ""), "cabA");
        assert_eq!(order(Sort { column: Some(1), descends: false }, ""), "bacA");
        assert_eq!(order(Sort::by(COLUMNS, 0), ""), "Aabc");
        assert_eq!(order(Sort { column: Some(9), descends: true }, ""), "bAca");
    }

    #[test]
    fn a_filter_looks_into_every_cell() {
        assert_eq!(order(Sort::default(), "a"), "Aa");
        assert_eq!(order(Sort::default(), "20"), "c");
        assert_eq!(order(Sort::default(), "x"), "");
    }

    #[test]
    fn columns_take_the_room_that_there_is() {
        static WITH_WIDE: &[Column] = &[text("a"), wide("words"), number("n"), number("m")];
        let mut table = ViewTable::new(WITH_WIDE);
        let words = TableCell::Text("one two".into());
        let numbers = [TableCell::count(Some(1234)), TableCell::count(Some(7))];
        table.add("1", [TableCell::Text("x".into()), words].into_iter().chain(numbers).collect());
        let shown = |sort, room| {
            let fitted = table.fit(sort, room);
            (table.head(sort, &fitted), table.line(&table.rows[0], &fitted))
        };
        let (head, line) = shown(Sort::default(), 34);
        assert_eq!(head, "a   words                    n   m");
        assert_eq!(line, "x   one two              1.23k   7");
        let (head, _) = shown(Sort::by(WITH_WIDE, 3), 28);
        assert_eq!(head, "a   words                 m▼");
        assert_eq!(shown(Sort::default(), 3).0, "a   words           ");
        table.rows[0].cells[3] = TableCell::Unknown;
        assert_eq!(table.fit(Sort::default(), 80).len(), 3);
        assert_eq!(table.fit(Sort::by(WITH_WIDE, 3), 80).len(), 4);
        assert_eq!(ViewTable::new(&[]).fit(Sort::default(), 5), []);
    }
}
