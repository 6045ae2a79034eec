/* SPDX-License-Identifier: BSD-3-Clause */
/* Short host messages between two processes: lengths, floods, what is left at the end. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "runtime/init.h"
#include "tests/unit/net_pair.h"

enum { FLOOD = 20000, LONG = 20000 };

/* Payload: the message's number, then bytes made from it. */
static unsigned char seen[FLOOD];   /* times, by number */
static unsigned received, longs, answers_wanted, refused;
static char long_target[LONG];

static grail_net_verdict_t on_long(void *arg, grail_net_message_t *message)
{
    grail_net_buffer_t buffer = {long_target, sizeof(long_target), NULL};

    CHECK(arg == &pair);
    CHECK(message->length == LONG);
    if (!message->rndv) {
        memcpy(long_target, message->data, LONG);
    } else {
        grail_status_t status = grail_net_fetch(pair.net, message->token, &buffer, pair_done, NULL);

        CHECK(status == GRAIL_OK || status == GRAIL_IN_PROGRESS);
        longs += status == GRAIL_OK;
        return GRAIL_NET_KEEP;
    }
    longs++;
    return GRAIL_NET_DONE;
}

static void send_number(uint32_t number, size_t length)
{
    char data[GRAIL_NET_SHORT_MAX];

    pair_fill(data, length, number);
    if (length >= sizeof(number))
        memcpy(data, &number, sizeof(number));
    while (grail_net_send_short(pair.endpoint, data, length) != GRAIL_OK) {
        refused++;
        grail_net_progress(pair.net);
    }
}

static grail_net_verdict_t on_short(void *arg, grail_net_message_t *message)
{
    const char *data = message->data;
    uint32_t number = 0;

    CHECK(arg == &pair);
    CHECK(!message->rndv && message->header_length == 0);
    CHECK(message->length <= GRAIL_NET_SHORT_MAX);
    if (message->length >= sizeof(number)) {
        memcpy(&number, data, sizeof(number));
        CHECK(number < FLOOD);
        for (size_t i = sizeof(number); i < message->length; ++i)
            CHECK((unsigned char)data[i] == pair_byte(number, i));
        seen[number]++;
    } else {
        CHECK(pair_matches(data, message->length, (uint32_t)message->length));
    }
    received++;
    return GRAIL_NET_DONE;
}

static void begin(grail_net_handler_fn handler)
{
    memset(seen, 0, sizeof(seen));
    received = longs = refused = answers_wanted = 0;
    pair_short_handler = handler;
    pair_open(on_long);
}

/* One after the other, in both directions: each is there before the next is sent. */
static void every_length(void **state)
{
    (void)state;
    begin(on_short);
    for (uint32_t i = 0; i < 4 * (GRAIL_NET_SHORT_MAX + 1); ++i) {
        size_t length = i / 4;

        /* too short for a number: the length stands for it */
        if ((int)(i % 2) == pair.side)
            send_number(length < sizeof(i) ? (uint32_t)length : i, length);
        else
            pair_wait(received, i / 2 + 1);
    }
    pair_close();
}

/* More than all queues hold, to a peer that looks away at first; each arrives once. */
static void flood(bool both)
{
    begin(on_short);
    if (pair.side == 0 || both) {
        for (uint32_t i = 0; i < FLOOD; ++i)
            send_number(i, sizeof(i) + i % (GRAIL_NET_SHORT_MAX - sizeof(i) + 1));
        CHECK(refused > 0);
    } else {
        usleep(100000);
    }
    if (pair.side == 1 || both) {
        pair_wait(received, FLOOD);
        for (uint32_t i = 0; i < FLOOD; ++i)
            CHECK(seen[i] == 1);
    }
    pair_close();
}

static void flood_from_one(void **state)
{
    (void)state;
    flood(false);
}

static void flood_from_both(void **state)
{
    (void)state;
    flood(true);
}

