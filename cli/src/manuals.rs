//! Manual pages and completions for shells, as packages bring them (`release/build`). Only with the feature `manuals`: no run of the
//! command needs what makes them.

use std::fs;
use std::io;
use std::path::Path;

use clap::CommandFactory;
use clap_complete::{Shell, generate_to};

use crate::args::Args;
use crate::error::{CliError, Context};

/// Where packages have the completions of each shell, below `share`.
const COMPLETIONS: [(Shell, &str); 3] = [
    (Shell::Bash, "bash-completion/completions"),
    (Shell::Zsh, "zsh/site-functions"),
    (Shell::Fish, "fish/vendor_completions.d"),
];

/// Writes them into `share/...` of a folder.
pub(crate) fn run(folder: &Path) -> Result<(), CliError> {
    let share = folder.join("share");
    write(&share).context(format_args!("cannot write to {}", share.display()))
}

fn write(share: &Path) -> io::Result<()> {
    // One page for the command and one for each of its own, as `git` has them: urxe-sim-run(1).
    let pages = share.join("man/man1");
    fs::create_dir_all(&pages)?;
    clap_mangen::generate_to(Args::command().disable_help_subcommand(true), &pages)?;
    for (shell, place) in COMPLETIONS {
        let place = share.join(place);
        fs::create_dir_all(&place)?;
        let file = generate_to(shell, &mut Args::command(), "urxe", &place)?;
        if shell == Shell::Bash {
            // The name by which bash-completion looks for it.
            fs::rename(&file, place.join("urxe"))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_has_a_page_and_a_completion() {
        let folder = std::env::temp_dir().join(format!("urxe-manuals-{}", std::process::id()));
        run(&folder).expect("it can be written");
        let read = |name: &str| fs::read_to_string(folder.join("share").join(name)).expect(name);
        let completions = [
            read("bash-completion/completions/urxe"),
            read("zsh/site-functions/_urxe"),
            read("fish/vendor_completions.d/urxe.fish"),
        ];
        let command = Args::command();
        let shown = command
            .get_subcommands()
            .filter(|command| !command.is_hide_set());
        for name in shown.map(clap::Command::get_name) {
            let page = read(&format!("man/man1/urxe-{name}.1"));
            assert!(page.contains(".SH SYNOPSIS"), "{name}");
            assert!(completions.iter().all(|text| text.contains(name)), "{name}");
        }
        assert!(read("man/man1/urxe.1").contains("Exit codes"));
        assert!(
            !folder.join("share/man/man1/urxe-target.1").exists(),
            "it is hidden"
        );
        fs::remove_dir_all(&folder).expect("it is ours");
        let refused = run(Path::new("/dev/null")).expect_err("no folder");
        assert!(refused.to_string().contains("/dev/null"), "{refused}");
    }
}
