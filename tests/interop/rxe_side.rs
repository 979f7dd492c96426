//! The kernel's side: agent.py in the guest, spoken to by lines of JSON.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::{Value, json};

use crate::side::{Endpoint, Path, Queue, Result, Service, Side};
use crate::work::{Completion, Region, Span, Work, access};

/// No call takes longer than this, unless it was asked to wait.
const PATIENCE: Duration = Duration::from_secs(120);

pub(crate) struct RxeSide {
    lines: BufReader<TcpStream>,
}

impl RxeSide {
    pub(crate) fn connect(agent: SocketAddr) -> Result<RxeSide> {
        let open = || {
            let stream = TcpStream::connect_timeout(&agent, PATIENCE)?;
            stream.set_nodelay(true)?;
            stream.set_read_timeout(Some(PATIENCE))?;
            Ok(stream)
        };
        let stream = open().map_err(|e: std::io::Error| format!("the agent at {agent}: {e}"))?;
        Ok(RxeSide {
            lines: BufReader::new(stream),
        })
    }

    /// Runs a command line in the guest; its output.
    pub(crate) fn shell(&mut self, command: &str) -> Result<String> {
        let output = self.call("shell", json!({ "command": command }))?;
        Ok(output.as_str().unwrap_or_default().to_owned())
    }

    fn call(&mut self, method: &str, mut request: Value) -> Result<Value> {
        request["do"] = method.into();
        let lost = |e: std::io::Error| format!("the agent does not answer to {method}: {e}");
        let text = format!("{request}\n");
        self.lines
            .get_mut()
            .write_all(text.as_bytes())
            .map_err(lost)?;
        let mut line = String::new();
        self.lines.read_line(&mut line).map_err(lost)?;
        let mut answer: Value = serde_json::from_str(&line)
            .map_err(|e| format!("the agent's answer to {method} is {line:?}: {e}"))?;
        match answer["error"].as_str() {
            Some(error) => Err(format!("rxe: {method}: {error}")),
            None => Ok(answer["ok"].take()),
        }
    }

    fn call_on(&mut self, method: &str, span: Span, mut more: Value) -> Result<Value> {
        more["mr"] = span.mr.id.into();
        more["offset"] = span.offset.into();
        more["length"] = span.length.into();
        self.call(method, more)
    }
}

