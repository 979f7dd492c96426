//! `ibv_modify_qp`: the mask is checked by the table, every value by its range, and
//! only then anything changes.

use core::ops::RangeInclusive;

use urxe_wire::Service;

use crate::config::ShardConfig;
use crate::context::{Cx, Host};
use crate::error::Fault;
use crate::mr::Access;
use crate::qp::Qp;
use crate::qp::attr::{AddressVector, AttrMask, QpAttr, check_path, mask};
use crate::qp::ident::IdentTrack;
use crate::qp::recovery::Peer;
use crate::qp::state::{ModifyError, QpState, check_mask};
use crate::qpn_table::QpnChunk;
use crate::time::Time;
use crate::transmit::{SourcePorts, TxDest};

/// Access rights that a QP can grant.
const QP_ACCESS: u32 = Access::LOCAL_WRITE.0 | Access::REMOTE.0;

impl Qp {
    /// Changes attributes and state; all or nothing.
    pub(crate) fn modify<H: Host>(
        &mut self,
        attr: &QpAttr,
        mask: AttrMask,
        cx: &mut Cx<'_, '_, H>,
    ) -> Result<(), ModifyError> {
        let from = self.state();
        let to = if mask.contains(AttrMask::STATE) {
            attr.qp_state
        } else {
            from
        };
        check_mask(self.init.qp_type, from, to, mask)?;
        check_values(attr, mask, from, &cx.common.config)?;
        if from == QpState::Sqd && to == QpState::Rts && !self.req.is_drained() {
            return Err(ModifyError::Draining);
        }
        self.store(attr, mask, cx.common.config.source_ports);
        self.state = to;
        if to == QpState::Reset {
            self.resp.forget_kept(cx.common);
            self.resp.forget_tagged(cx.common);
            self.req.end_selective(cx.common);
            self.link.peer = Peer::default();
        }
        self.enter(from, to, &cx.common.config, cx.env.now);
        if to == QpState::Err {
            self.resp.cancel_owed();
            self.req.flush(Fault::Flushed, &self.link, cx);
            self.resp.flush(Fault::Flushed, &self.link, cx);
            if from != QpState::Err {
                self.report_last_wqe(cx);
            }
        }
        tell!(DEBUG, qpn = self.link.qpn.get(), %from, %to, "state");
        self.after(cx);
        Ok(())
    }

    /// Copies the attributes that the mask names.
    fn store(&mut self, attr: &QpAttr, mask: AttrMask, ports: SourcePorts) {
        let mine = &mut self.attr;
        macro_rules! take {
            ($($bit:ident => $field:ident),*) => {
                $(if mask.contains(AttrMask::$bit) { mine.$field = attr.$field; })*
            };
        }
        take!(
            PATH_MTU => path_mtu, ACCESS_FLAGS => qp_access_flags, PKEY_INDEX => pkey_index,
            PORT => port_num, QKEY => qkey, AV => ah_attr, DEST_QPN => dest_qp_num,
            RQ_PSN => rq_psn, SQ_PSN => sq_psn, MAX_QP_RD_ATOMIC => max_rd_atomic,
            MAX_DEST_RD_ATOMIC => max_dest_rd_atomic, MIN_RNR_TIMER => min_rnr_timer,
            TIMEOUT => timeout, RETRY_CNT => retry_cnt, RNR_RETRY => rnr_retry,
            EN_SQD_ASYNC_NOTIFY => en_sqd_async_notify
        );
        if mask.contains(AttrMask::MAX_DEST_RD_ATOMIC) {
            self.resp.replay.resize(mine.max_dest_rd_atomic);
        }
        let link = &mut self.link;
        link.access = mine.qp_access_flags;
        link.mtu = mine.path_mtu.bytes();
        link.dest_qpn = mine.dest_qp_num;
        link.max_rd_atomic = mine.max_rd_atomic;
        link.min_rnr_timer = mine.min_rnr_timer;
        if let Some(AddressVector {
            local,
            remote,
            traffic_class,
            ..
        }) = mine.ah_attr
        {
            if remote != link.dest.remote {
                self.ident = IdentTrack::of(self.service);
            }
            let chunk = QpnChunk::of(link.dest_qpn);
            let is_same_owner = remote == link.dest.remote && chunk == link.dest.chunk;
            link.dest = TxDest {
                local,
                remote,
                tos: traffic_class,
                source_port: ports.port(link.qpn, link.dest_qpn),
                chunk,
                in_memory: link.dest.in_memory && is_same_owner,
                near_port: link.dest.near_port.filter(|_| is_same_owner),
            };
            link.seed = link.dest.usual_seed();
        }
        if !mask.and(mask!(TIMEOUT | RETRY_CNT | RNR_RETRY)).is_empty() {
            self.req
                .retry
                .configure(mine.timeout, mine.retry_cnt, mine.rnr_retry);
        }
        self.mark_capable();
    }

