/* Objects that are gone, or are not what they are taken for: a program that is wrong about them gets an error number, as
 * from the kernel, and nothing is freed twice. `handles NAME` runs one check, and ends with 0 if it holds. */
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>
#include <stdint.h>

#include "check.h"

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_cq *cq;
static char memory[64];

static struct ibv_context *open_device(void) {
    struct ibv_device **list = ibv_get_device_list(NULL);
    CHECK(list && list[0]);
    struct ibv_context *opened = ibv_open_device(list[0]);
    CHECK(opened);
    ibv_free_device_list(list);
    return opened;
}

static struct ibv_mr *make_mr(void) {
    struct ibv_mr *mr = ibv_reg_mr(pd, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE);
    CHECK(mr);
    return mr;
}

static struct ibv_srq *make_srq(void) {
    struct ibv_srq_init_attr init = {.attr = {.max_wr = 4, .max_sge = 1}};
    struct ibv_srq *srq = ibv_create_srq(pd, &init);
    CHECK(srq);
    return srq;
}

static struct ibv_qp_init_attr of_qp(void) {
    struct ibv_qp_init_attr init = {
        .send_cq = cq,
        .recv_cq = cq,
        .cap = {.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1},
        .qp_type = IBV_QPT_UD,
    };
    return init;
}

static struct ibv_qp *make_qp(void) {
    struct ibv_qp_init_attr init = of_qp();
    struct ibv_qp *qp = ibv_create_qp(pd, &init);
    CHECK(qp);
    return qp;
}

static struct ibv_ah *make_ah(void) {
    struct ibv_ah_attr attr = {.is_global = 1, .port_num = 1};
    CHECK(ibv_query_gid(context, 1, 0, &attr.grh.dgid) == 0);
    struct ibv_ah *ah = ibv_create_ah(pd, &attr);
    CHECK(ah);
    return ah;
}

static struct ibv_xrcd *make_xrcd(void) {
    struct ibv_xrcd_init_attr attr = {
        .comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS, .fd = -1, .oflags = O_CREAT};
    struct ibv_xrcd *xrcd = ibv_open_xrcd(context, &attr);
    CHECK(xrcd);
    return xrcd;
}

static struct ibv_dm *make_dm(void) {
    struct ibv_alloc_dm_attr attr = {.length = 64};
    struct ibv_dm *dm = ibv_alloc_dm(context, &attr);
    CHECK(dm);
    return dm;
}

/* It goes once. */
#define TWICE(destroy, object)                                                                                         \
    do {                                                                                                               \
        void *made = (object);                                                                                         \
        CHECK(destroy(made) == 0);                                                                                     \
        CHECK(destroy(made) == ENOENT);                                                                                \
    } while (0)

static void check_twice(void) {
    TWICE(ibv_dereg_mr, make_mr());
    TWICE(ibv_dereg_mr, ibv_alloc_null_mr(pd));
    TWICE(ibv_dealloc_mw, ibv_alloc_mw(pd, IBV_MW_TYPE_2));
    TWICE(ibv_free_dm, make_dm());
    TWICE(ibv_destroy_ah, make_ah());
    TWICE(ibv_destroy_qp, make_qp());
    TWICE(ibv_destroy_srq, make_srq());
    TWICE(ibv_close_xrcd, make_xrcd());
    TWICE(ibv_destroy_cq, ibv_create_cq(context, 1, NULL, NULL, 0));
    TWICE(ibv_destroy_comp_channel, ibv_create_comp_channel(context));
    struct ibv_td_init_attr no_attributes = {0};
    struct ibv_td *td = ibv_alloc_td(context, &no_attributes);
    CHECK(td);
    struct ibv_parent_domain_init_attr of_parent = {.pd = pd, .td = td};
    TWICE(ibv_dealloc_pd, ibv_alloc_parent_domain(context, &of_parent));
    TWICE(ibv_dealloc_td, td);
    /* No number can be returned; nothing happens the second time. */
    struct ibv_pd *imported = ibv_import_pd(context, pd->handle);
    CHECK(imported);
    ibv_unimport_pd(imported);
    ibv_unimport_pd(imported);
    struct rdma_event_channel *events = rdma_create_event_channel();
    struct rdma_cm_id *id;
    CHECK(events && rdma_create_id(events, &id, NULL, RDMA_PS_TCP) == 0);
    CHECK(rdma_destroy_id(id) == 0);
    CHECK(rdma_destroy_id(id) == -1 && errno == ENOENT);
    TWICE(ibv_destroy_cq, cq);
    TWICE(ibv_dealloc_pd, pd);
    CHECK(ibv_close_device(context) == 0);
    CHECK(ibv_close_device(context) == -1 && errno == ENOENT);
}

/* Who is in use stays, whatever is tried, and goes when its users have. */
static void check_busy(void) {
    struct ibv_qp *qp = make_qp();
    CHECK(ibv_destroy_cq(cq) == EBUSY && ibv_dealloc_pd(pd) == EBUSY);
    CHECK(ibv_destroy_qp(qp) == 0);
    CHECK(ibv_destroy_cq(cq) == 0 && ibv_dealloc_pd(pd) == 0);
}

