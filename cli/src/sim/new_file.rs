//! Files that are there as a whole or not at all.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use crate::error::CliError;

/// A file that is being written beside its place, and moved there by [`NewFile::keep`]. What was in its place before stays
/// until then; if it is dropped before, nothing is left. Devices and pipes are written to as they are.
#[derive(Debug)]
pub(crate) struct NewFile {
    writer: BufWriter<File>,
    path: PathBuf,
    /// The path while it is written, if another.
    part: Option<PathBuf>,
}

impl NewFile {
    /// Begins a file.
    ///
    /// # Errors
    /// It cannot be written there.
    pub(crate) fn create(path: &Path) -> Result<NewFile, CliError> {
        let begin = || -> io::Result<_> {
            if let Ok(there) = fs::metadata(path)
                && !there.is_file()
            {
                let file = File::options().write(true).open(path)?;
                return Ok((file, None));
            }
            let part = part_of(path)?;
            Ok((File::create(&part)?, Some(part)))
        };
        let (file, part) = begin().map_err(|e| cannot_write(path, e))?;
        Ok(NewFile {
            writer: BufWriter::new(file),
            path: path.to_owned(),
            part,
        })
    }

    /// Writes the rest, and puts the file in its place.
    ///
    /// # Errors
    /// The rest cannot be written: then nothing is left of it.
    pub(crate) fn keep(mut self) -> Result<(), CliError> {
        let done = self.writer.flush().and_then(|()| match &self.part {
            Some(part) => fs::rename(part, &self.path),
            None => Ok(()),
        });
        done.map_err(|e| cannot_write(&self.path, e))?;
        self.part = None;
        Ok(())
    }
}

impl Write for NewFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.writer.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.writer.flush()
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        if let Some(part) = &self.part {
            // Nothing to be done about it, and the error that led here has been told.
            let _ = fs::remove_file(part);
        }
    }
}

/// A name in the same folder that no other process uses.
fn part_of(path: &Path) -> io::Result<PathBuf> {
    let name = path
        .file_name()
        .ok_or_else(|| io::Error::other("that is no name of a file"))?;
    let id = std::process::id();
    Ok(path.with_file_name(format!(".{}.{id}.part", name.to_string_lossy())))
}

/// A failure to write, with the file's name.
pub(crate) fn cannot_write(path: &Path, error: impl std::fmt::Display) -> CliError {
    CliError::context(format_args!("cannot write {}", path.display()), error)
}