impl Side for RxeSide {
    fn name(&self) -> &'static str {
        "rxe"
    }

    fn open(&mut self, addr: IpAddr) -> Result<()> {
        self.call("open", json!({ "address": addr.to_string() }))
            .map(drop)
    }

    fn close(&mut self) -> Result<()> {
        self.call("close", json!({})).map(drop)
    }

    fn counters(&mut self) -> Result<BTreeMap<String, u64>> {
        let counters = self.call("counters", json!({}))?;
        serde_json::from_value(counters).map_err(|e| e.to_string())
    }

    fn mr(&mut self, length: usize, access: u32) -> Result<Region> {
        let mr = self.call("mr", json!({ "length": length, "access": access }))?;
        Ok(Region {
            id: number(&mr["id"])? as u32,
            addr: number(&mr["addr"])?,
            rkey: number(&mr["rkey"])? as u32,
        })
    }

    fn fill(&mut self, span: Span, seed: u64) -> Result<()> {
        self.call_on("fill", span, json!({ "seed": seed }))
            .map(drop)
    }

    fn check(&mut self, span: Span, seed: u64) -> Result<Option<usize>> {
        let place = self.call_on("check", span, json!({ "seed": seed }))?;
        Ok(place.as_u64().map(|place| place as usize))
    }

    fn fill_byte(&mut self, span: Span, byte: u8) -> Result<()> {
        self.call_on("fill_byte", span, json!({ "byte": byte }))
            .map(drop)
    }

    fn check_byte(&mut self, span: Span, byte: u8) -> Result<Option<usize>> {
        let place = self.call_on("check_byte", span, json!({ "byte": byte }))?;
        Ok(place.as_u64().map(|place| place as usize))
    }

    fn write(&mut self, mr: Region, offset: usize, bytes: &[u8]) -> Result<()> {
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        self.call(
            "write",
            json!({ "mr": mr.id, "offset": offset, "hex": hex }),
        )
        .map(drop)
    }

    fn read(&mut self, mr: Region, offset: usize, length: usize) -> Result<Vec<u8>> {
        let hex = self.call_on("read", mr.span(offset, length), json!({}))?;
        let hex = hex.as_str().unwrap_or_default();
        let byte = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).map_err(|e| e.to_string());
        (0..hex.len()).step_by(2).map(byte).collect()
    }

    fn srq(&mut self) -> Result<u32> {
        Ok(number(&self.call("srq", json!({ "max_wr": 256 }))?)? as u32)
    }

    fn qp(&mut self, service: Service, srq: Option<u32>) -> Result<u32> {
        let service = match service {
            Service::Rc => "RC",
            Service::Uc => "UC",
            Service::Ud => "UD",
        };
        let qpn = self.call("qp", json!({ "type": service, "srq": srq }))?;
        Ok(number(&qpn)? as u32)
    }

    fn connect(&mut self, qp: u32, local: Endpoint, remote: Endpoint, path: &Path) -> Result<()> {
        let request = json!({
            "qp": qp, "psn": local.psn,
            "remote": remote.addr.to_string(), "remote_qpn": remote.qpn, "remote_psn": remote.psn,
            "mtu": path.mtu, "access": path.access, "timeout": path.timeout, "retry_cnt": path.retry_cnt,
            "rnr_retry": path.rnr_retry, "min_rnr_timer": path.min_rnr_timer, "rd_atomic": path.rd_atomic,
        });
        self.call("connect", request).map(drop)
    }

    fn ready(&mut self, qp: u32, qkey: u32, psn: u32) -> Result<()> {
        self.call("ready_ud", json!({ "qp": qp, "qkey": qkey, "psn": psn }))
            .map(drop)
    }

    fn ah(&mut self, remote: IpAddr) -> Result<u32> {
        let ah = self.call("ah", json!({ "remote": remote.to_string() }))?;
        Ok(number(&ah)? as u32)
    }

    fn attach(&mut self, qp: u32, group: IpAddr) -> Result<()> {
        let request = json!({ "qp": qp, "group": group.to_string() });
        self.call("attach", request).map(drop)
    }

    /// A memory window: nothing else can be invalidated in rxe.
    fn lend(&mut self, qp: u32, length: usize) -> Result<Region> {
        let region = self.mr(length, access::LOCAL_WRITE | access::MW_BIND)?;
        let window = json!({ "qp": qp, "access": access::REMOTE_WRITE });
        let rkey = self.call_on("bind_mw", region.span(0, length), window)?;
        Ok(Region {
            rkey: number(&rkey)? as u32,
            ..region
        })
    }

    fn state(&mut self, qp: u32) -> Result<u32> {
        Ok(number(&self.call("state", json!({ "qp": qp }))?)? as u32)
    }

    fn post_recv(&mut self, queue: Queue, wr_id: u64, span: Span) -> Result<()> {
        let (method, request) = match queue {
            Queue::Qp(qp) => ("post_recv", json!({ "qp": qp, "wr_id": wr_id })),
            Queue::Srq(srq) => ("post_srq", json!({ "srq": srq, "wr_id": wr_id })),
        };
        self.call_on(method, span, request).map(drop)
    }

    fn post_send(&mut self, qp: u32, works: &[Work]) -> Result<()> {
        let works: Vec<Value> = works.iter().map(request).collect();
        self.call("post_send", json!({ "qp": qp, "works": works }))
            .map(drop)
    }

    fn poll(&mut self, count: usize, patience: Duration) -> Result<Vec<Completion>> {
        let wcs = self.call(
            "poll",
            json!({ "count": count, "seconds": patience.as_secs_f64() }),
        )?;
        let wcs = wcs.as_array().cloned().unwrap_or_default();
        wcs.iter().map(completion).collect()
    }

    fn arm(&mut self, solicited_only: bool) -> Result<()> {
        self.call("arm", json!({ "solicited": solicited_only }))
            .map(drop)
    }

    fn wait_event(&mut self, patience: Duration) -> Result<bool> {
        let came = self.call("wait_event", json!({ "seconds": patience.as_secs_f64() }))?;
        Ok(came == Value::Bool(true))
    }
}

fn request(work: &Work) -> Value {
    let datagram = work.datagram;
    json!({
        "wr_id": work.wr_id, "opcode": work.opcode as u32, "flags": work.flags.0,
        "mr": work.local.mr.id, "offset": work.local.offset, "length": work.local.length,
        "remote_addr": work.remote_addr, "rkey": work.rkey, "imm": work.imm,
        "compare_add": work.compare_add, "swap": work.swap,
        "ah": datagram.map(|(ah, ..)| ah), "remote_qpn": datagram.map(|(_, qpn, _)| qpn),
        "remote_qkey": datagram.map(|(.., qkey)| qkey),
    })
}

fn completion(wc: &Value) -> Result<Completion> {
    let optional = |name: &str| wc[name].as_u64().map(|number| number as u32);
    Ok(Completion {
        wr_id: number(&wc["wr_id"])?,
        status: number(&wc["status"])? as u32,
        opcode: number(&wc["opcode"])? as u32,
        byte_len: number(&wc["byte_len"])? as u32,
        qpn: number(&wc["qpn"])? as u32,
        src_qp: number(&wc["src_qp"])? as u32,
        imm: optional("imm"),
        invalidated: optional("invalidated"),
    })
}

fn number(value: &Value) -> Result<u64> {
    value
        .as_u64()
        .ok_or_else(|| format!("the agent sent {value} for a number"))
}
