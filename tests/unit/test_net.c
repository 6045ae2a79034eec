/* SPDX-License-Identifier: BSD-3-Clause */
/* Host messaging between two processes: sizes, ways, rendezvous, layouts, closing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "runtime/init.h"
#include "tests/unit/net_pair.h"

enum { BIG = 5 << 20, GUARD = 64 };

/* Begins every header here; the rest of a longer header is filled from the seed. */
typedef struct header {
    uint32_t seed;
    uint32_t length;        /* of the payload */
    uint32_t header_length;
    uint32_t what;
} header_t;

static const size_t sizes[] = {
    0,    1,    7,     8,     63,    64,    68,     92,     93,     100,     1000,
    4096, 8192, 8200,  8216,  8240,  8256,  8300,   12288,  16384,  20000,   32768,
    65536, 100000, 262143, 262144, 300000, 1 << 20, BIG,
};
enum { SIZES = sizeof(sizes) / sizeof(sizes[0]) };

static const unsigned ways[] = {
    0, GRAIL_NET_SEND_EAGER, GRAIL_NET_SEND_RNDV, GRAIL_NET_SEND_FAST,
};
enum { WAYS = sizeof(ways) / sizeof(ways[0]) };

static char *source, *target;
static char big_header[GRAIL_NET_HEADER_MAX];

/* --- a handler with a choice of manners ------------------------------------------------------ */

enum manners { AT_ONCE, LATER, DROP_AT_ONCE, DROP_LATER, DONE_UNREAD };

static enum manners manners;
static unsigned received;
static unsigned rndvs;
static bool was_rndv[4096];     /* by seed */
static struct kept {
    void *token;
    void *data;
    bool rndv;
    size_t length;
    uint32_t seed;
} kept[20000];
static unsigned kept_count;

static void check_header(const grail_net_message_t *message, header_t *header)
{
    const char *bytes = message->header;

    CHECK(message->header_length >= sizeof(*header));
    memcpy(header, message->header, sizeof(*header));
    CHECK(header->header_length == message->header_length);
    CHECK(header->length == message->length);
    CHECK(pair_matches(bytes + sizeof(*header), message->header_length - sizeof(*header),
                       header->seed));
    CHECK((message->data == NULL) == message->rndv || message->length == 0);
}

static void fetch_done(void *arg, grail_status_t status, size_t length)
{
    header_t *header = arg;

    CHECK(status == GRAIL_OK);
    CHECK(length == header->length);
    CHECK(pair_matches(target, length, header->seed));
    CHECK(pair_matches(target + length, GUARD, 99));
    received++;
}

static void fetch(void *token, const header_t *expected)
{
    static header_t header;
    grail_net_buffer_t buffer = {target, expected->length, NULL};

    header = *expected;
    memset(target, 0, header.length);
    pair_fill(target + header.length, GUARD, 99);
    grail_status_t status = grail_net_fetch(pair.net, token, &buffer, fetch_done, &header);
    if (status == GRAIL_OK)
        fetch_done(&header, GRAIL_OK, header.length);
    else
        CHECK(status == GRAIL_IN_PROGRESS);
}

static grail_net_verdict_t on_message(void *arg, grail_net_message_t *message)
{
    header_t header;

    CHECK(arg == &pair);
    check_header(message, &header);
    was_rndv[header.seed % 4096] = message->rndv;
    if (manners == AT_ONCE) {
        if (message->rndv) {
            fetch(message->token, &header);
            return GRAIL_NET_KEEP;
        }
        CHECK(pair_matches(message->data, message->length, header.seed));
        received++;
        return GRAIL_NET_DONE;
    }
    if (manners == DROP_AT_ONCE && message->may_keep) {
        grail_net_drop(pair.net, message->token);
        received++;
        return GRAIL_NET_KEEP;
    }
    if (manners == DONE_UNREAD || !message->may_keep) {
        CHECK(message->rndv || pair_matches(message->data, message->length, header.seed));
        received++;
        return GRAIL_NET_DONE;
    }
    CHECK(kept_count < sizeof(kept) / sizeof(kept[0]));
    kept[kept_count++] = (struct kept){
        message->token, message->data, message->rndv, message->length, header.seed,
    };
    received++;
    return GRAIL_NET_KEEP;
}

