//! urxe's side: in this process.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::time::{Duration, Instant};

use urxe::{
    Access, AddressHandle, AddressVector, AttrMask, CompChannel, Context, Cq, Error, Mr, Mtu, Pd,
    Psn, Qkey, Qp, QpAttr, QpCap, QpInitAttr, QpState, QpType, Qpn, RecvWr, Rkey, SendFlags,
    SendWr, Sge, Srq, SrqAttr, Wc, WrOpcode,
};

use crate::pattern::pattern;
use crate::side::{Endpoint, Path, Queue, Result, Service, Side};
use crate::work::{Completion, Region, Span, Work, access};

#[derive(Default)]
pub(crate) struct UrxeSide {
    device: Option<Device>,
}

struct Device {
    qps: HashMap<u32, Qp>,
    srqs: Vec<Srq>,
    ahs: Vec<AddressHandle>,
    mrs: HashMap<u32, Mr>,
    cq: Cq,
    channel: CompChannel,
    pd: Pd,
    context: Context,
}

impl UrxeSide {
    pub(crate) fn is_open(&self) -> bool {
        self.device.is_some()
    }

    fn device(&self) -> &Device {
        self.device
            .as_ref()
            .expect("tests open a side before they use it")
    }

    fn mr_of(&self, region: Region) -> &Mr {
        &self.device().mrs[&region.id]
    }

    fn qp_of(&self, qp: u32) -> &Qp {
        &self.device().qps[&qp]
    }
}

