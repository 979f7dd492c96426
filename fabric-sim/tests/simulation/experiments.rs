//! Every experiment comes out as it should. `urxe sim experiments` prints the numbers.

use fabric_sim::experiments::EXPERIMENTS;

#[test]
fn all_come_out_as_expected() {
    let mut failures = Vec::new();
    for experiment in EXPERIMENTS {
        println!("{}: {}", experiment.name, experiment.title);
        if experiment.is_long {
            let name = experiment.name;
            println!("  left out, as it is long: urxe sim experiments {name}");
            continue;
        }
        for finding in experiment.run() {
            let line = format!(
                "  {}: {:.4} {}, expected {} {:.4}",
                finding.what, finding.measured, finding.unit, finding.bound, finding.expected
            );
            println!("{line}");
            if !finding.holds() {
                failures.push(format!("{}: {line}", experiment.name));
            }
        }
    }
    assert!(failures.is_empty(), "{failures:#?}");
}
