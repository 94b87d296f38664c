/* base/device_ids.c: reading `devices`. */
#include "base/device_ids.h"

#include "base/error.h"
#include "base/memory.h"
#include "base/strings.h"
#include <stdlib.h>
#include <string.h>

enum { MAX_DEVICES = 1 << 16 };

static th_status bad_text(const char *text, const char *what)
{
    return th__fail(TH_ERR_VALUE, "devices",
                    "devices='%s' is not understood for %s; expected a count ('2'), '-1' for all, or a list of ids "
                    "('0,1' or '2,')",
                    text, what);
}

static th_status empty_selection(const char *text, const char *what)
{
    return th__fail(TH_ERR_VALUE, "devices", "devices='%s' selects no device; %s needs at least one", text, what);
}

static th_status first_ids(int n, int **ids, size_t *count)
{
    *ids = th__malloc((size_t)n * sizeof **ids);
    if (*ids == NULL) return th__pending();
    for (int i = 0; i < n; i++) (*ids)[i] = i;
    *count = (size_t)n;
    return TH_OK;
}

static th_status listed_ids(const char *text, const char *what, int **ids, size_t *count)
{
    th__strings parts = {0};
    if (th__split(&parts, text, ',') != 0) goto done;
    *ids = th__malloc(parts.count * sizeof **ids);
    for (size_t i = 0; i < parts.count && *ids != NULL; i++) {
        int64_t id;
        if (*parts.items[i] == '\0') continue; /* "2," */
        if (!th__parse_int(parts.items[i], &id) || id < 0 || id >= MAX_DEVICES) {
            bad_text(text, what);
            break;
        }
        for (size_t k = 0; k < *count; k++)
            if ((*ids)[k] == id) th__fail(TH_ERR_VALUE, "devices", "devices='%s' has %d twice", text, (int)id);
        if (th__pending() != TH_OK) break;
        (*ids)[(*count)++] = (int)id;
    }
    if (th__pending() == TH_OK && *count == 0) empty_selection(text, what);
done:
    th__strings_free(&parts);
    return th__pending();
}

static th_status check_ids(const char *text, const char *what, int available, const int *ids, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (ids[i] < available) continue;
        if (available == 0)
            return th__fail(TH_ERR_RUNTIME, "devices", "devices='%s' was asked for, but there is no %s device", text, what);
        return th__fail(TH_ERR_RUNTIME, "devices", "devices='%s' needs %s device %d, but there %s only %d: 0%s", text, what,
                        ids[i], available == 1 ? "is" : "are", available,
                        available == 1   ? ""
                        : available == 2 ? " and 1"
                                         : " and up");
    }
    return TH_OK;
}

th_status th__parse_device_ids(const char *text, const char *what, int available, bool check, int **ids, size_t *count)
{
    int64_t number;
    *ids = NULL;
    *count = 0;
    TH__CHECK_PENDING();
    th_status status;
    if (strchr(text, ',') != NULL) {
        status = listed_ids(text, what, ids, count);
    } else if (!th__parse_int(text, &number) || number < -1 || number > MAX_DEVICES) {
        status = bad_text(text, what);
    } else if (number == -1 && available == 0) {
        status = th__fail(TH_ERR_RUNTIME, "devices", "devices='-1' asks for all %s devices, but there is none", what);
    } else if (number == 0) {
        status = empty_selection(text, what);
    } else {
        status = first_ids(number == -1 ? available : (int)number, ids, count);
    }
    if (status == TH_OK && check) status = check_ids(text, what, available, *ids, *count);
    if (status == TH_OK) return TH_OK;
    free(*ids);
    *ids = NULL;
    *count = 0;
    return status;
}

th_status th__parse_cpu_count(const char *text, int *count)
{
    int64_t number;
    TH__CHECK_PENDING();
    if (!th__parse_int(text, &number) || number < 0 || number > MAX_DEVICES)
        return th__fail(TH_ERR_TYPE, "devices",
                        "devices='%s' is not understood for the CPU; expected a number of processes above zero", text);
    if (number == 0) return empty_selection(text, "the CPU");
    *count = (int)number;
    return TH_OK;
}