impl Side for UrxeSide {
    fn name(&self) -> &'static str {
        "urxe"
    }

    fn open(&mut self, addr: IpAddr) -> Result<()> {
        self.device = None;
        let open = || {
            let context = Context::open(addr)?;
            let channel = context.create_comp_channel()?;
            Ok(Device {
                qps: HashMap::new(),
                srqs: Vec::new(),
                ahs: Vec::new(),
                mrs: HashMap::new(),
                cq: context.create_cq_with_channel(4096, &channel)?,
                channel,
                pd: context.alloc_pd()?,
                context,
            })
        };
        self.device = Some(open().map_err(said("open"))?);
        Ok(())
    }

    fn close(&mut self) -> Result<()> {
        self.device = None;
        Ok(())
    }

    fn counters(&mut self) -> Result<BTreeMap<String, u64>> {
        let counters = self.device().context.counters();
        let counters = counters.map_err(said("counters"))?;
        Ok(counters
            .into_iter()
            .map(|(name, count)| (name.to_owned(), count))
            .collect())
    }

    fn mr(&mut self, length: usize, access: u32) -> Result<Region> {
        let device = self.device.as_mut().expect("the side is open");
        let mr = device.pd.reg_owned(vec![0; length], Access(access));
        let mr = mr.map_err(said("reg_mr"))?;
        let region = Region {
            id: mr.lkey().0,
            addr: mr.addr(),
            rkey: mr.rkey().0,
        };
        device.mrs.insert(region.id, mr);
        Ok(region)
    }

    fn fill(&mut self, span: Span, seed: u64) -> Result<()> {
        self.mr_of(span.mr)
            .write(span.offset, &pattern(seed, span.length));
        Ok(())
    }

    fn check(&mut self, span: Span, seed: u64) -> Result<Option<usize>> {
        let got = self.read(span.mr, span.offset, span.length)?;
        let want = pattern(seed, span.length);
        Ok(got.iter().zip(&want).position(|(got, want)| got != want))
    }

    fn fill_byte(&mut self, span: Span, byte: u8) -> Result<()> {
        self.mr_of(span.mr)
            .write(span.offset, &vec![byte; span.length]);
        Ok(())
    }

    fn check_byte(&mut self, span: Span, byte: u8) -> Result<Option<usize>> {
        let got = self.read(span.mr, span.offset, span.length)?;
        Ok(got.iter().position(|&got| got != byte))
    }

    fn write(&mut self, mr: Region, offset: usize, bytes: &[u8]) -> Result<()> {
        self.mr_of(mr).write(offset, bytes);
        Ok(())
    }

    fn read(&mut self, mr: Region, offset: usize, length: usize) -> Result<Vec<u8>> {
        let mut bytes = vec![0; length];
        self.mr_of(mr).read(offset, &mut bytes);
        Ok(bytes)
    }

    fn srq(&mut self) -> Result<u32> {
        let device = self.device.as_mut().expect("the side is open");
        let attr = SrqAttr {
            max_wr: 256,
            ..SrqAttr::default()
        };
        let srq = device.pd.create_srq(&attr).map_err(said("create_srq"))?;
        device.srqs.push(srq);
        Ok(device.srqs.len() as u32 - 1)
    }

    fn qp(&mut self, service: Service, srq: Option<u32>) -> Result<u32> {
        let device = self.device.as_mut().expect("the side is open");
        let cap = QpCap {
            max_send_wr: 256,
            max_recv_wr: 256,
            max_send_sge: 4,
            max_recv_sge: 4,
            max_inline_data: 64,
        };
        let init = QpInitAttr {
            cap,
            qp_type: match service {
                Service::Rc => QpType::Rc,
                Service::Uc => QpType::Uc,
                Service::Ud => QpType::Ud,
            },
            srq: srq.map(|srq| &device.srqs[srq as usize]),
            ..QpInitAttr::new(&device.cq, &device.cq)
        };
        let qp = device.pd.create_qp(&init).map_err(said("create_qp"))?;
        let qpn = qp.qp_num().get();
        device.qps.insert(qpn, qp);
        Ok(qpn)
    }

    fn connect(&mut self, qp: u32, local: Endpoint, remote: Endpoint, path: &Path) -> Result<()> {
        let attr = attributes(local, remote, path)?;
        let qp = self.qp_of(qp);
        for (qp_state, mask) in transitions(path.service) {
            qp.modify(&QpAttr { qp_state, ..attr }, mask)
                .map_err(said("modify_qp"))?;
        }
        Ok(())
    }

    fn ready(&mut self, qp: u32, qkey: u32, psn: u32) -> Result<()> {
        let attr = QpAttr {
            qkey: Qkey(qkey),
            sq_psn: Psn::new(psn),
            ..QpAttr::default()
        };
        let init = AttrMask::STATE | AttrMask::PKEY_INDEX | AttrMask::PORT | AttrMask::QKEY;
        for (qp_state, mask) in [
            (QpState::Init, init),
            (QpState::Rtr, AttrMask::STATE),
            (QpState::Rts, AttrMask::STATE | AttrMask::SQ_PSN),
        ] {
            self.qp_of(qp)
                .modify(&QpAttr { qp_state, ..attr }, mask)
                .map_err(said("modify_qp"))?;
        }
        Ok(())
    }

    fn ah(&mut self, remote: IpAddr) -> Result<u32> {
        let device = self.device.as_mut().expect("the side is open");
        let path = AddressVector {
            local: device.context.address(),
            remote,
            traffic_class: 0,
            hop_limit: 64,
        };
        let ah = device.pd.create_ah(&path).map_err(said("create_ah"))?;
        device.ahs.push(ah);
        Ok(device.ahs.len() as u32 - 1)
    }

    fn attach(&mut self, qp: u32, group: IpAddr) -> Result<()> {
        let attached = self.qp_of(qp).attach_mcast(group.into());
        attached.map_err(said("attach_mcast"))
    }

    fn lend(&mut self, _qp: u32, length: usize) -> Result<Region> {
        let region = self.mr(length, access::LOCAL_WRITE | access::REMOTE_WRITE)?;
        self.mr_of(region)
            .set_remote_invalidate(true)
            .map_err(said("set_remote_invalidate"))?;
        Ok(region)
    }

    fn state(&mut self, qp: u32) -> Result<u32> {
        Ok(self.qp_of(qp).state().map_err(said("query_qp"))? as u32)
    }

    fn post_recv(&mut self, queue: Queue, wr_id: u64, span: Span) -> Result<()> {
        let sges = [self.sge(span)];
        let wr = RecvWr::new(wr_id, &sges);
        match queue {
            Queue::Qp(qp) => self.qp_of(qp).post_recv(&wr),
            Queue::Srq(srq) => self.device().srqs[srq as usize].post_recv(&wr),
        }
        .map_err(said("post_recv"))
    }

    fn post_send(&mut self, qp: u32, works: &[Work]) -> Result<()> {
        works.iter().try_for_each(|work| self.post_one(qp, work))
    }

    fn poll(&mut self, count: usize, patience: Duration) -> Result<Vec<Completion>> {
        let (start, mut found) = (Instant::now(), Vec::new());
        let mut wc = [Wc::default()];
        while found.len() < count {
            if self.device().cq.poll(&mut wc).map_err(said("poll_cq"))? == 1 {
                found.push(completion(&wc[0]));
            } else if start.elapsed() > patience {
                break;
            } else {
                // The guest needs the processor to answer.
                std::thread::yield_now();
            }
        }
        Ok(found)
    }

    fn arm(&mut self, solicited_only: bool) -> Result<()> {
        self.device()
            .cq
            .req_notify(solicited_only)
            .map_err(said("req_notify_cq"))
    }

    fn wait_event(&mut self, patience: Duration) -> Result<bool> {
        let event = self.device().channel.wait_timeout(patience);
        Ok(event.map_err(said("get_cq_event"))?.is_some())
    }
}

impl UrxeSide {
    fn sge(&self, span: Span) -> Sge {
        self.mr_of(span.mr)
            .sge(span.offset..span.offset + span.length)
    }