/* Nothing is made of it, and it is not changed. */
static void check_gone(void) {
    struct ibv_pd *gone = ibv_alloc_pd(context);
    CHECK(gone && ibv_dealloc_pd(gone) == 0);
    struct ibv_pd *mine = pd;
    pd = gone;
    struct ibv_ah_attr to = {.is_global = 1, .port_num = 1};
    struct ibv_srq_init_attr of_srq = {.attr = {.max_wr = 1, .max_sge = 1}};
    struct ibv_qp_init_attr init = of_qp();
    CHECK(!ibv_reg_mr(gone, memory, sizeof memory, 0) && errno == ENOENT);
    CHECK(!ibv_alloc_mw(gone, IBV_MW_TYPE_1) && errno == ENOENT);
    CHECK(!ibv_create_ah(gone, &to) && errno == ENOENT);
    CHECK(!ibv_create_srq(gone, &of_srq) && errno == ENOENT);
    CHECK(!ibv_create_qp(gone, &init) && errno == ENOENT);
    pd = mine;

    struct ibv_qp *qp = make_qp();
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
    CHECK(ibv_destroy_qp(qp) == 0);
    CHECK(ibv_modify_qp(qp, &attr, IBV_QP_STATE) == ENOENT);
    CHECK(ibv_query_qp(qp, &attr, IBV_QP_STATE, &init) == ENOENT);
    union ibv_gid group = {.raw = {0xff, 0x12, [15] = 1}};
    CHECK(ibv_attach_mcast(qp, &group, 0) == ENOENT && ibv_detach_mcast(qp, &group, 0) == ENOENT);

    struct ibv_srq *srq = make_srq();
    struct ibv_srq_attr limit = {.srq_limit = 1};
    CHECK(ibv_destroy_srq(srq) == 0);
    CHECK(ibv_modify_srq(srq, &limit, IBV_SRQ_LIMIT) == ENOENT && ibv_query_srq(srq, &limit) == ENOENT);

    struct ibv_mr *mr = make_mr();
    CHECK(ibv_dereg_mr(mr) == 0);
    CHECK(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, 0) != 0 && errno == ENOENT);

    struct ibv_comp_channel *channel = ibv_create_comp_channel(context);
    CHECK(channel && ibv_destroy_comp_channel(channel) == 0);
    CHECK(!ibv_create_cq(context, 1, NULL, channel, 0) && errno == ENOENT);
    struct ibv_cq *other = ibv_create_cq(context, 1, NULL, NULL, 0);
    CHECK(other && ibv_destroy_cq(other) == 0);
    CHECK(ibv_resize_cq(other, 8) == ENOENT);
    init = of_qp();
    init.recv_cq = other;
    CHECK(!ibv_create_qp(pd, &init) && errno == ENOENT);
}

/* A handle that is another one's is not followed, and the object stays. */
#define BY_ANOTHER_HANDLE(destroy, object)                                                                             \
    do {                                                                                                               \
        __typeof__(object) made = (object);                                                                            \
        uint32_t handle = made->handle;                                                                                \
        made->handle = handle + 1;                                                                                     \
        CHECK(destroy(made) == ENOENT);                                                                                \
        made->handle = handle;                                                                                         \
        CHECK(destroy(made) == 0);                                                                                     \
    } while (0)

static void check_another(void) {
    BY_ANOTHER_HANDLE(ibv_dereg_mr, make_mr());
    BY_ANOTHER_HANDLE(ibv_dealloc_mw, ibv_alloc_mw(pd, IBV_MW_TYPE_1));
    BY_ANOTHER_HANDLE(ibv_destroy_ah, make_ah());
    BY_ANOTHER_HANDLE(ibv_destroy_qp, make_qp());
    BY_ANOTHER_HANDLE(ibv_destroy_srq, make_srq());
    BY_ANOTHER_HANDLE(ibv_destroy_cq, ibv_create_cq(context, 1, NULL, NULL, 0));
    BY_ANOTHER_HANDLE(ibv_dealloc_pd, ibv_alloc_pd(context));
    BY_ANOTHER_HANDLE(ibv_free_dm, make_dm());
    /* The kernel has one space of handles for all kinds. */
    struct ibv_qp *qp = make_qp();
    CHECK(ibv_destroy_cq((void *)qp) == EINVAL && ibv_dereg_mr((void *)qp) == EINVAL);
    CHECK(ibv_destroy_qp((void *)cq) == EINVAL && ibv_dealloc_pd((void *)context) == EINVAL);
    CHECK(ibv_destroy_qp(qp) == 0);
    /* And one for each context. */
    struct ibv_context *second = open_device();
    struct ibv_qp_init_attr init = of_qp();
    CHECK(init.send_cq = ibv_create_cq(second, 1, NULL, NULL, 0));
    CHECK(!ibv_create_qp(pd, &init) && errno == EINVAL);
    CHECK(ibv_destroy_cq(init.send_cq) == 0 && ibv_close_device(second) == 0);
}

int main(int argc, char **argv) {
    static const struct {
        const char *name;
        void (*check)(void);
    } checks[] = {{"twice", check_twice}, {"busy", check_busy}, {"gone", check_gone}, {"another", check_another}};
    CHECK(argc >= 2);
    for (size_t n = 0; n < sizeof checks / sizeof *checks; n++) {
        if (strcmp(argv[1], checks[n].name) == 0) {
            context = open_device();
            CHECK(pd = ibv_alloc_pd(context));
            CHECK(cq = ibv_create_cq(context, 4, NULL, NULL, 0));
            checks[n].check();
            return 0;
        }
    }
    fprintf(stderr, "no check named %s\n", argv[1]);
    return 2;
}
