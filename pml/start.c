/* SPDX-License-Identifier: BSD-3-Clause */
/* Start of persistent requests. */
#include "pml/comm.h"
#include "pml/request.h"

int grail_pml_start(size_t count, ompi_request_t **requests)
{
    int rc = OMPI_SUCCESS;

    grail_pml_lock();
    for (size_t i = 0; i < count && rc == OMPI_SUCCESS; i++) {
        grail_req_t *req = (grail_req_t *)requests[i];

        if (req == NULL || req->ompi.req_type != OMPI_REQUEST_PML)
            continue;
        req->ompi.req_state = OMPI_REQUEST_ACTIVE;
        req->ompi.req_complete = REQUEST_PENDING;
        req->ompi.req_status.MPI_ERROR = MPI_SUCCESS;
        req->protocol_done = false;
        req->watched = 0;
        if (req->is_send) {
            grail_status_t status = grail_send_start((grail_send_req_t *)req);

            if (status != GRAIL_OK) {
                req->protocol_done = true;
                req->ompi.req_state = OMPI_REQUEST_INACTIVE;
                req->ompi.req_complete = REQUEST_COMPLETED;
                rc = status == GRAIL_ERR_BUSY ? MPI_ERR_BUFFER : grail_pml_error(status);
            }
        } else {
            grail_recv_post((grail_recv_req_t *)req);
        }
    }
    grail_pml_unlock();
    return rc;
}
