//! A plain text table: columns as wide as their widest cell.

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
        let widths = self.widths();
        let heading: Vec<&str> = self.columns.iter().map(|(name, _)| name.as_str()).collect();
        let body = self
            .rows
            .iter()
            .map(|row| row.iter().map(String::as_str).collect());
        for row in std::iter::once(heading).chain(body) {
            let mut line = String::new();
            for ((cell, &width), (_, align)) in row.iter().zip(&widths).zip(&self.columns) {
                line += &match align {
                    Align::Left => format!("{cell:<width$}  "),
                    Align::Right => format!("{cell:>width$}  "),
                };
            }
            writeln!(f, "{}", line.trim_end())?;
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
}
