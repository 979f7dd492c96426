//! perftest, the newest release.

use crate::built::tree;
use crate::cm_ends::cm_ends;
use crate::ends::{User, both_ends};

#[test]
fn tools_end_well() {
    let Some(tree) = tree("perftest") else { return };
    for line in [
        "ib_send_lat -n 1000",
        "ib_write_lat -n 1000",
        "ib_read_lat -n 1000",
        "ib_atomic_lat -n 1000",
        "ib_send_bw -n 1000 -s 65536",
        "ib_send_bw -n 1000 -q 16 -e",
        "ib_send_bw -n 500 -c UD -s 1024 -t 16 -r 512",
        "ib_send_bw -n 1000 -c XRC",
        "ib_write_bw -n 1000 -b",
        "ib_write_bw -n 1000 --write_with_imm",
        "ib_read_bw -n 1000",
        "ib_atomic_bw -n 1000",
    ] {
        let mut words = line.split(' ');
        let program = tree.join(words.next().expect("a name"));
        let args: Vec<&str> = words.collect();
        let program = program.to_str().expect("a path in Unicode");
        both_ends(User::Myself, "perftest", program, &args, "-x").expect("it is built");
    }
}

#[test]
fn meets_by_address() {
    let Some(tree) = tree("perftest") else { return };
    let server = format!("{}/ib_write_bw -R -n 1000 -p PORT", tree.display());
    let client = format!("{server} ADDR");
    cm_ends(User::Myself, "perftest", &server, &client).expect("it is built");
}
