/* SPDX-License-Identifier: BSD-3-Clause */
/* Cost model of the device paths inside a node. */
#include "pml/choice.h"

#include <math.h>

/* 1 GB/s is 1000 bytes per microsecond. */
static double wire_us(size_t length, double gigabytes_per_s)
{
    return (double)length / (gigabytes_per_s * 1000.0);
}

static double peer_bandwidth(const grail_choice_t *in, const grail_options_t *opt)
{
    return in->same_gpu ? opt->bw_local : opt->bw_peer;
}

/* Two overlapping copies of pieces that pass through a slot. */
static double pipeline_us(const grail_choice_t *in, grail_path_t path, double bandwidth,
                          size_t slot, const grail_options_t *opt)
{
    size_t piece = grail_choice_piece(in->length, path, slot, opt);
    size_t pieces = piece > 0 ? (in->length + piece - 1) / piece : 1;
    double stage = opt->cost_copy_us + wire_us(piece, bandwidth);

    if (pieces < 1)
        pieces = 1;
    return 3 * opt->cost_notify_us + (double)(pieces + 1) * stage;
}

double grail_choice_cost(const grail_choice_t *in, grail_path_t path, const grail_options_t *opt)
{
    switch (path) {
    case GRAIL_PATH_IPC:
        if (!opt->ipc || !in->same_node || !in->can_map || !in->receiver_device ||
            !in->sender_device || !in->direct_layout)
            return HUGE_VAL;
        /* opening a mapping is paid once and comes back with every later message */
        return 2 * opt->cost_notify_us + opt->cost_copy_us +
               wire_us(in->length, peer_bandwidth(in, opt));
    case GRAIL_PATH_RING:
        if (!opt->ring || !opt->ipc || !in->same_node || !in->can_map_ring ||
            !in->receiver_device || !in->sender_device)
            return HUGE_VAL;
        return pipeline_us(in, path, peer_bandwidth(in, opt), opt->ring_chunk, opt);
    case GRAIL_PATH_HOST_SHM:
        if (!opt->shm || !in->same_node)
            return HUGE_VAL;
        return pipeline_us(in, path, opt->bw_host, opt->chunk, opt);
    case GRAIL_PATH_HOST_NET:
        /* one more pass over the data than the shared segment needs */
        return pipeline_us(in, path, opt->bw_host, opt->chunk, opt) * 1.5 + opt->cost_notify_us;
    default:
        return HUGE_VAL;
    }
}

static grail_path_t forced_path(const grail_options_t *opt)
{
    static const grail_path_t forced[] = {
        GRAIL_PATH_COUNT, GRAIL_PATH_IPC, GRAIL_PATH_RING, GRAIL_PATH_HOST_SHM
    };
    return forced[opt->path];
}

grail_path_t grail_choice_path(const grail_choice_t *in, grail_path_t from,
                               const grail_options_t *opt)
{
    grail_path_t wanted = forced_path(opt), best = GRAIL_PATH_HOST_NET;
    double least = HUGE_VAL;

    if (wanted != GRAIL_PATH_COUNT && wanted > from)
        from = wanted;
    for (int path = from; path <= GRAIL_PATH_HOST_NET; path++) {
        double cost = grail_choice_cost(in, (grail_path_t)path, opt);
        if ((grail_path_t)path == wanted && cost < HUGE_VAL)
            return wanted;
        if (cost < least) {
            least = cost;
            best = (grail_path_t)path;
        }
    }
    return best;
}

bool grail_choice_eager(size_t length, bool can_offer_map, bool gdr, const grail_options_t *opt)
{
    if (opt->path != 0)
        return false;
    if (gdr && length <= opt->gdrcopy_read_max)
        return true;
    return !can_offer_map && length <= opt->eager_device;
}

bool grail_choice_late(size_t length, const grail_options_t *opt)
{
    return opt->path == 0 && opt->eager_wait > 0 && length <= opt->eager_device &&
           length <= opt->chunk;
}

size_t grail_choice_piece(size_t length, grail_path_t path, size_t slot_size,
                          const grail_options_t *opt)
{
    double bandwidth = path == GRAIL_PATH_RING ? opt->bw_peer : opt->bw_host;
    double best = sqrt((double)length * opt->cost_copy_us * bandwidth * 1000.0);
    size_t piece;

    if (best >= (double)slot_size || length == 0)
        return slot_size < length || length == 0 ? slot_size : length;
    piece = ((size_t)best + 65535) & ~(size_t)65535;    /* whole 64 KiB: aligned copies */
    if (piece > slot_size)
        piece = slot_size;
    return piece < length ? piece : length;
}
