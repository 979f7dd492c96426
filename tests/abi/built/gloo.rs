//! gloo: its benchmark over its ibverbs transport, in two processes. Each compares what an algorithm gives with what it must give.

use std::thread;
use std::{env, fs};

use crate::built::tree;
use crate::ends::{alone, ended_well};
use crate::harness::{addresses, run, urxe};

/// Without `reduce_scatter`: it changes what it sends before it is sent, as strict mode finds (docs/COMPAT.md).
const ALGORITHMS: [&str; 8] = [
    "allgather_ring",
    "allreduce_ring",
    "allreduce_ring_chunked",
    "allreduce_halving_doubling",
    "alltoall",
    "broadcast",
    "broadcast_one_to_all",
    "pairwise_exchange",
];

#[test]
fn algorithms_are_verified() {
    let Some(tree) = tree("gloo") else { return };
    let benchmark = tree.join("build/gloo/benchmark/benchmark");
    for algorithm in ALGORITHMS {
        // Of 4 bytes each: 1 KiB, and 4 MiB.
        for elements in ["256", "1048576"] {
            let _alone = alone();
            // Where the processes meet: gloo removes its files, but not if it fails.
            let folder = env::temp_dir().join(format!("urxe-gloo-{}", std::process::id()));
            fs::create_dir_all(&folder).expect("a folder");
            let (first, second) = addresses();
            let args = [
                ["--size", "2"],
                ["--transport", "ibverbs"],
                ["--ib-device", "urxe0"],
                ["--iteration-count", "20"],
                ["--elements", elements],
            ];
            let ranks = [("0", first), ("1", second)].map(|(rank, address)| {
                let mut command = urxe();
                command
                    .args(["run", "--device", &address.to_string(), "--"])
                    .arg(&benchmark)
                    .args(args.concat())
                    .args(["--rank", rank, "--shared-path"])
                    .arg(&folder)
                    .arg(algorithm);
                thread::spawn(move || run(command))
            });
            let [zero, one] = ranks.map(|rank| rank.join().expect("it does not panic"));
            fs::remove_dir_all(&folder).expect("it is ours");
            let (text, _) = ended_well(algorithm, &args.concat(), (zero, one));
            // A row of figures, after the size.
            let has_row = text.lines().any(|line| {
                let mut words = line.split_whitespace().skip(1);
                words.next() == Some(elements)
            });
            assert!(has_row, "{algorithm}: {text}");
        }
    }
}