/* Whatever was kept, in another order than it came. */
static void settle(void)
{
    while (kept_count > 0) {
        struct kept *last = &kept[--kept_count];
        header_t header = {.seed = last->seed, .length = (uint32_t)last->length};

        if (manners == LATER && last->rndv) {
            unsigned before = received;

            fetch(last->token, &header);
            pair_wait(received, before + 1);
            received--;
            continue;
        }
        if (!last->rndv)
            CHECK(pair_matches(last->data, last->length, last->seed));
        grail_net_drop(pair.net, last->token);
    }
}

static grail_status_t send_one(uint32_t seed, size_t length, size_t header_length, unsigned flags)
{
    grail_net_buffer_t buffer = {source, length, NULL};
    header_t header = {seed, (uint32_t)length, (uint32_t)header_length, 0};

    memcpy(big_header, &header, sizeof(header));
    pair_fill(big_header + sizeof(header), header_length - sizeof(header), seed);
    pair_fill(source, length, seed);
    return grail_net_send(pair.net, pair.endpoint, seed % 2, big_header, header_length,
                          length > 0 || seed % 2 ? &buffer : NULL, flags, pair_done, NULL);
}

static void exchange(enum manners how)
{
    static const size_t header_lengths[] = {sizeof(header_t), 24, 100, GRAIL_NET_HEADER_MAX};
    uint32_t seed = 0;

    pair_open(on_message);
    source = malloc(BIG);
    target = malloc(BIG + GUARD);
    manners = how;
    received = kept_count = 0;
    for (unsigned h = 0; h < 4; ++h) {
        for (unsigned i = 0; i < (h == 0 ? SIZES : SIZES - 2u); ++i) {
            for (unsigned w = 0; w < WAYS; ++w) {
                unsigned before = pair.done;

                ++seed;
                if (pair.side == 0) {
                    grail_status_t status = send_one(seed, sizes[i], header_lengths[h], ways[w]);

                    CHECK(status == GRAIL_OK || status == GRAIL_IN_PROGRESS);
                    if (status == GRAIL_IN_PROGRESS) {
                        pair_wait(pair.done, before + 1);
                        CHECK(pair.done == before + 1);
                        CHECK(pair.done_status == GRAIL_OK);
                        CHECK(pair.done_length == sizes[i]);
                    }
                    CHECK(ways[w] != GRAIL_NET_SEND_RNDV || status == GRAIL_IN_PROGRESS);
                } else {
                    pair_wait(received, seed);
                    CHECK(ways[w] != GRAIL_NET_SEND_EAGER || !was_rndv[seed]);
                    CHECK(ways[w] != GRAIL_NET_SEND_RNDV || was_rndv[seed]);
                    settle();
                }
            }
        }
        pair_barrier();
    }
    free(source);
    free(target);
    pair_close();
}

static void consumed_in_the_handler(void **state)
{
    (void)state;
    exchange(AT_ONCE);
}

static void kept_and_fetched_later(void **state)
{
    (void)state;
    exchange(LATER);
}

static void dropped_in_the_handler(void **state)
{
    (void)state;
    exchange(DROP_AT_ONCE);
}

static void dropped_later(void **state)
{
    (void)state;
    exchange(DROP_LATER);
}

static void done_without_reading(void **state)
{
    (void)state;
    exchange(DONE_UNREAD);
}

/* --- order, quantity, holding ---------------------------------------------------------------- */

