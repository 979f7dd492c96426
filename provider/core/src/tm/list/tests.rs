use super::*;
use crate::mix::SplitMix64;

const ALL: u64 = u64::MAX;

fn recv(id: u64, tag: u64, mask: u64) -> TagRecv<'static> {
    TagRecv {
        recv_wr_id: id,
        tag,
        mask,
        sges: &[],
    }
}

fn list() -> TagList {
    TagList::new(8, 0x5eed)
}

fn take(list: &mut TagList, tag: u64) -> Option<u64> {
    list.take(tag).map(|taken| taken.recv_wr_id)
}

#[test]
fn the_oldest_that_matches_is_taken_whatever_its_mask() {
    let mut list = list();
    for (id, tag, mask) in [(1, 5, ALL), (2, 0, 0), (3, 5, ALL), (4, 0x10, 0xf0)] {
        list.add(&recv(id, tag, mask)).expect("room");
    }
    assert_eq!(take(&mut list, 5), Some(1));
    assert_eq!(take(&mut list, 0x15), Some(2), "any tag, and older than 4");
    assert_eq!(take(&mut list, 0x15), Some(4));
    assert_eq!(take(&mut list, 0x15), None);
    assert_eq!(take(&mut list, 5), Some(3));
    assert_eq!(list.len(), 0);
    assert!(list.masks.is_empty());
}

#[test]
fn a_tag_with_bits_outside_of_its_mask_matches_nothing() {
    let mut list = list();
    list.add(&recv(1, 0x11, 0xf0)).expect("room");
    assert_eq!(take(&mut list, 0x11), None);
    assert_eq!(take(&mut list, 0x10), None);
}

#[test]
fn a_handle_means_one_tag_for_ever() {
    let mut list = list();
    let first = list.add(&recv(1, 5, ALL)).expect("room");
    assert_eq!(take(&mut list, 5), Some(1));
    assert_eq!(list.remove(first), Ok(false));
    let second = list.add(&recv(2, 5, ALL)).expect("room");
    assert_eq!(list.remove(first), Ok(false), "its place has another now");
    assert_eq!(list.remove(second), Ok(true));
    assert_eq!(list.remove(second), Ok(false));
    assert_eq!(
        list.remove(TagHandle(7)),
        Err(PostError::NoTag(7)),
        "no tag had this place"
    );
    assert_eq!(take(&mut list, 5), None);
}

#[test]
fn limits() {
    let mut list = list();
    for id in 0..8 {
        list.add(&recv(id, id, ALL)).expect("room");
    }
    assert_eq!(list.add(&recv(9, 9, ALL)), Err(PostError::TagListFull(8)));
    assert_eq!(take(&mut list, 3), Some(3));
    let many = [Sge::EMPTY; 5];
    let wide = TagRecv {
        sges: &many,
        ..recv(9, 9, ALL)
    };
    assert_eq!(
        list.add(&wide),
        Err(PostError::TooManySges { given: 5, max: 4 })
    );
    list.add(&recv(9, 9, ALL)).expect("room again");
    assert_eq!(list.len(), 8);
}

#[test]
fn tags_that_are_added_out_of_step_wait() {
    let mut list = list();
    list.add(&recv(1, 5, ALL)).expect("room");
    list.count_unexpected();
    assert!(!list.is_in_step() && !list.holds_back());
    list.add(&recv(2, 5, ALL)).expect("room");
    list.add(&recv(3, 6, ALL)).expect("room");
    assert!(list.holds_back());
    assert_eq!(take(&mut list, 6), None);
    assert_eq!(take(&mut list, 5), Some(1), "it was there before");
    assert_eq!(take(&mut list, 5), None);
    list.count_unexpected();
    list.report(1);
    assert!(list.holds_back(), "one more is not handled");
    list.report(2);
    assert!(list.is_in_step() && !list.holds_back());
    assert_eq!(take(&mut list, 6), Some(3));
    assert_eq!(take(&mut list, 5), Some(2));
}

#[test]
fn a_message_that_fails_is_not_counted() {
    let mut list = list();
    list.count_unexpected();
    list.forget_unexpected();
    assert!(list.is_in_step());
    list.add(&recv(1, 5, ALL)).expect("room");
    assert_eq!(take(&mut list, 5), Some(1));
}

#[test]
fn counts_run_over() {
    let mut list = list();
    (list.unexpected, list.reported) = (u32::MAX, u32::MAX);
    list.count_unexpected();
    assert!(!list.is_in_step());
    list.report(0);
    assert!(list.is_in_step());
}

/// A plain list, searched from the front.
#[derive(Default)]
struct Model {
    tags: Vec<(u64, u64, u64, bool)>,
    unexpected: u32,
    reported: u32,
}

impl Model {
    fn open_all(&mut self) {
        if self.unexpected == self.reported {
            self.tags.iter_mut().for_each(|tag| tag.3 = true);
        }
    }

    fn take(&mut self, tag: u64) -> Option<u64> {
        let fits =
            |&(_, wanted, mask, is_open): &(u64, u64, u64, bool)| is_open && tag & mask == wanted;
        let at = self.tags.iter().position(fits)?;
        Some(self.tags.remove(at).0)
    }
}

#[test]
fn random_operations_are_those_of_a_plain_list() {
    const MASKS: [u64; 5] = [ALL, 0, 0xf, 0xff00, 0xff_ff00];
    for seed in 0..300 {
        let mut random = SplitMix64::new(seed);
        let (mut list, mut model) = (TagList::new(64, random.bits()), Model::default());
        let mut handles = Vec::new();
        for id in 0..400 {
            match random.below(8) {
                0..3 => {
                    let mask = MASKS[random.below(5) as usize];
                    let tag = (random.below(4) * 0x0101) & mask;
                    let added = list.add(&recv(id, tag, mask));
                    assert_eq!(added.is_ok(), model.tags.len() < 64, "seed {seed}");
                    if let Ok(handle) = added {
                        handles.push((handle, id));
                        model.tags.push((id, tag, mask, false));
                        model.open_all();
                    }
                }
                3..6 => {
                    let tag = random.below(4) * 0x0101;
                    let (found, expected) = (take(&mut list, tag), model.take(tag));
                    assert_eq!(found, expected, "seed {seed}, step {id}");
                    if found.is_none() && random.below(4) == 0 {
                        list.count_unexpected();
                        model.unexpected += 1;
                    }
                }
                6 if !handles.is_empty() => {
                    let (handle, id) = handles[random.below(handles.len() as u64) as usize];
                    let at = model.tags.iter().position(|tag| tag.0 == id);
                    at.map(|at| model.tags.remove(at));
                    assert_eq!(list.remove(handle), Ok(at.is_some()), "seed {seed}");
                }
                _ => {
                    model.reported =
                        model.unexpected - u32::from(random.below(3) == 0).min(model.unexpected);
                    list.report(model.reported);
                    model.open_all();
                }
            }
            assert_eq!(list.len() as usize, model.tags.len(), "seed {seed}");
        }
    }
}
