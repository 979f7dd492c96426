//! Chapters as text, as Markdown, and as a page.

use std::fmt::Write as _;

use super::book::{Cell, Chapter, Grid};
use super::chart::escaped;
use crate::table::{Align, Table};

/// For a terminal.
pub(super) fn text(chapters: &[Chapter]) -> String {
    let mut out = String::new();
    for chapter in chapters {
        let _ = writeln!(out, "{}: {}", chapter.name, chapter.question);
        for claim in chapter.documents {
            let _ = writeln!(out, "  {}: {}", claim.document.says(), claim.says);
        }
        for grid in &chapter.findings.tables {
            let _ = write!(out, "\n{}\n\n{}", grid.title, table(grid));
        }
        let _ = writeln!(out);
        for lack in &chapter.findings.lacks {
            let _ = writeln!(out, "- lacks: {lack}");
        }
        for follows in &chapter.findings.follows {
            let _ = writeln!(out, "- {follows}");
        }
        let _ = writeln!(out, "({:.1} s)\n", chapter.seconds);
    }
    out
}

fn table(grid: &Grid) -> Table {
    let column = |n: usize| {
        let is_number = |row: &Vec<Cell>| matches!(row[n], Cell::Number(..));
        match grid.rows.iter().any(is_number) {
            true => Align::Right,
            false => Align::Left,
        }
    };
    let names = grid.columns.iter().enumerate();
    let columns: Vec<_> = names.map(|(n, name)| (name.as_str(), column(n))).collect();
    let mut table = Table::new(&columns);
    for row in &grid.rows {
        table.row(row.iter().map(Cell::shown).collect());
    }
    table
}

/// What is in front of the chapters of a book.
const HEAD: &str = "\
# Studies

Four documents stand behind urxe: a critique of RDMA as what MPI is built on, a slide deck that introduces RDMA programming, an introduction with questions and answers,
and an essay on fabrics. They make claims and show numbers. `urxe study NAME` measures each on the reader's machine and prints it beside the document's own number;
`urxe study list` has the names, `--html` makes a page. This book is one recorded run of

```sh
urxe study all --svg docs/images/studies --markdown docs/STUDIES.md
```
";

/// For a book of Markdown. Pictures are in a folder, as it is seen from the book.
pub(super) fn markdown(chapters: &[Chapter], pictures: Option<&str>) -> String {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let (version, arch) = (env!("CARGO_PKG_VERSION"), std::env::consts::ARCH);
    let mut out = format!("{HEAD}\nby urxe {version} on {cpus} processors ({arch}).\n\n");
    for chapter in chapters {
        let _ = writeln!(out, "## {}: {}\n", chapter.name, chapter.question);
        for claim in chapter.documents {
            let who = claim.document.says().replacen('t', "T", 1);
            let _ = writeln!(out, "{who}: {}\n", claim.says);
        }
        let of_it = format!("`urxe study {}`, {:.0} s", chapter.name, chapter.seconds);
        let _ = writeln!(out, "Measured ({of_it}):\n");
        for Grid {
            title,
            columns,
            rows,
        } in &chapter.findings.tables
        {
            let _ = writeln!(out, "{title}\n\n| {} |", columns.join(" | "));
            let _ = writeln!(out, "|{}", "---|".repeat(columns.len()));
            for row in rows {
                let cells: Vec<String> = row.iter().map(Cell::shown).collect();
                let _ = writeln!(out, "| {} |", cells.join(" | "));
            }
            let _ = writeln!(out);
        }
        for picture in chapter
            .findings
            .pictures
            .iter()
            .filter(|_| pictures.is_some())
        {
            let folder = pictures.unwrap_or_default();
            let _ = writeln!(out, "![{}]({folder}/{}.svg)\n", picture.title, picture.name);
        }
        for lack in &chapter.findings.lacks {
            let _ = writeln!(out, "- Not measured: {lack}");
        }
        for follows in &chapter.findings.follows {
            let _ = writeln!(out, "- {follows}");
        }
        let _ = writeln!(out);
    }
    out.truncate(out.trim_end().len());
    out + "\n"
}