static void many_in_flight(void **state)
{
    enum { COUNT = 10000, LENGTH = 1000 };
    static header_t headers[COUNT];
    unsigned in_progress = 0;

    (void)state;
    for (unsigned w = 0; w < WAYS; ++w) {
        pair_open(on_message);
        source = malloc(LENGTH);
        target = malloc(LENGTH + GUARD);
        pair_fill(source, LENGTH, 5);
        manners = LATER;
        received = kept_count = in_progress = 0;
        if (pair.side == 0) {
            for (unsigned i = 0; i < COUNT; ++i) {
                grail_net_buffer_t buffer = {source, LENGTH, NULL};

                headers[i] = (header_t){5, LENGTH, sizeof(header_t), 0};
                grail_status_t status =
                    grail_net_send(pair.net, pair.endpoint, 0, &headers[i], sizeof(header_t),
                                   &buffer, ways[w], pair_done, NULL);
                CHECK(status == GRAIL_OK || status == GRAIL_IN_PROGRESS);
                in_progress += status == GRAIL_IN_PROGRESS;
            }
            if (ways[w] == GRAIL_NET_SEND_RNDV)
                CHECK(in_progress == COUNT && pair.done == 0);
            pair_wait(pair.done, in_progress);
        } else {
            pair_wait(received, COUNT);
            /* what lies in a slot of the queue cannot be kept */
            CHECK(ways[w] != GRAIL_NET_SEND_RNDV || kept_count == COUNT);
            settle();
        }
        free(source);
        free(target);
        pair_close();
        CHECK(pair.done == in_progress);
    }
}

/* The PML moves a payload by another way meanwhile: the sender must wait for the drop. */
static void rendezvous_held_open(void **state)
{
    (void)state;
    for (size_t length = 0; length <= BIG; length = length * 100 + 8) {
        pair_open(on_message);
        source = malloc(BIG);
        manners = DROP_LATER;
        received = kept_count = 0;
        if (pair.side == 0) {
            CHECK(send_one(1, length, sizeof(header_t), GRAIL_NET_SEND_RNDV) ==
                  GRAIL_IN_PROGRESS);
            pair_barrier();     /* the other side holds it */
            for (double end = pair_seconds() + 0.05; pair_seconds() < end;)
                grail_net_progress(pair.net);
            CHECK(pair.done == 0);
            pair_barrier();     /* now it drops it */
            pair_wait(pair.done, 1);
            CHECK(pair.done_status == GRAIL_OK);
        } else {
            pair_wait(received, 1);
            CHECK(kept_count == 1 && kept[0].rndv && kept[0].length == length);
            pair_barrier();
            pair_barrier();
            settle();
        }
        free(source);
        pair_close();
    }
}

/* --- truncation ------------------------------------------------------------------------------ */

enum { TRUNCATIONS = 5 * 3 * 3 };

/* A message of seed `seed` meets a buffer of this size. */
static size_t room_for(uint32_t seed, size_t length)
{
    unsigned kind = seed % TRUNCATIONS / 15;

    return kind == 0 ? 0 : kind == 1 ? length / 2 : length - 1;
}

static void fetch_truncated(void *token, uint32_t seed, size_t length)
{
    size_t room = room_for(seed, length);
    grail_net_buffer_t buffer = {target, room, NULL};

    pair_fill(target, length + GUARD, 99);
    CHECK(grail_net_fetch(pair.net, token, &buffer, pair_done, NULL) == GRAIL_ERR_TRUNCATED);
    for (size_t i = room; i < length + GUARD; ++i)
        CHECK((unsigned char)target[i] == pair_byte(99, i));
}

static grail_net_verdict_t on_long_message(void *arg, grail_net_message_t *message)
{
    header_t header;

    (void)arg;
    check_header(message, &header);
    received++;
    if (!message->rndv)
        return GRAIL_NET_DONE;
    if (header.seed >= TRUNCATIONS)
        fetch_truncated(message->token, header.seed, message->length);
    else
        kept[kept_count++] = (struct kept){.token = message->token, .length = message->length};
    return GRAIL_NET_KEEP;
}