/* Beside split messages (FAST, 20 KB). */
static void among_long_ones(void **state)
{
    enum { ROUNDS = 200 };
    static char source[LONG];
    static uint32_t headers[ROUNDS];
    unsigned in_progress = 0;

    (void)state;
    begin(on_short);
    pair_fill(source, LONG, 3);
    if (pair.side == 0) {
        for (uint32_t i = 0; i < ROUNDS; ++i) {
            grail_net_buffer_t buffer = {source, LONG, NULL};
            grail_status_t status =
                grail_net_send(pair.net, pair.endpoint, 0, &headers[i], sizeof(headers[i]), &buffer,
                               GRAIL_NET_SEND_FAST, pair_done, NULL);

            CHECK(status == GRAIL_OK || status == GRAIL_IN_PROGRESS);
            in_progress += status == GRAIL_IN_PROGRESS;
            send_number(i, 40);
        }
        pair_wait(pair.done, in_progress);
    } else {
        pair_wait(received, ROUNDS);
        for (double end = pair_seconds() + 60; longs + pair.done < ROUNDS;
             CHECK(pair_seconds() < end))
            grail_net_progress(pair.net);
        for (uint32_t i = 0; i < ROUNDS; ++i)
            CHECK(seen[i] == 1);
        CHECK(pair_matches(long_target, LONG, 3));
    }
    pair_close();
}

static grail_net_verdict_t on_short_answer(void *arg, grail_net_message_t *message)
{
    char data[GRAIL_NET_SHORT_MAX];

    CHECK(arg == &pair);
    received++;
    memcpy(data, message->data, message->length);
    /* a refusal is the sender's to bear: handlers do not wait */
    if (answers_wanted > 0 &&
        grail_net_send_short(pair.endpoint, data, message->length) == GRAIL_OK)
        answers_wanted--;
    return GRAIL_NET_DONE;
}

static void handlers_that_answer(void **state)
{
    enum { TURNS = 3000 };

    (void)state;
    begin(on_short_answer);
    answers_wanted = TURNS - pair.side;
    if (pair.side == 0)
        send_number(7, 30);
    pair_wait(received, TURNS - 1u);
    pair_close();
}

/* Messages that nobody has looked at when the receiver closes. */
static void closed_unread(void **state)
{
    (void)state;
    for (unsigned round = 0; round < 20; ++round) {
        begin(on_short);
        if (pair.side == 0) {
            for (uint32_t i = 0; i < 40; ++i)
                send_number(i, 20);
        }
        pair_barrier();
        if (pair.side == 1 && round % 4 < 2)
            pair_wait(received, 20);
        pair_close();
    }
}

/* To itself: the message may arrive inside the call. */
static void to_itself(void **state)
{
    grail_net_params_t params = {.short_handler = on_short, .handler_arg = &pair};
    const void *address;
    size_t length;

    (void)state;
    memset(&pair, 0, sizeof(pair));
    received = 0;
    CHECK(grail_net_open(&params, &pair.net) == GRAIL_OK);
    CHECK(grail_net_address(pair.net, &address, &length) == GRAIL_OK);
    CHECK(grail_net_connect(pair.net, address, length, NULL, &pair.endpoint) == GRAIL_OK);
    for (uint32_t i = 0; i < 100; ++i)
        send_number(i, 50);
    pair_wait(received, 100);
    grail_net_close(pair.net);
}

static int setup(void **state)
{
    (void)state;
    return grail_runtime_init() == GRAIL_OK ? 0 : -1;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_length),
        cmocka_unit_test(flood_from_one),
        cmocka_unit_test(flood_from_both),
        cmocka_unit_test(among_long_ones),
        cmocka_unit_test(handlers_that_answer),
        cmocka_unit_test(closed_unread),
        cmocka_unit_test(to_itself),
    };

    return cmocka_run_group_tests_name("net_short", tests, setup, NULL);
}