    fn post_one(&self, qp: u32, work: &Work) -> Result<()> {
        let mut bytes = Vec::new();
        let sges = [self.sge(work.local)];
        let mut wr = if work.flags.contains(SendFlags::INLINE) {
            bytes.resize(work.local.length, 0);
            self.mr_of(work.local.mr)
                .read(work.local.offset, &mut bytes);
            inline(work, &bytes)?
        } else {
            request(work, &sges)?
        };
        for (flag, set) in [
            (SendFlags::SIGNALED, SendWr::signaled as fn(_) -> _),
            (SendFlags::SOLICITED, SendWr::solicited),
            (SendFlags::FENCE, SendWr::fence),
        ] {
            if work.flags.contains(flag) {
                wr = set(wr);
            }
        }
        if let Some((ah, qpn, qkey)) = work.datagram {
            let ah = &self.device().ahs[ah as usize];
            wr = wr.ud_addr(ah, Qpn::new(qpn), Qkey(qkey));
        }
        self.qp_of(qp).post_send(&wr).map_err(said("post_send"))
    }
}

fn request<'a>(work: &Work, sges: &'a [Sge]) -> Result<SendWr<'a>> {
    let (id, to, rkey, imm) = (work.wr_id, work.remote_addr, Rkey(work.rkey), work.imm);
    Ok(match work.opcode {
        WrOpcode::Send => SendWr::send(id, sges),
        WrOpcode::SendWithImm => SendWr::send_with_imm(id, sges, imm),
        WrOpcode::SendWithInv => SendWr::send_with_inv(id, sges, rkey),
        WrOpcode::RdmaWrite => SendWr::rdma_write(id, sges, to, rkey),
        WrOpcode::RdmaWriteWithImm => SendWr::rdma_write_with_imm(id, sges, to, rkey, imm),
        WrOpcode::RdmaRead => SendWr::rdma_read(id, sges, to, rkey),
        WrOpcode::AtomicCmpAndSwp => {
            SendWr::atomic_cmp_swp(id, sges, to, rkey, work.compare_add, work.swap)
        }
        WrOpcode::AtomicFetchAndAdd => {
            SendWr::atomic_fetch_add(id, sges, to, rkey, work.compare_add)
        }
        WrOpcode::AtomicWrite => SendWr::atomic_write_sges(id, sges, to, rkey),
        WrOpcode::Flush => {
            let flush = work.flush.ok_or("a FLUSH says of what")?;
            SendWr::flush(id, to, rkey, flush)
        }
        other => return Err(format!("urxe: nobody taught this test {other:?}")),
    })
}

fn inline<'a>(work: &Work, bytes: &'a [u8]) -> Result<SendWr<'a>> {
    Ok(match work.opcode {
        WrOpcode::Send => SendWr::send_inline(work.wr_id, bytes),
        WrOpcode::RdmaWrite => {
            SendWr::rdma_write_inline(work.wr_id, bytes, work.remote_addr, Rkey(work.rkey))
        }
        other => return Err(format!("urxe: no inline data with {other:?}")),
    })
}

fn transitions(service: Service) -> [(QpState, AttrMask); 3] {
    let init = AttrMask::STATE | AttrMask::PKEY_INDEX | AttrMask::PORT | AttrMask::ACCESS_FLAGS;
    let mut rtr =
        AttrMask::STATE | AttrMask::AV | AttrMask::PATH_MTU | AttrMask::DEST_QPN | AttrMask::RQ_PSN;
    let mut rts = AttrMask::STATE | AttrMask::SQ_PSN;
    if service == Service::Rc {
        rtr = rtr | AttrMask::MAX_DEST_RD_ATOMIC | AttrMask::MIN_RNR_TIMER;
        rts = rts
            | AttrMask::TIMEOUT
            | AttrMask::RETRY_CNT
            | AttrMask::RNR_RETRY
            | AttrMask::MAX_QP_RD_ATOMIC;
    }
    [
        (QpState::Init, init),
        (QpState::Rtr, rtr),
        (QpState::Rts, rts),
    ]
}

fn attributes(local: Endpoint, remote: Endpoint, path: &Path) -> Result<QpAttr> {
    Ok(QpAttr {
        path_mtu: Mtu::from_bytes(path.mtu).ok_or("no such MTU")?,
        qp_access_flags: Access(path.access),
        ah_attr: Some(AddressVector {
            local: local.addr,
            remote: remote.addr,
            traffic_class: 0,
            hop_limit: 64,
        }),
        dest_qp_num: Qpn::new(remote.qpn),
        rq_psn: Psn::new(remote.psn),
        sq_psn: Psn::new(local.psn),
        max_rd_atomic: path.rd_atomic,
        max_dest_rd_atomic: path.rd_atomic,
        min_rnr_timer: path.min_rnr_timer,
        timeout: path.timeout,
        retry_cnt: path.retry_cnt,
        rnr_retry: path.rnr_retry,
        ..QpAttr::default()
    })
}

fn completion(wc: &Wc) -> Completion {
    Completion {
        wr_id: wc.wr_id,
        status: wc.status as u32,
        opcode: wc.opcode as u32,
        byte_len: wc.byte_len,
        qpn: wc.qp_num.get(),
        src_qp: wc.src_qp.get(),
        imm: wc.imm_data,
        invalidated: wc.invalidated_rkey.map(|rkey| rkey.0),
    }
}

fn said(call: &'static str) -> impl Fn(Error) -> String {
    move |error| format!("urxe: {call}: {error}")
}