static void truncated(void **state)
{
    static const size_t lengths[] = {8, 1000, 10000, 100000, BIG};
    static const unsigned flags[] = {GRAIL_NET_SEND_RNDV, GRAIL_NET_SEND_FAST, 0};

    (void)state;
    pair_open(on_long_message);
    source = malloc(BIG);
    target = malloc(BIG + GUARD);
    received = kept_count = 0;
    for (uint32_t seed = 0; seed < 2 * TRUNCATIONS; ++seed) {
        size_t length = lengths[seed % 5];
        unsigned before = pair.done;

        if (pair.side == 0) {
            if (send_one(seed, length, sizeof(header_t), flags[seed / 5 % 3]) ==
                GRAIL_IN_PROGRESS)
                pair_wait(pair.done, before + 1);
            CHECK(pair.done == before || pair.done_status == GRAIL_OK);
        } else {
            pair_wait(received, seed + 1);
            if (kept_count > 0)
                fetch_truncated(kept[--kept_count].token, seed, length);
        }
        pair_barrier();
    }
    free(source);
    free(target);
    pair_close();
}

/* --- layouts --------------------------------------------------------------------------------- */

/* Elements of 3 bytes at every 5th byte. */
enum { ITEM = 3, STRIDE = 5 };

static int states_alive;
static bool refuse_to_start;
static grail_status_t unpack_status;

typedef struct walk {
    char *base;
    size_t length;
} walk_t;

static void *start(void *context, const void *buffer, size_t count)
{
    CHECK(context == &states_alive);
    if (refuse_to_start)
        return NULL;
    walk_t *walk = malloc(sizeof(*walk));
    CHECK(walk != NULL);
    walk->base = (char *)(uintptr_t)buffer;
    walk->length = count * ITEM;
    states_alive++;
    return walk;
}

static void *start_unpack(void *context, void *buffer, size_t count)
{
    return start(context, buffer, count);
}

static size_t packed_size(void *state)
{
    return ((walk_t *)state)->length;
}

static char *at(const walk_t *walk, size_t offset)
{
    return walk->base + offset / ITEM * STRIDE + offset % ITEM;
}

static size_t pack(void *state, size_t offset, void *dst, size_t max)
{
    const walk_t *walk = state;
    size_t n = 0;

    for (; n < max && offset + n < walk->length; ++n)
        ((char *)dst)[n] = *at(walk, offset + n);
    return n;
}

static size_t next_offset;

static grail_status_t unpack(void *state, size_t offset, const void *src, size_t length)
{
    const walk_t *walk = state;

    CHECK(offset == 0 || offset == next_offset);    /* ascending, without gaps */
    next_offset = offset + length;
    CHECK(offset + length <= walk->length);
    for (size_t i = 0; i < length; ++i)
        *at(walk, offset + i) = ((const char *)src)[i];
    return unpack_status;
}

static void finish(void *state)
{
    states_alive--;
    free(state);
}

static const grail_net_layout_t layout = {
    start, start_unpack, packed_size, pack, unpack, finish, &states_alive,
};

static grail_net_type_t *type;
static bool typed_receive;
static size_t typed_room;       /* elements; set before a barrier that the sender waits for */
static grail_status_t fetch_status;

static bool strided_matches(const char *memory, size_t length, uint32_t seed)
{
    for (size_t i = 0; i < length; ++i) {
        if ((unsigned char)memory[i / ITEM * STRIDE + i % ITEM] != pair_byte(seed, i))
            return false;
    }
    return true;
}

static void typed_done(void *arg, grail_status_t status, size_t length)
{
    (void)arg;
    (void)length;
    fetch_status = status;
    received++;
}

static grail_net_verdict_t on_typed(void *arg, grail_net_message_t *message)
{
    grail_net_buffer_t buffer = {
        target, typed_receive ? typed_room : message->length, typed_receive ? type : NULL,
    };

    (void)arg;
    if (!message->rndv) {
        /* eager data is plain data for its receiver */
        memcpy(target, message->data, message->length);
        rndvs = 0;
        received++;
        return GRAIL_NET_DONE;
    }
    rndvs = 1;
    fetch_status = grail_net_fetch(pair.net, message->token, &buffer, typed_done, NULL);
    received += fetch_status != GRAIL_IN_PROGRESS;
    return GRAIL_NET_KEEP;
}

