//! XRC domains.

use core::fmt;
use std::collections::HashMap;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, Weak};

use rustix::fs::fstat;
use urxe_core::qp::state::QpType;
use urxe_core::srq::SrqAttr;
use urxe_core::xrc::XrcdId;
use urxe_wire::Qpn;

use crate::context::Context;
use crate::cq::Cq;
use crate::error::{Error, ErrorKind};
use crate::lock::lock;
use crate::pd::Pd;
use crate::qp::{Qp, QpInitAttr, QpInner};
use crate::srq::{Kind, Srq};

/// A domain of extended reliable connections (XRC): its shared receive queues, and the
/// target QPs through which peers reach all of them.
///
/// With reliable connections, every process that talks to n processes of m threads needs
/// a QP for each of them. With XRC one initiator QP ([`crate::QpBuilder::xrc_send`]) and
/// one target QP are the connection between two processes, and each request names the
/// shared receive queue that it is for ([`crate::SendWr::to_srq`]).
///
/// It is a handle: clones are the same domain, which lives until the last of them, its
/// last queue and its last QP are gone. A domain is shared within the process, between
/// contexts that open it on the same file; other processes have domains of their own.
///
/// ```
/// # fn main() -> Result<(), urxe::Error> {
/// use urxe::{Access, ConnectOptions, Context, RecvWr, SendWr, SrqAttr};
///
/// let server = Context::open("127.81.0.15".parse().unwrap())?;
/// let (pd, cq) = (server.alloc_pd()?, server.create_cq(64)?);
/// let domain = server.open_xrcd()?;
/// let srq = domain.create_srq(&pd, &cq, &SrqAttr::default())?;
/// let buffer = pd.reg_owned(vec![0; 64], Access::LOCAL_WRITE)?;
/// srq.post_recv(&RecvWr::new(1, &[buffer.sge(..)]))?;
/// let target = domain.create_target()?;
///
/// let client = Context::open("127.81.0.16".parse().unwrap())?;
/// let (client_pd, client_cq) = (client.alloc_pd()?, client.create_cq(64)?);
/// let initiator = client_pd.qp(&client_cq).xrc_send().create()?;
///
/// target.connect(&initiator.endpoint(), &ConnectOptions::default())?;
/// initiator.connect(&target.endpoint(), &ConnectOptions::default())?;
/// initiator.post_send(&SendWr::send_inline(2, b"hello").to_srq(srq.srq_num()))?;
/// let wc = cq.poll_one()?;
/// assert_eq!((wc.wr_id, wc.byte_len), (1, 5));
/// assert_eq!(wc.qp_num, target.qp_num());
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
#[doc(alias = "ibv_xrcd")]
pub struct Xrcd {
    inner: Arc<XrcdInner>,
}

/// A file by which a domain is found.
pub(crate) type FileId = (u64, u64);

pub(crate) struct XrcdInner {
    /// Target QPs have neither a protection domain nor queues; these stand for them.
    /// No other handle exists, so there is nothing in them to reach.
    pd: Pd,
    cq: Cq,
    file: Option<FileId>,
    targets: Mutex<HashMap<Qpn, Weak<QpInner>>>,
}

/// Whether a domain must be new when it is opened on a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum XrcdOpen {
    /// The domain that is there, or else a new one (`O_CREAT`).
    #[default]
    Create,
    /// A new one (`O_CREAT | O_EXCL`).
    CreateNew,
    /// The one that is there (0).
    Existing,
}

/// The domains of a context that were opened on files.
#[derive(Debug, Default)]
pub(crate) struct XrcdTable {
    by_file: Mutex<HashMap<FileId, Weak<XrcdInner>>>,
}

impl Context {
    /// A new XRC domain that cannot be opened again.
    ///
    /// # Errors
    /// After a fork, in the child.
    #[doc(alias = "ibv_open_xrcd")]
    pub fn open_xrcd(&self) -> Result<Xrcd, Error> {
        Xrcd::create(self, None)
    }

