//! animeshtrivedi/rdma-example, which sends its peer the lkey for the rkey, as many programs do.

use crate::built::tree;
use crate::cm_ends::cm_ends;
use crate::ends::User;

#[test]
fn a_string_there_and_back() {
    let Some(tree) = tree("rdma-example") else {
        return;
    };
    let bin = tree.join("bin");
    let server = format!("{}/rdma_server -a ADDR -p PORT", bin.display());
    let client = format!("{}/rdma_client -a ADDR -p PORT -s some-text", bin.display());
    let ran = cm_ends(User::Myself, "", &server, &client);
    let (_, said) = ran.expect("it is built");
    assert!(
        said.contains("SUCCESS, source and destination buffers match"),
        "{said}"
    );
}
