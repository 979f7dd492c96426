//! Which of several sockets on one port gets a datagram: a classic BPF program that
//! looks at a field of the datagram, for a group made by
//! [`UdpConfig::reuse_port`](crate::UdpConfig::reuse_port).
//!
//! The kernel numbers the sockets of a group in the order in which they were bound; when
//! one is closed, the last takes its number. A program that names a socket which is not
//! there leaves the choice to the kernel. So steering is a help and no promise: a process
//! must know what to do with a datagram that is not its own.

/// One instruction, as `struct sock_filter` has it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Insn {
    pub(crate) code: u16,
    pub(crate) jt: u8,
    pub(crate) jf: u8,
    pub(crate) k: u32,
}

const LD_W_ABS: u16 = 0x20;
const LD_H_ABS: u16 = 0x28;
const LD_B_ABS: u16 = 0x30;
const ALU_ADD_K: u16 = 0x04;
const ALU_AND_K: u16 = 0x54;
const ALU_RSH_K: u16 = 0x74;
const JMP_JA: u16 = 0x05;
const JMP_JEQ_K: u16 = 0x15;
const JMP_JGE_K: u16 = 0x35;
const RET_K: u16 = 0x06;
const RET_A: u16 = 0x16;

/// Programs of sockets that are in no group.
#[cfg_attr(
    not(target_os = "linux"),
    allow(dead_code, reason = "the Linux backend attaches them")
)]
pub(crate) mod insns {
    use super::{ALU_ADD_K, Insn, LD_B_ABS, RET_A, RET_K};

    /// From here on offsets count from the IP header (`SKF_NET_OFF` of `linux/filter.h`).
    const NETWORK: u32 = (-0x10_0000_i32).cast_unsigned();
    /// The UDP header, which belongs to what a filter keeps.
    const UDP_HEADER: u32 = 8;

    const fn insn(code: u16, k: u32) -> Insn {
        let (jt, jf) = (0, 0);
        Insn { code, jt, jf, k }
    }

    /// No datagram passes.
    pub(crate) const NOTHING: [Insn; 1] = [insn(RET_K, 0)];

    /// A datagram keeps as many bytes as byte `at` of its IP header says.
    pub(crate) const fn as_long_as_byte_says(at: u32) -> [Insn; 3] {
        [
            insn(LD_B_ABS, NETWORK + at),
            insn(ALU_ADD_K, UDP_HEADER),
            insn(RET_A, 0),
        ]
    }
}

/// Longest program that the kernel takes.
const INSNS_MAX: usize = 4096;

/// How datagrams are spread over the sockets of a group.
#[derive(Clone, Copy, Debug)]
pub struct Steering<'a> {
    /// A datagram that begins with these four bytes goes to the socket with the number
    /// in its next four bytes (big-endian): so that a socket can find out its own number.
    pub probe: [u8; 4],
    /// Where in the datagram the field is: four bytes, big-endian.
    pub offset: u32,
    /// Bits of the field that count.
    pub mask: u32,
    /// How far they are shifted right.
    pub shift: u32,
    /// Datagrams that another field steers.
    pub by_other: Option<OtherField>,
    /// From which value on which socket gets the datagrams, up to the next entry; sorted
    /// by value. The first entry also gets what is below it.
    pub map: &'a [(u32, u32)],
}

/// Datagrams with one certain value in the masked field, and the field that steers these.
#[derive(Clone, Copy, Debug)]
pub struct OtherField {
    /// The value, masked and not shifted.
    pub value: u32,
    /// Where two bytes are that tell kinds apart.
    pub kind_offset: u32,
    /// The kind with its field in the first of the places, below; all others have it in the second.
    pub first_kind: u16,
    /// Where in the datagram the field is: four bytes, big-endian.
    pub offsets: [u32; 2],
    /// How far it is shifted right.
    pub shift: u32,
}

/// A program made from a [`Steering`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SteeringProgram {
    pub(crate) insns: Vec<Insn>,
}

impl Steering<'_> {
    /// The program; `None` if the map is empty, or too long for the kernel (more than
    /// some 1300 entries).
    pub fn program(&self) -> Option<SteeringProgram> {
        let insn = |code, jt, jf, k| Insn { code, jt, jf, k };
        if self.map.is_empty() {
            return None;
        }
        let mut insns = vec![
            insn(LD_W_ABS, 0, 0, 0),
            insn(JMP_JEQ_K, 0, 2, u32::from_be_bytes(self.probe)),
            insn(LD_W_ABS, 0, 0, 4),
            insn(RET_A, 0, 0, 0),
            insn(LD_W_ABS, 0, 0, self.offset),
            insn(ALU_AND_K, 0, 0, self.mask),
        ];
        if let Some(other) = self.by_other {
            insns.extend([
                insn(JMP_JEQ_K, 0, 7, other.value),
                insn(LD_H_ABS, 0, 0, other.kind_offset),
                insn(JMP_JEQ_K, 0, 2, u32::from(other.first_kind)),
                insn(LD_W_ABS, 0, 0, other.offsets[0]),
                insn(JMP_JA, 0, 0, 1),
                insn(LD_W_ABS, 0, 0, other.offsets[1]),
                insn(ALU_RSH_K, 0, 0, other.shift),
                insn(JMP_JA, 0, 0, 1),
            ]);
        }
        insns.push(insn(ALU_RSH_K, 0, 0, self.shift));
        search(self.map, &mut insns);
        (insns.len() <= INSNS_MAX).then_some(SteeringProgram { insns })
    }
}