static void send_typed(size_t count, unsigned flags, bool strided, uint32_t seed)
{
    grail_net_buffer_t buffer = {source, strided ? count : count * ITEM, strided ? type : NULL};
    unsigned before = pair.done;
    uint32_t header = seed;

    if (strided) {
        for (size_t i = 0; i < count * ITEM; ++i)
            source[i / ITEM * STRIDE + i % ITEM] = (char)pair_byte(seed, i);
    } else {
        pair_fill(source, count * ITEM, seed);
    }
    grail_status_t status = grail_net_send(pair.net, pair.endpoint, 0, &header, sizeof(header),
                                           &buffer, flags, pair_done, NULL);
    CHECK(status == GRAIL_OK || status == GRAIL_IN_PROGRESS);
    if (status == GRAIL_IN_PROGRESS)
        pair_wait(pair.done, before + 1);
    CHECK(pair.done == before || pair.done_status == GRAIL_OK);
    CHECK(status == GRAIL_OK || pair.done_length == count * ITEM);
}

static void layouts(void **state)
{
    static const size_t counts[] = {0, 1, 20, 31, 1000, 2740, 2760, 5000, 30000, 400000};
    uint32_t seed = 0;

    (void)state;
    pair_open(on_typed);
    source = malloc(400000 * STRIDE);
    target = malloc(400000 * STRIDE + GUARD);
    CHECK(grail_net_type_create(pair.net, &layout, &type) == GRAIL_OK);
    received = 0;
    for (unsigned way = 0; way < WAYS * 3; ++way) {
        bool strided_send = way % 3 != 1;

        typed_receive = way % 3 != 0;
        for (unsigned i = 0; i < sizeof(counts) / sizeof(counts[0]); ++i) {
            size_t count = counts[i];
            unsigned arrived = ++seed;

            typed_room = count + (seed % 2 ? 3 : 0);    /* a shorter message is no error */
            memset(target, 0, count * STRIDE);
            pair_barrier();
            if (pair.side == 0) {
                send_typed(count, ways[way / 3], strided_send, seed);
            } else {
                pair_wait(received, arrived);
                CHECK(rndvs == 0 || fetch_status == GRAIL_OK);
                if (rndvs == 1 && typed_receive)
                    CHECK(strided_matches(target, count * ITEM, seed));
                else
                    CHECK(pair_matches(target, count * ITEM, seed));
            }
            pair_barrier();
            CHECK(states_alive == 0);
        }
    }
    grail_net_type_free(type);
    free(source);
    free(target);
    pair_close();
}

static void layouts_in_trouble(void **state)
{
    (void)state;
    pair_open(on_typed);
    source = malloc(400000 * STRIDE);
    target = malloc(400000 * STRIDE + GUARD);
    received = 0;
    typed_receive = true;
    CHECK(grail_net_type_create(pair.net, &layout, &type) == GRAIL_OK);
    for (unsigned flags = GRAIL_NET_SEND_RNDV; flags <= GRAIL_NET_SEND_FAST; flags += 2) {
        size_t count = flags == GRAIL_NET_SEND_FAST ? 30000 : 400000;
        unsigned arrived = flags == GRAIL_NET_SEND_FAST ? 3 : 0;

        /* too few elements: nothing behind them is touched */
        typed_room = count - 1;
        memset(target, 0x77, count * STRIDE);
        pair_barrier();
        if (pair.side == 0) {
            send_typed(count, flags, true, 1);
        } else {
            pair_wait(received, arrived + 1);
            CHECK(fetch_status == GRAIL_ERR_TRUNCATED);
            for (size_t i = (count - 1) * STRIDE; i < count * STRIDE; ++i)
                CHECK(target[i] == 0x77);
        }
        pair_barrier();
        CHECK(states_alive == 0);

        /* an unpack function that fails */
        typed_room = count;
        unpack_status = GRAIL_ERR_NO_MEMORY;
        pair_barrier();
        if (pair.side == 0) {
            send_typed(count, flags, true, 2);
        } else {
            pair_wait(received, arrived + 2);
            CHECK(fetch_status == GRAIL_ERR_NO_MEMORY);
        }
        pair_barrier();
        CHECK(states_alive == 0);
        unpack_status = GRAIL_OK;
        memset(target, 0, count * STRIDE);
        pair_barrier();

        /* and the connection is as good as before */
        if (pair.side == 0) {
            send_typed(count, flags, true, 3);
        } else {
            pair_wait(received, arrived + 3);
            CHECK(fetch_status == GRAIL_OK);
            CHECK(strided_matches(target, count * ITEM, 3));
        }
        pair_barrier();
    }
    grail_net_type_free(type);
    free(source);
    free(target);
    pair_close();
}

