//! `urxe explain`: what a number or a name in a program's output means.

use serde::Serialize;

use crate::args::ExplainArgs;
use crate::error::CliError;
use crate::output::print_report;

#[derive(Debug, Serialize)]
struct Topic {
    kind: String,
    name: String,
    number: Option<u32>,
    text: String,
}

/// Prints everything that each argument may mean.
pub(crate) fn run(args: &ExplainArgs) -> Result<(), CliError> {
    if args.what.is_empty() && !args.list {
        return Err(CliError::Usage(
            "explain what? A number (`urxe explain 0x202`), a name (`urxe explain RETRY_EXC_ERR`), or a line of a program's output; \
             `urxe explain --list` shows all that is known"
                .to_owned(),
        ));
    }
    let (mut topics, mut unknown) = (Vec::new(), Vec::new());
    if args.list {
        topics = urxe::topics();
    }
    for what in &args.what {
        let found = urxe::explain(what);
        if found.is_empty() {
            unknown.push(format!("\"{what}\""));
        }
        topics.extend(found);
    }
    let plain = topics.iter().map(|topic| Topic {
        kind: topic.kind.to_string(),
        name: topic.name.clone(),
        number: topic.number,
        text: topic.text.clone(),
    });
    print_report(args.json, &plain.collect::<Vec<_>>(), || {
        topics.iter().map(|topic| format!("{topic}\n")).collect()
    })?;
    if unknown.is_empty() {
        return Ok(());
    }
    Err(CliError::Failed(format!(
        "nothing is known about {}; `urxe explain --list` shows what is",
        unknown.join(", ")
    )))
}