/// A page that needs nothing else.
pub(super) fn html(chapters: &[Chapter]) -> String {
    let mut out = String::from(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>urxe study</title>\n\
         <style>body{font-family:sans-serif;max-width:60em;margin:2em auto;line-height:1.4}\
         table{border-collapse:collapse;margin:1em 0}td,th{border:1px solid #ccc;padding:.2em .6em;text-align:right}\
         td:first-child,th:first-child{text-align:left}svg{max-width:100%}</style></head><body>\n",
    );
    for chapter in chapters {
        let question = escaped(chapter.question);
        let _ = writeln!(out, "<h2>{}: {question}</h2>", chapter.name);
        for claim in chapter.documents {
            let (who, says) = (claim.document.says(), escaped(claim.says));
            let _ = writeln!(out, "<p><em>{who}</em>: {says}</p>");
        }
        for grid in &chapter.findings.tables {
            let _ = writeln!(out, "<p>{}</p><table><tr>", escaped(&grid.title));
            for name in &grid.columns {
                let _ = write!(out, "<th>{}</th>", escaped(name));
            }
            for row in &grid.rows {
                let _ = write!(out, "</tr>\n<tr>");
                for cell in row {
                    let _ = write!(out, "<td>{}</td>", escaped(&cell.shown()));
                }
            }
            let _ = writeln!(out, "</tr></table>");
        }
        for picture in &chapter.findings.pictures {
            out += &picture.svg();
        }
        let _ = writeln!(out, "<ul>");
        for lack in &chapter.findings.lacks {
            let _ = writeln!(out, "<li>Not measured: {}</li>", escaped(lack));
        }
        for follows in &chapter.findings.follows {
            let _ = writeln!(out, "<li>{}</li>", escaped(follows));
        }
        let _ = writeln!(out, "</ul>");
    }
    out + "</body></html>\n"
}

#[cfg(test)]
mod tests {
    use super::super::book::{Claim, Document, Findings};
    use super::super::chart::{Kind, Picture, Series};
    use super::*;

    fn chapter() -> Chapter {
        let mut grid = Grid::new("Costs <here>", &["what", "us"]);
        grid.row(vec![Cell::text("copy"), Cell::number(1.5)]);
        Chapter {
            name: "example",
            question: "Is it dear?",
            documents: &[Claim {
                document: Document::Deck,
                says: "no: 2 us.",
            }],
            findings: Findings {
                tables: vec![grid],
                pictures: vec![Picture {
                    name: "example-costs".to_owned(),
                    title: "costs".to_owned(),
                    x: String::new(),
                    y: "us".to_owned(),
                    kind: Kind::Bars(vec!["copy".to_owned()]),
                    series: vec![Series::bars("here", &[1.5])],
                }],
                follows: vec!["Copy.".to_owned()],
                lacks: vec!["an adapter".to_owned()],
            },
            seconds: 1.25,
        }
    }

    #[test]
    fn every_form_has_the_whole_chapter() {
        let chapters = [chapter()];
        let text = text(&chapters);
        let markdown = markdown(&chapters, Some("images"));
        let html = html(&chapters);
        for form in [&text, &markdown, &html] {
            for part in [
                "Is it dear?",
                "no: 2 us.",
                "copy",
                "1.50",
                "Copy.",
                "an adapter",
            ] {
                assert!(form.contains(part), "no {part} in {form}");
            }
        }
        assert!(text.contains("Costs <here>") && html.contains("Costs &lt;here&gt;"));
        assert!(markdown.contains("| copy | 1.50 |\n"), "{markdown}");
        assert!(
            markdown.contains("![costs](images/example-costs.svg)"),
            "{markdown}"
        );
        assert!(markdown.contains("The deck says"), "{markdown}");
        assert!(
            html.contains("<svg") && html.contains("<td>1.50</td>"),
            "{html}"
        );
    }
}