    /// What a transition does besides storing attributes.
    fn enter(&mut self, from: QpState, to: QpState, config: &ShardConfig, now: Time) {
        match (from, to) {
            (_, QpState::Reset) => {
                mark!(ResetWhileBusy if !self.req.is_drained());
                self.req.reset();
                self.resp.reset();
                self.attr = QpAttr::default();
                self.drain_pending = false;
                self.established = false;
                self.last_error = None;
                self.ident = IdentTrack::of(self.service);
            }
            (QpState::Init, QpState::Rtr) => {
                if self.service == Service::Ud {
                    self.attr.path_mtu = config.mtu_max;
                    self.link.mtu = config.mtu_max.bytes();
                }
                self.restart_congestion(now);
                self.resp
                    .start(self.attr.rq_psn, self.attr.max_dest_rd_atomic);
            }
            (QpState::Rtr, QpState::Rts) => {
                self.req.set_psn(self.attr.sq_psn);
                self.begin_window(config);
                self.req.read_chunk = (config.read_chunk_bytes / self.link.mtu).max(1);
            }
            (QpState::Rts, QpState::Sqd) => {
                mark!(SqdWhileBusy if !self.req.is_drained());
                self.drain_pending = true;
            }
            _ => {}
        }
    }
}

fn check_values(
    attr: &QpAttr,
    mask: AttrMask,
    from: QpState,
    config: &ShardConfig,
) -> Result<(), ModifyError> {
    if mask.contains(AttrMask::CUR_STATE) && attr.cur_qp_state != from {
        return Err(ModifyError::CurState {
            claimed: attr.cur_qp_state,
            actual: from,
        });
    }
    check_ranges(attr, mask, config)?;
    if mask.contains(AttrMask::ACCESS_FLAGS) && attr.qp_access_flags.0 & !QP_ACCESS != 0 {
        return Err(ModifyError::Value {
            attribute: "qp_access_flags",
            value: attr.qp_access_flags.0,
            allowed: "LOCAL_WRITE, REMOTE_WRITE, REMOTE_READ, REMOTE_ATOMIC, FLUSH_GLOBAL and FLUSH_PERSISTENT",
        });
    }
    if mask.contains(AttrMask::AV) {
        check_path(attr.ah_attr)?;
        if attr.ah_attr.is_some_and(|path| path.remote.is_multicast()) {
            return Err(ModifyError::Path(
                "a connection cannot go to a multicast group",
            ));
        }
    }
    Ok(())
}

/// Attributes that are numbers in a range.
fn check_ranges(attr: &QpAttr, mask: AttrMask, config: &ShardConfig) -> Result<(), ModifyError> {
    const RD_ATOMIC: RangeInclusive<u32> = 0..=ShardConfig::RD_ATOMIC_MAX as u32;
    let mtu = 0..=config.mtu_max.bytes();
    macro_rules! ranges {
        ($($bit:ident => $attribute:literal: $value:expr, $range:expr, $allowed:literal;)*) => {
            [$((AttrMask::$bit, $attribute, u32::from($value), $range, $allowed)),*]
        };
    }
    let ranges = ranges! {
        TIMEOUT => "timeout": attr.timeout, 0..=31, "0 to 31";
        RETRY_CNT => "retry_cnt": attr.retry_cnt, 0..=7, "0 to 7";
        RNR_RETRY => "rnr_retry": attr.rnr_retry, 0..=7, "0 to 7";
        MIN_RNR_TIMER => "min_rnr_timer": attr.min_rnr_timer, 0..=31, "0 to 31";
        PKEY_INDEX => "pkey_index": attr.pkey_index, 0..=0, "only 0";
        MAX_QP_RD_ATOMIC => "max_rd_atomic": attr.max_rd_atomic, RD_ATOMIC, "0 to 128";
        MAX_DEST_RD_ATOMIC => "max_dest_rd_atomic": attr.max_dest_rd_atomic, RD_ATOMIC, "0 to 128";
        PATH_MTU => "path_mtu": attr.path_mtu.bytes(), mtu, "no more than the port's active MTU";
        PORT => "port_num": attr.port_num, 1..=1, "only 1";
        DEST_QPN => "dest_qp_num": attr.dest_qp_num.get(), 2..=0xff_fffe, "2 to 0xfffffe";
    };
    for (bit, attribute, value, range, allowed) in ranges {
        if mask.contains(bit) && !range.contains(&value) {
            return Err(ModifyError::Value {
                attribute,
                value,
                allowed,
            });
        }
    }
    Ok(())
}
