//! `urxe sim diff`: where two runs part.

use std::io::{Write, stdout};

use fabric_sim::observe::{Happening, compared};

use crate::error::{CliError, Context};
use crate::sim::args::{DiffArgs, ScenarioArgs};

pub(super) fn diff(args: &DiffArgs) -> Result<(), CliError> {
    let first = &args.of.scenario;
    let mut set = first.set.clone();
    set.extend(args.set_b.iter().cloned());
    let second = ScenarioArgs {
        file: args.with.clone().unwrap_or_else(|| first.file.clone()),
        set,
        swarm: first.swarm,
    };
    let (a, seed_a) = args.of.open()?;
    let b = second.open()?;
    let seed_b = args.seed_b.unwrap_or(args.of.seed.unwrap_or(b.seed()));
    let mut sim_a = a.build(seed_a).context(first.file.display())?;
    let mut sim_b = b.build(seed_b).context(second.file.display())?;
    let result = compared([(&mut sim_a, a.until()), (&mut sim_b, b.until())]);
    let mut out = stdout();
    let difference = match result {
        Ok(count) => {
            writeln!(out, "the same {count} events")?;
            return Ok(());
        }
        Err(difference) => difference,
    };
    writeln!(out, "the same {} events", difference.same)?;
    let mut tell = |name: &str, happening: Option<Happening>, sim: &fabric_sim::Sim| {
        let text = happening.map(|h| h.describe(sim.fabric().topology()));
        writeln!(out, "{name} {}", text.as_deref().unwrap_or("nothing more"))
    };
    if difference.before.is_some() {
        tell("  last of them:", difference.before, &sim_a)?;
    }
    tell("  A:", difference.first, &sim_a)?;
    tell("  B:", difference.second, &sim_b)?;
    writeln!(out, "  A is {}", first.line("run", seed_a, &[]))?;
    writeln!(out, "  B is {}", second.line("run", seed_b, &[]))?;
    Err(CliError::Fault("the runs are not the same".to_owned()))
}