/// Appends a binary search. Conditional jumps reach 255 instructions only, so the one to
/// the upper half goes over an unconditional one, which reaches any distance.
fn search(map: &[(u32, u32)], insns: &mut Vec<Insn>) {
    let insn = |code, jt, jf, k| Insn { code, jt, jf, k };
    if let &[(_, socket)] = map {
        insns.push(insn(RET_K, 0, 0, socket));
        return;
    }
    let (lower, upper) = map.split_at(map.len() / 2);
    insns.push(insn(JMP_JGE_K, 0, 1, upper[0].0));
    let jump = insns.len();
    insns.push(insn(JMP_JA, 0, 0, 0));
    search(lower, insns);
    insns[jump].k = (insns.len() - jump - 1) as u32;
    search(upper, insns);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PROBE: [u8; 4] = *b"\xffwho";

    fn steering<'a>(map: &'a [(u32, u32)]) -> Steering<'a> {
        Steering {
            probe: PROBE,
            offset: 4,
            mask: 0x00ff_ffff,
            shift: 12,
            by_other: None,
            map,
        }
    }

    /// What the kernel does with a program.
    fn run(program: &SteeringProgram, datagram: &[u8]) -> u32 {
        let (mut a, mut at) = (0_u32, 0_usize);
        loop {
            let Insn { code, jt, jf, k } = program.insns[at];
            at += 1;
            let branch = |taken: bool| usize::from(if taken { jt } else { jf });
            match code {
                LD_W_ABS => {
                    let Some(word) = datagram.get(k as usize..k as usize + 4) else {
                        return 0;
                    };
                    a = u32::from_be_bytes(word.try_into().expect("four bytes"));
                }
                LD_H_ABS => {
                    let Some(half) = datagram.get(k as usize..k as usize + 2) else {
                        return 0;
                    };
                    a = u16::from_be_bytes(half.try_into().expect("two bytes")).into();
                }
                ALU_AND_K => a &= k,
                ALU_RSH_K => a >>= k,
                JMP_JA => at += k as usize,
                JMP_JEQ_K => at += branch(a == k),
                JMP_JGE_K => at += branch(a >= k),
                RET_K => return k,
                RET_A => return a,
                other => panic!("code {other:#x}"),
            }
        }
    }

    proptest! {
        #[test]
        fn the_program_does_what_the_map_says(
            starts in proptest::collection::btree_set(0u32..4096, 1..900),
            values in proptest::collection::vec(0u32..4096, 1..50),
            salt in any::<u32>(),
        ) {
            let map: Vec<(u32, u32)> = starts.iter().enumerate().map(|(n, &start)| (start, salt ^ n as u32)).collect();
            let program = steering(&map).program().expect("short enough");
            for value in values {
                let mut datagram = [0xa5; 12];
                datagram[4..8].copy_from_slice(&(0x9b00_0123 | value << 12).to_be_bytes());
                let expected = map.iter().rev().find(|&&(start, _)| start <= value).unwrap_or(&map[0]).1;
                prop_assert_eq!(run(&program, &datagram), expected);
            }
            let probe = [PROBE.as_slice(), &77u32.to_be_bytes(), &[0; 8]].concat();
            prop_assert_eq!(run(&program, &probe), 77);
        }
    }

    #[test]
    fn another_field_steers_what_has_one_value() {
        let map = [(0, 100), (7, 107), (9, 109)];
        let steering = Steering {
            by_other: Some(OtherField {
                value: 1,
                kind_offset: 10,
                first_kind: 0x18,
                offsets: [12, 16],
                shift: 20,
            }),
            ..steering(&map)
        };
        let program = steering.program().expect("short enough");
        let datagram = |qpn: u32, kind: u16, first: u32, second: u32| {
            let mut bytes = vec![0; 20];
            bytes[4..8].copy_from_slice(&(0xab00_0000 | qpn).to_be_bytes());
            bytes[10..12].copy_from_slice(&kind.to_be_bytes());
            bytes[12..16].copy_from_slice(&first.to_be_bytes());
            bytes[16..20].copy_from_slice(&second.to_be_bytes());
            bytes
        };
        let (seven, nine) = ((7 << 20) | 5, 9 << 20);
        assert_eq!(run(&program, &datagram(1, 0x18, seven, nine)), 107);
        assert_eq!(run(&program, &datagram(1, 0x13, seven, nine)), 109);
        assert_eq!(run(&program, &datagram(1, 0x13, nine, seven)), 107);
        assert_eq!(run(&program, &datagram(0x9123, 0x13, seven, seven)), 109);
        assert_eq!(run(&program, &datagram(2, 0x13, nine, nine)), 100);
    }

    #[test]
    fn limits() {
        assert_eq!(steering(&[]).program(), None);
        let map: Vec<(u32, u32)> = (0..1400).map(|n| (n, n)).collect();
        assert_eq!(steering(&map).program(), None);
        assert!(steering(&map[..1300]).program().is_some());
    }
}