static void layout_that_cannot_start(void **state)
{
    grail_net_buffer_t buffer = {NULL, 10, NULL};
    uint32_t header = 0;

    (void)state;
    pair_open(on_typed);
    source = malloc(1000);
    buffer.address = source;
    CHECK(grail_net_type_create(pair.net, &layout, &type) == GRAIL_OK);
    buffer.type = type;
    refuse_to_start = true;
    pair_barrier();
    int saved = dup(STDERR_FILENO);     /* the error line of this one is expected */
    FILE *nowhere = tmpfile();
    dup2(fileno(nowhere), STDERR_FILENO);
    grail_status_t status = grail_net_send(pair.net, pair.endpoint, 0, &header, sizeof(header),
                                           &buffer, 0, pair_done, NULL);
    dup2(saved, STDERR_FILENO);
    close(saved);
    fclose(nowhere);
    CHECK(status == GRAIL_ERR_NO_MEMORY);
    CHECK(states_alive == 0);
    refuse_to_start = false;
    grail_net_type_free(type);
    free(source);
    pair_close();
    CHECK(pair.done == 0);
}

/* --- calls from inside callbacks ------------------------------------------------------------- */

enum { ROUNDS = 2000 };

static unsigned turns;

static void answer(void)
{
    static header_t header = {7, 0, sizeof(header_t), 0};

    CHECK(grail_net_progress(pair.net) == 0);   /* not re-entered */
    grail_status_t status = grail_net_send(pair.net, pair.endpoint, 0, &header, sizeof(header),
                                           NULL, 0, pair_done, NULL);
    CHECK(status == GRAIL_OK || status == GRAIL_IN_PROGRESS);
}

static grail_net_verdict_t on_ball(void *arg, grail_net_message_t *message)
{
    (void)arg;
    (void)message;
    if (++turns < ROUNDS)
        answer();
    return GRAIL_NET_DONE;
}

static void handlers_that_send(void **state)
{
    (void)state;
    turns = 0;
    pair_open(on_ball);
    static header_t header = {7, 0, sizeof(header_t), 0};
    if (pair.side == 0)
        CHECK(grail_net_send(pair.net, pair.endpoint, 0, &header, sizeof(header), NULL, 0,
                             pair_done, NULL) >= 0);
    pair_wait(turns, ROUNDS - 1);
    pair_barrier();
    pair_barrier();
    pair_close();
}

/* --- one process ----------------------------------------------------------------------------- */

static void to_itself(void **state)
{
    grail_net_params_t params = {.handlers = {on_message, on_message}, .handler_arg = &pair};
    const void *address;
    bool closed = false;
    size_t length;
    uint32_t seed = 0;

    (void)state;
    memset(&pair, 0, sizeof(pair));
    source = malloc(BIG);
    target = malloc(BIG + GUARD);
    CHECK(grail_net_open(&params, &pair.net) == GRAIL_OK);
    CHECK(strncmp(grail_net_provider(pair.net), "ucx 1.", 6) == 0);
    CHECK(grail_net_address(pair.net, &address, &length) == GRAIL_OK);
    CHECK(grail_net_connect(pair.net, address, length, NULL, &pair.endpoint) == GRAIL_OK);
    for (int how = AT_ONCE; how <= DONE_UNREAD; ++how) {
        manners = (enum manners)how;
        received = kept_count = 0;
        for (unsigned i = 0; i < SIZES * WAYS; ++i) {
            unsigned before = pair.done, arrived = received + 1;
            grail_status_t status = send_one(++seed, sizes[i / WAYS], 24, ways[i % WAYS]);

            CHECK(status == GRAIL_OK || status == GRAIL_IN_PROGRESS);
            pair_wait(received, arrived);
            settle();
            if (status == GRAIL_IN_PROGRESS)
                pair_wait(pair.done, before + 1);
        }
    }
    CHECK(grail_net_disconnect(pair.net, pair.endpoint, false, &closed) == GRAIL_OK);
    for (double end = pair_seconds() + 10; !closed; CHECK(pair_seconds() < end))
        grail_net_progress(pair.net);
    grail_net_close(pair.net);
    grail_net_close(NULL);
    free(source);
    free(target);
}

