//! Connecting, accepting, rejecting and disconnecting.

use core::ffi::{c_int, c_void};

use urxe::cm::{ConnParam, Follower};

use super::id::Id;
use super::param::{bytes, check_depth, from_c};
use crate::errno::{Errno, minus_one};
use crate::layout::{rdma_cm_id, rdma_conn_param};
use crate::object::{Context, Object};
use crate::verbs::qp_create::UD;

/// `IBV_EVENT_COMM_EST`
const COMM_EST: c_int = 4;

pub(crate) unsafe extern "C" fn rdma_connect(
    id: *mut rdma_cm_id,
    param: *mut rdma_conn_param,
) -> c_int {
    // SAFETY: an id and parameters or null, by the rules of the function.
    minus_one(unsafe { Id::of(id).connect(from_c(param)) })
}

pub(crate) unsafe extern "C" fn rdma_accept(
    id: *mut rdma_cm_id,
    param: *mut rdma_conn_param,
) -> c_int {
    // SAFETY: an id and parameters or null, by the rules of the function.
    minus_one(unsafe { Id::of(id).accept(from_c(param)) })
}

pub(crate) unsafe extern "C" fn rdma_reject(
    id: *mut rdma_cm_id,
    data: *const c_void,
    len: u8,
) -> c_int {
    // SAFETY: an id and data, by the rules of the function.
    let (id, data) = unsafe { (Id::of(id), bytes(data.cast(), len)) };
    minus_one(id.urxe.reject(&data).map_err(Errno::from))
}

pub(crate) unsafe extern "C" fn rdma_establish(id: *mut rdma_cm_id) -> c_int {
    // SAFETY: an id, by the rules of the function.
    let id = unsafe { Id::of(id) };
    // With a QP of its own the library has done that.
    if id.qp().is_some() {
        return minus_one(Err(Errno::INVAL));
    }
    minus_one(id.urxe.establish().map_err(Errno::from))
}

pub(crate) unsafe extern "C" fn rdma_notify(id: *mut rdma_cm_id, event: c_int) -> c_int {
    // SAFETY: an id, by the rules of the function.
    let id = unsafe { Id::of(id) };
    minus_one(match event {
        COMM_EST => id.urxe.notify_established().map_err(Errno::from),
        _ => Err(Errno::INVAL),
    })
}

pub(crate) unsafe extern "C" fn rdma_disconnect(id: *mut rdma_cm_id) -> c_int {
    // SAFETY: an id, by the rules of the function.
    minus_one(unsafe { Id::of(id) }.disconnect())
}

impl Id {
    fn connect(&self, mut param: ConnParam) -> Result<(), Errno> {
        self.check(&param)?;
        self.name_present_qp();
        let mut data = self.state().connect_data.clone();
        data.append(&mut param.private_data);
        param.private_data = data;
        self.urxe.connect(&param)?;
        self.finish()
    }

    fn check(&self, param: &ConnParam) -> Result<(), Errno> {
        // SAFETY: the program's part; a device's context stays open.
        unsafe {
            let verbs = (*self.ibv.get()).verbs;
            if verbs.is_null() {
                return Err(Errno::INVAL);
            }
            check_depth(&Context::of(verbs).urxe, param)
        }
    }

    /// The handshake is about the QP that the id has now: programs move QPs from one id to another (`accepted->qp =
    /// other->qp`, as DAPL does). Without one the parameters name it.
    fn name_present_qp(&self) {
        match self.qp() {
            Some(qp) => self.name_qp(qp),
            None => self.disown_qp(),
        }
    }

    fn is_connected_service(&self) -> bool {
        // SAFETY: the program's part.
        unsafe { (*self.ibv.get()).qp_type != UD }
    }

    fn accept(&self, param: ConnParam) -> Result<(), Errno> {
        self.check(&param)?;
        self.name_present_qp();
        let qp = self.qp().map(|qp| qp as &dyn Follower);
        self.urxe.accept_with(&param, qp)?;
        if self.is_connected_service() {
            return self.finish();
        }
        Ok(())
    }

    fn disconnect(&self) -> Result<(), Errno> {
        if !self.is_connected_service() {
            return Err(Errno::INVAL);
        }
        if let Some(qp) = self.qp() {
            qp.fail()?;
        }
        self.urxe.disconnect()?;
        self.finish()
    }
}
