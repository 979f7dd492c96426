//! This process's memory, as the system counts it.

use crate::error::CliError;

/// Resident bytes of this process that no file backs: heap, stacks and shared memory.
///
/// Pages of the program's own code count for nothing: code that runs for the first time between two
/// looks would pass for memory of what was made between them.
pub(crate) fn resident() -> Result<u64, CliError> {
    const FILE: &str = "/proc/self/status";
    let fail = |text: &str| CliError::Failed(format!("{FILE}: {text}"));
    let status = std::fs::read_to_string(FILE).map_err(|error| fail(&error.to_string()))?;
    let kib = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|rest| rest.trim().strip_suffix(" kB"))
            .and_then(|number| number.trim().parse::<u64>().ok())
            .ok_or_else(|| fail(&format!("no {name} in kB")))
    };
    Ok((kib("RssAnon:")? + kib("RssShmem:")?) << 10)
}