/* Communicators come and go, and so do connections. */
static void opened_and_closed_often(void **state)
{
    grail_net_params_t params = {.handlers = {on_message}, .handler_arg = &pair};
    const void *address;
    size_t length;

    (void)state;
    memset(&pair, 0, sizeof(pair));
    for (int i = 0; i < 5; ++i) {
        CHECK(grail_net_open(&params, &pair.net) == GRAIL_OK);
        CHECK(grail_net_address(pair.net, &address, &length) == GRAIL_OK);
        for (int j = 0; j < 100; ++j) {
            bool closed = false;

            CHECK(grail_net_connect(pair.net, address, length, NULL, &pair.endpoint) == GRAIL_OK);
            CHECK(grail_net_disconnect(pair.net, pair.endpoint, false, &closed) == GRAIL_OK);
            for (double end = pair_seconds() + 10; !closed; CHECK(pair_seconds() < end))
                grail_net_progress(pair.net);
        }
        grail_net_close(pair.net);
    }
}

static void fetch_cancelled(void *arg, grail_status_t status, size_t length)
{
    (void)length;
    CHECK(status == GRAIL_ERR_CANCELLED);
    ++*(unsigned *)arg;
}

/* Rendezvous to oneself that is never fetched, and a close that is never progressed. */
static void closed_with_work_in_flight(void **state)
{
    grail_net_params_t params = {.handlers = {on_message, on_message}, .handler_arg = &pair};
    static header_t header = {2, 100, sizeof(header_t), 0};
    grail_net_buffer_t buffer = {NULL, 100, NULL};
    unsigned cancelled = 0;
    const void *address;
    size_t length;

    (void)state;
    memset(&pair, 0, sizeof(pair));
    source = malloc(100);
    buffer.address = source;
    pair_fill(source, 100, 2);
    manners = LATER;
    received = kept_count = 0;
    CHECK(grail_net_open(&params, &pair.net) == GRAIL_OK);
    CHECK(grail_net_address(pair.net, &address, &length) == GRAIL_OK);
    CHECK(grail_net_connect(pair.net, address, length, NULL, &pair.endpoint) == GRAIL_OK);
    for (int i = 0; i < 10; ++i)
        CHECK(grail_net_send(pair.net, pair.endpoint, 0, &header, sizeof(header), &buffer,
                             GRAIL_NET_SEND_RNDV, fetch_cancelled, &cancelled) ==
              GRAIL_IN_PROGRESS);
    pair_wait(received, 10);
    grail_net_close(pair.net);
    CHECK(cancelled == 10);
    free(source);
}

static int setup(void **state)
{
    (void)state;
    return grail_runtime_init() == GRAIL_OK ? 0 : -1;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(to_itself),
        cmocka_unit_test(consumed_in_the_handler),
        cmocka_unit_test(kept_and_fetched_later),
        cmocka_unit_test(dropped_in_the_handler),
        cmocka_unit_test(dropped_later),
        cmocka_unit_test(done_without_reading),
        cmocka_unit_test(many_in_flight),
        cmocka_unit_test(rendezvous_held_open),
        cmocka_unit_test(truncated),
        cmocka_unit_test(layouts),
        cmocka_unit_test(layouts_in_trouble),
        cmocka_unit_test(layout_that_cannot_start),
        cmocka_unit_test(handlers_that_send),
        cmocka_unit_test(opened_and_closed_often),
        cmocka_unit_test(closed_with_work_in_flight),
    };

    return cmocka_run_group_tests_name("net", tests, setup, NULL);
}
