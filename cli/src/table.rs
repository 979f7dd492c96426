//! A plain text table: columns as wide as their widest cell. Lines can be printed one by one while rows are added.

use std::fmt;

/// How a column's cells are placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Align {
    Left,
    Right,
}

/// Rows of text under a heading.
#[derive(Debug)]
pub(crate) struct Table {
    columns: Vec<(String, Align)>,
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(crate) fn new(columns: &[(&str, Align)]) -> Table {
        let columns = columns
            .iter()
            .map(|&(name, align)| (name.to_owned(), align))
            .collect();
        Table {
            columns,
            rows: Vec::new(),
        }
    }

    /// Adds a row; it has one cell a column.
    pub(crate) fn row(&mut self, cells: Vec<String>) {
        assert_eq!(
            cells.len(),
            self.columns.len(),
            "a row has one cell a column"
        );
        self.rows.push(cells);
    }

    pub(crate) fn heading(&self) -> String {
        let names = self.columns.iter().map(|(name, _)| name.as_str());
        self.line(names, &self.widths())
    }

    /// The row that was added last, in line with those before it unless it is the widest.
    pub(crate) fn last(&self) -> String {
        let cells = self.rows.last().map_or(&[][..], Vec::as_slice);
        self.line(cells.iter().map(String::as_str), &self.widths())
    }

    fn line<'a>(&self, cells: impl Iterator<Item = &'a str>, widths: &[usize]) -> String {
        let mut line = String::new();
        for ((cell, &width), (_, align)) in cells.zip(widths).zip(&self.columns) {
            line += &match align {
                Align::Left => format!("{cell:<width$}  "),
                Align::Right => format!("{cell:>width$}  "),
            };
        }
        line.trim_end().to_owned()
    }

    fn widths(&self) -> Vec<usize> {
        let widest = |(index, (name, _)): (usize, &(String, Align))| {
            let cells = self.rows.iter().map(|row| row[index].chars().count());
            cells.max().unwrap_or(0).max(name.chars().count())
        };
        self.columns.iter().enumerate().map(widest).collect()
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.heading())?;
        let widths = self.widths();
        for row in &self.rows {
            writeln!(f, "{}", self.line(row.iter().map(String::as_str), &widths))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_fit_their_widest_cell() {
        let mut table = Table::new(&[("name", Align::Left), ("value", Align::Right)]);
        table.row(vec!["a".into(), "1".into()]);
        table.row(vec!["longer".into(), "1234567".into()]);
        assert_eq!(
            table.to_string(),
            "name      value\na             1\nlonger  1234567\n"
        );
    }

    #[test]
    fn lines_one_by_one_are_those_of_the_whole() {
        let mut table = Table::new(&[("name  ", Align::Left), ("  value", Align::Right)]);
        let mut lines = vec![table.heading()];
        for (name, value) in [("a", "1"), ("longer", "1234567")] {
            table.row(vec![name.into(), value.into()]);
            lines.push(table.last());
        }
        assert_eq!(table.to_string(), lines.join("\n") + "\n");
    }
}
