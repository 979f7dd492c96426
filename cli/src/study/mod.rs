//! `urxe study`: questions of the documents behind the project, answered by measurement on the reader's machine.
//!
//! A study is a file with a [`book::Study`]: the question, what the documents say, and a function that measures. What it finds has
//! the same form in all ([`book::Findings`]) and is shown by [`render`] and [`chart`].

pub(crate) mod args;
mod atomicity;
mod book;
mod chart;
mod child;
mod eager;
mod fabric;
mod lab;
mod loss;
mod matching;
mod memory;
mod mpi;
mod multicast;
mod overlap;
mod pingpong;
mod registration;
mod render;
mod scenario;

use std::fs;
use std::io::{Write as _, stdout};
use std::path::Path;
use std::time::Instant;

use self::args::StudyArgs;
use self::book::{Chapter, Effort, Study};
use crate::error::{CliError, Context as _};
use crate::output::{print_report, progress};
use crate::sim::new_file::{NewFile, cannot_write};

/// All, in the order of the book.
const STUDIES: &[Study] = &[
    matching::STUDY,
    registration::STUDY,
    eager::STUDY,
    memory::STUDY,
    overlap::STUDY,
    pingpong::STUDY,
    multicast::STUDY,
    atomicity::STUDY,
    fabric::STUDY,
    loss::STUDY,
    mpi::STUDY,
];

pub(crate) fn run(args: &StudyArgs) -> Result<(), CliError> {
    if let Some(part) = &args.part {
        let bytes = memory::part(part)?;
        return print_report(true, &serde_json::json!({ "bytes": bytes }), String::new);
    }
    let wanted = wanted(&args.names)?;
    if args.names == ["list"] {
        for Study { name, question, .. } in wanted {
            writeln!(stdout(), "{name}: {question}")?;
        }
        return Ok(());
    }
    let effort = Effort {
        is_quick: args.quick,
    };
    let progress = progress(
        args.json,
        "{bar:20} {pos}/{len} studies: {msg}",
        wanted.len(),
    );
    let mut chapters = Vec::new();
    for study in wanted {
        progress.set_message(study.name);
        chapters.push(chapter(study, &effort)?);
        progress.inc(1);
    }
    progress.finish_and_clear();
    write_files(args, &chapters)?;
    print_report(args.json, &chapters, || render::text(&chapters))
}

fn wanted(names: &[String]) -> Result<Vec<&'static Study>, CliError> {
    if names == ["all"] || names == ["list"] {
        return Ok(STUDIES.iter().collect());
    }
    let find = |name: &String| {
        let found = STUDIES.iter().find(|study| study.name == name);
        found.ok_or_else(|| {
            let known: Vec<&str> = STUDIES.iter().map(|study| study.name).collect();
            let known = known.join(", ");
            CliError::Usage(format!("no study {name}: there are {known}; or all, alone"))
        })
    };
    names.iter().map(find).collect()
}

fn chapter(study: &Study, effort: &Effort) -> Result<Chapter, CliError> {
    let start = Instant::now();
    let findings = (study.measure)(effort).context(format_args!("study {}", study.name))?;
    Ok(Chapter {
        name: study.name,
        question: study.question,
        documents: study.claims,
        findings,
        seconds: start.elapsed().as_secs_f64(),
    })
}

fn write_files(args: &StudyArgs, chapters: &[Chapter]) -> Result<(), CliError> {
    if let Some(folder) = &args.svg {
        fs::create_dir_all(folder).map_err(|error| cannot_write(folder, error))?;
        for picture in chapters
            .iter()
            .flat_map(|chapter| &chapter.findings.pictures)
        {
            write(
                &folder.join(&picture.name).with_extension("svg"),
                &picture.svg(),
            )?;
        }
    }
    if let Some(path) = &args.html {
        write(path, &render::html(chapters))?;
    }
    if let Some(path) = &args.markdown {
        let pictures = args.svg.as_deref().map(|folder| seen_from(path, folder));
        write(path, &render::markdown(chapters, pictures.as_deref()))?;
    }
    Ok(())
}

/// A folder as a link in a file has it: below the file's own folder if it is there.
fn seen_from(file: &Path, folder: &Path) -> String {
    let own = file.parent().unwrap_or(Path::new(""));
    folder
        .strip_prefix(own)
        .unwrap_or(folder)
        .display()
        .to_string()
}

fn write(path: &Path, text: &str) -> Result<(), CliError> {
    let mut file = NewFile::create(path)?;
    file.write_all(text.as_bytes())
        .map_err(|error| cannot_write(path, error))?;
    file.keep()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn names_differ_and_every_study_has_a_claim() {
        let names: BTreeSet<&str> = STUDIES.iter().map(|study| study.name).collect();
        assert_eq!(names.len(), STUDIES.len());
        for study in STUDIES {
            assert!(study.question.ends_with('?'), "{}", study.question);
            assert!(!study.claims.is_empty(), "{}", study.name);
        }
    }

    #[test]
    fn a_study_that_is_not_there_is_told_with_those_that_are() {
        let error = wanted(&["pingpong".to_owned(), "nothing".to_owned()]);
        let error = error.err().expect("refused").to_string();
        assert!(
            error.contains("no study nothing") && error.contains("pingpong"),
            "{error}"
        );
    }

    #[test]
    fn pictures_are_linked_from_where_the_book_is() {
        let link = seen_from(
            Path::new("docs/STUDIES.md"),
            Path::new("docs/images/studies"),
        );
        assert_eq!(link, "images/studies");
        assert_eq!(seen_from(Path::new("x.md"), Path::new("/tmp/p")), "/tmp/p");
    }
}
