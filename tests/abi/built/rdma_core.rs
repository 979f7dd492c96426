//! The test suite of rdma-core's newest release, with the pyverbs that is built with it.

use crate::built::tree;
use crate::pyverbs::Suite;
use crate::pyverbs::expected::Expected;

#[test]
fn suite() {
    let Some(tree) = tree("rdma-core") else {
        return;
    };
    let suite = Suite {
        tests: &tree.join("tests"),
        pyverbs: Some(&tree.join("build/python")),
        expected: Expected {
            name: "built/rdma-core-expected.txt",
            text: include_str!("rdma-core-expected.txt"),
        },
        passing_min: 185,
    };
    suite.check(None);
}
