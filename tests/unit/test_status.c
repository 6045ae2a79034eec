/* SPDX-License-Identifier: BSD-3-Clause */
/* Every status has words of its own. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/status.h"

static void every_status_has_its_own_words(void **state)
{
    (void)state;
    const char *unknown = grail_status_string((grail_status_t)-1000);

    assert_non_null(unknown);
    for (int s = GRAIL_ERR_STALE; s <= GRAIL_IN_PROGRESS; ++s) {
        const char *text = grail_status_string((grail_status_t)s);

        assert_string_not_equal(text, unknown);
        for (int other = s + 1; other <= GRAIL_IN_PROGRESS; ++other)
            assert_string_not_equal(text, grail_status_string((grail_status_t)other));
        assert_int_equal(grail_status_is_error((grail_status_t)s), s < 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_status_has_its_own_words),
    };

    return cmocka_run_group_tests_name("status", tests, NULL, NULL);
}
