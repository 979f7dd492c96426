//! The command line of `urxe study`.

use std::path::PathBuf;

#[derive(Debug, clap::Args)]
pub(crate) struct StudyArgs {
    /// Studies by their names; `all`, or `list` for their names and questions
    #[arg(required = true, value_name = "NAME|all|list")]
    pub(crate) names: Vec<String>,
    /// Few and short samples: to see that it runs
    #[arg(long)]
    pub(crate) quick: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Write a page with tables and pictures
    #[arg(long, value_name = "FILE.html")]
    pub(crate) html: Option<PathBuf>,
    /// Write the pictures into a folder; made if it is not there
    #[arg(long, value_name = "FOLDER")]
    pub(crate) svg: Option<PathBuf>,
    /// Write the chapters of a book in Markdown, with the pictures of --svg
    #[arg(long, value_name = "FILE.md")]
    pub(crate) markdown: Option<PathBuf>,
    /// Measure a part of a study in this process: how a study starts itself again
    #[arg(long, hide = true)]
    pub(crate) part: Option<String>,
}