    /// The XRC domain of a file: all callers that open it on the same file, through this context,
    /// get the same. The file's content does not matter, and it can be closed.
    ///
    /// # Errors
    /// [`ErrorKind::Xrcd`] if there is none (`ENOENT`), or one already (`EEXIST`), as `how`
    /// has it.
    #[doc(alias = "ibv_open_xrcd")]
    pub fn open_xrcd_on(&self, file: BorrowedFd<'_>, how: XrcdOpen) -> Result<Xrcd, Error> {
        let stat = fstat(file).map_err(|errno| Error::io("looking at the file")(errno.into()))?;
        let id: FileId = (stat.st_dev, stat.st_ino);
        // Declared before the guard, and so dropped after it: if it is the last handle by
        // then, its end needs the same lock.
        let present;
        let mut by_file = lock(&self.xrcds().by_file);
        present = by_file.get(&id).and_then(Weak::upgrade);
        match (&present, how) {
            (Some(_), XrcdOpen::CreateNew) => Err(ErrorKind::Xrcd { is_there: true }.into()),
            (None, XrcdOpen::Existing) => Err(ErrorKind::Xrcd { is_there: false }.into()),
            (Some(inner), _) => Ok(Xrcd {
                inner: inner.clone(),
            }),
            (None, _) => {
                let xrcd = Xrcd::create(self, Some(id))?;
                by_file.insert(id, Arc::downgrade(&xrcd.inner));
                Ok(xrcd)
            }
        }
    }
}

impl Xrcd {
    fn create(context: &Context, file: Option<FileId>) -> Result<Xrcd, Error> {
        Ok(Xrcd {
            inner: Arc::new(XrcdInner {
                pd: context.alloc_pd()?,
                cq: context.create_cq(1)?,
                file,
                targets: Mutex::default(),
            }),
        })
    }

    /// Its context.
    pub fn context(&self) -> &Context {
        self.inner.pd.context()
    }

    /// Its protection domain is its own, so that one's number serves for both.
    pub(crate) fn id(&self) -> XrcdId {
        XrcdId(self.inner.pd.id().0)
    }

    /// Creates a shared receive queue that the domain's targets reach by its number
    /// ([`Srq::srq_num`]). Peers' requests for it see memory of `pd`, and its receives
    /// complete to `cq`.
    ///
    /// # Errors
    /// [`ErrorKind::Srq`] if a size is not possible, [`ErrorKind::ForeignObject`] if an
    /// object is of another context.
    #[doc(alias = "ibv_create_srq_ex")]
    #[doc(alias = "ibv_create_xrc_srq")]
    pub fn create_srq(&self, pd: &Pd, cq: &Cq, attr: &SrqAttr) -> Result<Srq, Error> {
        let foreign = |name| Err(ErrorKind::ForeignObject(name).into());
        if !pd.context().is(self.context()) {
            return foreign("protection domain");
        }
        if !cq.context().is(self.context()) {
            return foreign("completion queue");
        }
        Srq::with(pd, Kind::Xrc(self.clone(), cq.clone()), attr)
    }

    /// Creates a target QP, in RESET: the receiving end of a connection. It belongs to the
    /// domain; nothing can be posted to it.
    ///
    /// # Errors
    /// If there is no room for more QPs.
    #[doc(alias = "ibv_create_qp_ex")]
    #[doc(alias = "IBV_QPT_XRC_RECV")]
    pub fn create_target(&self) -> Result<Qp, Error> {
        let XrcdInner { pd, cq, .. } = &*self.inner;
        let mut init = QpInitAttr::new(cq, cq);
        init.qp_type = QpType::XrcRecv;
        let qp = Qp::create(pd, &init, Some(self))?;
        lock(&self.inner.targets).insert(qp.qp_num(), qp.downgrade());
        Ok(qp)
    }

    /// Another handle of one of the domain's target QPs, which so outlives the handles of
    /// its creator.
    ///
    /// # Errors
    /// [`ErrorKind::NoTarget`] if the domain has no such QP.
    #[doc(alias = "ibv_open_qp")]
    pub fn open_qp(&self, qp_num: Qpn) -> Result<Qp, Error> {
        let targets = lock(&self.inner.targets);
        let found = targets.get(&qp_num).and_then(Qp::upgrade);
        found.ok_or_else(|| ErrorKind::NoTarget(qp_num).into())
    }

    /// A target QP is gone.
    pub(crate) fn forget(&self, qp_num: Qpn) {
        lock(&self.inner.targets).remove(&qp_num);
    }
}

impl PartialEq for Xrcd {
    /// True if both are the same domain.
    fn eq(&self, other: &Xrcd) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }
}

impl Eq for Xrcd {}

impl fmt::Debug for Xrcd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

impl fmt::Debug for XrcdInner {
    /// Its QPs refer to it, so they are not shown.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Xrcd");
        shown.field("id", &self.pd.id().0).field("file", &self.file);
        shown.finish_non_exhaustive()
    }
}

impl Drop for XrcdInner {
    fn drop(&mut self) {
        let Some(file) = self.file else { return };
        let mut by_file = lock(&self.pd.context().xrcds().by_file);
        // Another may have been created since the last handle went.
        if by_file
            .get(&file)
            .is_some_and(|xrcd| xrcd.strong_count() == 0)
        {
            by_file.remove(&file);
        }
    }
}
